"""Winners and redemptions as CSV: what is in it, who gets it, how little of it is held at once."""

import csv
import io
import math
import tracemalloc
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
import time_machine
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from activities import exports
from activities.audit import Actor
from activities.checkout import coupon_redeem, coupon_roll_back
from activities.coupons import coupon_of
from activities.exports import csv_stream, redemptions_export, winners_export
from activities.models import Activity, AuditEvent, Coupon, Redemption
from activities.text import shopper_masked, spreadsheet_safe
from seize.claims import Claim
from tests.factories import DraftFactory, issued

pytestmark = pytest.mark.django_db
START = datetime(2026, 11, 10, 16, 0, 0, 123_000, tzinfo=UTC)
WHEN = "2026-11-11 00:00:00.123+08:00"
DAY = timedelta(days=1)


@pytest.fixture
def activity() -> Activity:
    return DraftFactory(
        name="双十一", status="ACTIVE", per_user_limit=100, stock_total=1000, starts_at=START, ends_at=START + DAY
    )


@pytest.fixture
def person(client):
    """Somebody who may export, and nothing else: ``person("view_personal_data")`` may do that as well."""

    def logged_in(*codenames: str):
        user = get_user_model().objects.create_user("operator", password="x", is_staff=True)
        user.user_permissions.add(*Permission.objects.filter(codename__in=["view_activity", *codenames]))
        client.force_login(user)
        return client

    return logged_in


def url_of(activity: Activity, what: str) -> str:
    return f"/admin/activities/activity/{activity.pk}/{what}/"


def parsed(content: bytes) -> list[list[str]]:
    text = content.decode()
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text[1:], newline=""), strict=True))


def redeem(coupon: Coupon, order: str, *, now: datetime) -> Redemption:
    return coupon_redeem(
        coupon_id=coupon.pk,
        user_id=coupon.user_id,
        order_id=order,
        order_amount=Decimal(199),
        by=Actor("till"),
        now=now,
    ).entry


# -- What is in it ---------------------------------------------------------------------------------------


def test_winners_are_listed_by_shopper_and_seq_with_the_status_that_holds(activity, person):
    now = START + timedelta(hours=1)
    late = issued(activity, user_id=90_000_000_009, seized_at=START)
    second = issued(activity, user_id=17, seq=2, seized_at=START)
    first = issued(activity, user_id=17, seq=1, seized_at=START, expires_at=now)
    redeem(late, "A-1", now=now)
    issued(DraftFactory(status="ACTIVE"), user_id=17)
    Activity.objects.filter(pk=activity.pk).update(issued=3)
    with time_machine.travel(now, tick=False):
        response = person("export_coupon", "view_personal_data").get(url_of(activity, "winners"))
        rows = parsed(response.getvalue())
    week = "2026-11-18 00:00:00.123+08:00"
    number = str(activity.pk)
    assert rows == [
        ["Coupon", "Activity", "Name", "Shopper", "Seq", "Status", "Seized at", "Expires at", "Order", "Redeemed at",
         "Uses"],
        [str(first.pk), number, "双十一", "17", "1", "Expired", WHEN, "2026-11-11 01:00:00.123+08:00", "", "", "0"],
        [str(second.pk), number, "双十一", "17", "2", "Unused", WHEN, week, "", "", "0"],
        [str(late.pk), number, "双十一", "90000000009", "1", "Redeemed", WHEN, week, "A-1",
         "2026-11-11 01:00:00.123+08:00", "1"],
    ]  # fmt: skip


def test_coupons_of_a_voided_activity_are_void_before_their_rows_say_so(activity):
    issued(activity)
    Activity.objects.filter(pk=activity.pk).update(status="VOIDED")
    activity.refresh_from_db()
    [row] = winners_export(activity=activity, in_full=True, now=timezone.now()).rows
    assert row[5] == "Voided"


def test_redemptions_are_listed_in_the_order_in_which_they_were_made(activity, person):
    now = START + timedelta(hours=1)
    one, other = issued(activity, user_id=17, seized_at=START), issued(activity, user_id=5, seized_at=START)
    redeem(one, "A-1", now=now)
    coupon_roll_back(coupon_id=one.pk, order_id="A-1", reason='+1 refund, "late"\n', by=Actor("till"), now=now)
    redeem(other, "-2", now=now)
    stranger = issued(DraftFactory(status="ACTIVE"), user_id=17)
    redeem(stranger, "X", now=timezone.now())
    response = person("export_coupon").get(url_of(activity, "redemptions"))
    rows = parsed(response.getvalue())
    ids = [str(pk) for pk in Redemption.objects.filter(activity=activity).order_by("id").values_list("id", flat=True)]
    when = "2026-11-11 01:00:00.123+08:00"
    common = [str(activity.pk), "双十一"]
    money = ["199.00", "20.00", "179.00"]
    assert rows == [
        ["Ledger entry", "Activity", "Name", "Coupon", "Shopper", "Kind", "Turn", "Order", "Order amount", "Discount",
         "Payable", "Restored to", "Reason", "Made by", "At"],
        [ids[0], *common, str(one.pk), "•••17", "Redeemed", "1", "A-1", *money, "", "", "till", when],
        [ids[1], *common, str(one.pk), "•••17", "Rolled back", "1", "A-1", *money, "Unused",
         "'+1 refund, \"late\"\n", "till", when],
        [ids[2], *common, str(other.pk), "•••5", "Redeemed", "1", "'-2", *money, "", "", "till", when],
    ]  # fmt: skip


def test_p18_name_that_begins_as_a_formula_is_text_in_the_spreadsheet(person):
    for name in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|'/c calc'!A1,\"x\""):
        activity = DraftFactory(status="ACTIVE", name=name)
        redeem(issued(activity), "=2", now=timezone.now())
        for export in (winners_export, redemptions_export):
            made = export(activity=activity, in_full=True, now=timezone.now())
            [_header, row] = parsed(b"".join(csv_stream([made.header], made.rows)))
            assert f"'{name}" in row
            assert "'=2" in row
            assert [cell for cell in row if cell.startswith(tuple("=+-@\t\r"))] == []
    activity = DraftFactory(status="ACTIVE", name="=1+1")
    issued(activity)
    body = person("export_coupon").get(url_of(activity, "winners")).getvalue().decode()
    assert ",'=1+1," in body
    assert ",=1+1" not in body


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("=1", "'=1"), ("+1", "'+1"), ("-1", "'-1"), ("@a", "'@a"), ("\t1", "'\t1"), ("\r1", "'\r1"), ("\n1", "'\n1"),
        ("＝1", "'＝1"), ("a=1", "a=1"), ("", ""), ("'=1", "'=1"), (" =1", " =1"), ("满100减20", "满100减20"),
    ],
)  # fmt: skip
def test_only_what_begins_as_a_formula_gets_an_apostrophe(text, safe):
    assert spreadsheet_safe(text) == safe


def test_file_is_rfc_4180_with_a_mark_by_which_spreadsheets_know_utf_8():
    content = b"".join(
        csv_stream([["a", "名"]], [(1, 'say "满"'), ("x,y", "two\nlines"), (None, Decimal("-1.00")), (-5, "=5")])
    )
    assert content == '\ufeffa,名\r\n1,"say ""满"""\r\n"x,y","two\nlines"\r\n,-1.00\r\n-5,\'=5\r\n'.encode()


def test_headings_and_statuses_are_in_the_language_of_whoever_asks(activity, person):
    issued(activity)
    client = person("export_coupon")
    response = client.get(url_of(activity, "winners"), HTTP_ACCEPT_LANGUAGE="zh-hans")
    with translation.override("en"):  # by the time the rows are read the request is over
        header, row = parsed(response.getvalue())
    assert (header[2], header[5], row[5]) == ("名称", "状态", "未使用")


def test_activity_without_winners_is_a_heading(activity, person):
    client = person("export_coupon")
    for what in ("winners", "redemptions"):
        assert len(parsed(client.get(url_of(activity, what)).getvalue())) == 1


# -- Who gets it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("codenames", "shown"), [((), "•••07"), (("view_personal_data",), "90000000007")])
def test_shoppers_are_masked_for_who_may_not_see_them_on_the_pages(activity, person, codenames, shown):
    coupon = issued(activity, user_id=90_000_000_007)
    redeem(coupon, "A", now=timezone.now())
    client = person("export_coupon", *codenames)
    assert parsed(client.get(url_of(activity, "winners")).getvalue())[1][3] == shown
    assert parsed(client.get(url_of(activity, "redemptions")).getvalue())[1][4] == shown
    assert shopper_masked(90_000_000_007) == "•••07"


@pytest.mark.parametrize("what", ["winners", "redemptions"])
def test_export_needs_its_permission_and_leaves_no_trace_without(activity, person, what):
    client = person()
    page = f"/admin/activities/activity/{activity.pk}/change/"
    assert url_of(activity, what) not in client.get(page).content.decode()
    assert client.get(url_of(activity, what)).status_code == 403
    assert AuditEvent.objects.count() == 0
    get_user_model().objects.get().user_permissions.add(Permission.objects.get(codename="export_coupon"))
    assert f'href="{url_of(activity, what)}"' in client.get(page).content.decode()
    assert client.get(url_of(activity, what)).status_code == 200
    assert client.get(url_of(Activity(pk=999_999), what)).status_code == 404


def test_draft_has_no_button_for_lists_that_nobody_can_be_on(person):
    draft = DraftFactory()
    shown = person("export_coupon").get(f"/admin/activities/activity/{draft.pk}/change/").content.decode()
    assert url_of(draft, "winners") not in shown


def test_name_of_the_file_says_which_activity_and_which_day_and_it_is_kept_nowhere(activity, person):
    with time_machine.travel(datetime(2026, 11, 11, 15, 59, tzinfo=UTC), tick=False):
        response = person("export_coupon").get(url_of(activity, "winners"))
    assert response["Content-Disposition"] == f'attachment; filename="winners-{activity.pk}-2026-11-11.csv"'
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    assert "no-store" in response["Cache-Control"]
    assert "Content-Length" not in response


@pytest.mark.parametrize(
    ("what", "codenames", "after"),
    [
        ("winners", (), {"what": "winners", "shoppers": "masked", "rows": 3}),
        ("redemptions", ("view_personal_data",), {"what": "redemptions", "shoppers": "in full", "rows": 1}),
    ],
)
def test_export_is_written_down_before_the_first_row_is_sent(activity, person, what, codenames, after):
    coupons = [issued(activity, user_id=user_id) for user_id in (1, 2, 3)]
    Activity.objects.filter(pk=activity.pk).update(issued=3)
    redeem(coupons[0], "A", now=timezone.now())
    person("export_coupon", *codenames).get(url_of(activity, what))  # and nothing is read of it
    event = AuditEvent.objects.get()
    assert (event.action, event.subject_type, event.subject_id) == ("export", "activity", str(activity.pk))
    assert (event.actor_name, event.address, event.after) == ("operator", "127.0.0.1", after)


# -- How little is held ----------------------------------------------------------------------------------


def crowd(activity: Activity, *, shoppers: int) -> None:
    at = int(START.timestamp() * 1000)
    made = (coupon_of(Claim(activity.pk, number * 7919 % 1_000_003, 1, at, activity.uid), activity)
            for number in range(1, shoppers + 1))  # fmt: skip
    Coupon.objects.bulk_create(made, batch_size=2000)


@pytest.mark.parametrize("shoppers", [0, 1, 9, 10, 11, 20, 25])
def test_each_coupon_comes_once_wherever_a_chunk_ends(activity, monkeypatch, shoppers):
    monkeypatch.setattr(exports, "CHUNK", 10)
    crowd(activity, shoppers=shoppers)
    issued(activity, user_id=1_000_004, seq=1)
    for seq in range(2, 14):  # one shopper's coupons across two chunks
        issued(activity, user_id=1_000_004, seq=seq)
    with CaptureQueriesContext(connection) as asked:
        rows = list(winners_export(activity=activity, in_full=True, now=START).rows)
    wanted = Coupon.objects.order_by("user_id", "seq").values_list("id", flat=True)
    assert [row[0] for row in rows] == list(wanted)
    assert len(asked) == math.ceil((shoppers + 13) / 10) + 1  # the last one finds nothing
    assert [query["sql"] for query in asked if "OFFSET" in query["sql"]] == []


def test_each_entry_comes_once_in_the_order_of_ids_wherever_a_chunk_ends(activity, monkeypatch):
    monkeypatch.setattr(exports, "CHUNK", 3)
    now = START + timedelta(hours=1)
    for user_id in range(1, 9):
        coupon = issued(activity, user_id=user_id, seized_at=START)
        redeem(coupon, "A", now=now)
        if user_id % 3:
            coupon_roll_back(coupon_id=coupon.pk, order_id="A", reason="r", by=Actor("x"), now=now)
    made = redemptions_export(activity=activity, in_full=True, now=now)
    assert made.expected == 14
    rows = made.rows
    first = next(rows)
    redeem(Coupon.objects.get(user_id=1), "later", now=now)  # entered while the list is read: not on it
    got = [first[0], *(row[0] for row in rows)]
    assert got == list(Redemption.objects.order_by("id").values_list("id", flat=True)[:14])


def test_coupons_seized_while_the_list_is_read_repeat_nothing(activity, monkeypatch):
    monkeypatch.setattr(exports, "CHUNK", 2)
    for user_id in (10, 20, 30, 40):
        issued(activity, user_id=user_id)
    rows = winners_export(activity=activity, in_full=True, now=START).rows
    got = [next(rows)[3], next(rows)[3]]
    issued(activity, user_id=5)
    issued(activity, user_id=35)
    Coupon.objects.filter(user_id=30).update(status="EXPIRED")
    got += [row[3] for row in rows]
    assert got == ["10", "20", "30", "35", "40"]


def test_first_piece_is_sent_before_the_second_chunk_is_read(activity, person, monkeypatch):
    monkeypatch.setattr(exports, "CHUNK", 10)
    monkeypatch.setattr(exports, "PIECE", 100)
    crowd(activity, shoppers=50)
    response = person("export_coupon").get(url_of(activity, "winners"))
    assert response.streaming
    with CaptureQueriesContext(connection) as asked:
        next(response.streaming_content)
    assert len(asked) == 1
    with CaptureQueriesContext(connection) as asked:
        assert len(list(response.streaming_content)) > 10
    assert len(asked) == 5


def test_ten_times_the_rows_take_no_more_memory(activity):
    def peak(shoppers: int) -> int:
        Coupon.objects.all().delete()
        crowd(activity, shoppers=shoppers)
        made = winners_export(activity=activity, in_full=True, now=START)
        tracemalloc.start()
        size = sum(len(piece) for piece in csv_stream([made.header], made.rows))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert size > 90 * shoppers
        return used

    few, many = peak(2 * exports.CHUNK), peak(20 * exports.CHUNK)
    assert many < 1.2 * few
    assert many < 20_000_000
