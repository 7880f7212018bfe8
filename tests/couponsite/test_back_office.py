"""The live page, the report and the first page: every number is the ledger's, and each is shown to whom it may."""

import csv
import html
import io
import json
import re
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.core.cache import cache
from django.db import connection
from django.template.defaultfilters import floatformat
from django.utils import timezone

from activities import checkout, services
from activities.audit import SYSTEM
from activities.expiry import coupons_expire
from activities.models import Activity, AuditEvent, Coupon
from couponsite import back_office, watching
from seize import counting
from seize.outcomes import Won
from seize.queue import Entry
from seize.services import coupons_seize
from sync.counts import counts_keep
from sync.days import days_count
from sync.models import DeadLetter, Reconciliation
from sync.reconcile import activity_reconcile
from sync.roles import roles_create
from tests.factories import DraftFactory, drain, issued, offer
from tests.sync.stage import press

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_fragment_due")]


@pytest.fixture
def _midday(settings):
    """It is about noon where the site is: a test of what happened today does not run into the next day."""
    settings.TIME_ZONE = f"Etc/GMT{datetime.now(UTC).hour - 12:+d}"  # as in POSIX, + is west of Greenwich


@pytest.fixture
def staff(client):
    client.force_login(get_user_model().objects.create_superuser("boss", password="x"))
    return client


def person(client, *permissions: str):
    """Log somebody in who may do just this."""
    user = get_user_model().objects.create_user("clerk", password="x", is_staff=True)
    for name in permissions:
        label, _dot, codename = name.partition(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=label, codename=codename))
    client.force_login(user)
    return client


def url(activity: Activity, tail: str) -> str:
    return f"/admin/activities/activity/{activity.pk}/{tail}"


def text_of(response) -> str:
    return html.unescape(response.content.decode())


def tiles(text: str) -> dict[str, str]:
    found = re.findall(r'sale-name">([^<]+)</div><div class="sale-value[^"]*">([^<]*)</div>', text)
    return {name: value.strip() for name, value in found}


def rows(text: str) -> dict[str, str]:
    found = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', text)
    return {re.sub(r".*<code>(\w+)</code>", r"\1", name): value for name, value in found}


def live(client, activity: Activity) -> str:
    counting.flush()
    watching.fragments_forget()
    response = client.get(url(activity, "live/fragment"))
    assert response.status_code == 200
    return text_of(response)


def sql(statement: str, *params: object):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchone()[0]


def crowd(activity: Activity, *, shoppers: int, threads: int) -> Counter[str]:
    """Every shopper presses once, some again; what they were told."""
    told: Counter[str] = Counter()
    lock = threading.Lock()
    share = shoppers // threads

    def run(first: int) -> None:
        for start in range(first, first + share, 50):
            batch = [(user, 1) for user in range(start, start + 50)]
            outcomes = [
                *coupons_seize(activity_id=activity.pk, shoppers=batch),
                *coupons_seize(activity_id=activity.pk, shoppers=[(start, 1), (start + 1, 2)]),
            ]
            names = [
                ("REPLAY" if one.replay else "WON") if isinstance(one, Won) else one.refusal.name for one in outcomes
            ]
            with lock:
                told.update(names)
            counting.flush()

    running = [threading.Thread(target=run, args=(1 + share * number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return told


@pytest.mark.usefixtures("_midday")
def test_after_ten_thousand_seizes_every_page_says_what_sql_over_the_ledger_says(staff):
    activity = offer(stock_total=6000, amount_off=Decimal("20.00"), valid_days=7)
    told = crowd(activity, shoppers=10_000, threads=8)
    assert (told["WON"], told["SOLD_OUT"] + told["LIMIT_REACHED"] + told["REPLAY"]) == (6000, 4400)
    before = tiles(live(staff, activity))
    assert (before["Won"], before["Issued"], before["Left"]) == ("≈ 6000", "0", "0")  # the queue is too long to scan
    drain(activity)

    ids = list(Coupon.objects.order_by("pk").values_list("pk", "user_id"))
    now = timezone.now()
    for number, (pk, user_id) in enumerate(ids[:300]):
        order = {"coupon_id": pk, "order_id": f"order-{number}", "by": SYSTEM, "now": now}
        done = checkout.coupon_redeem(user_id=user_id, order_amount=Decimal("150.00"), **order)
        assert isinstance(done, checkout.Entered)
        if number % 3 == 0:
            assert isinstance(checkout.coupon_roll_back(reason="returned", **order), checkout.Entered)
    over = now - timedelta(seconds=1)
    Coupon.objects.filter(pk__in=[pk for pk, _user in ids[1000:1400]]).update(expires_at=over)
    assert coupons_expire(now=now) == {"voided": 0, "expired": 400}
    Coupon.objects.filter(pk__in=[pk for pk, _user in ids[1400:1450]]).update(expires_at=over)  # no job has run yet

    coupons = "SELECT COUNT(*) FROM activities_coupon WHERE activity_id = %s"
    entries = "FROM activities_redemption WHERE activity_id = %s AND entry = %s"
    total = sql(coupons, activity.pk)
    redeemed = sql(f"{coupons} AND status = 'REDEEMED'", activity.pk)
    overdue = sql(f"{coupons} AND status = 'UNUSED' AND expires_at <= %s", activity.pk, timezone.now())
    expired = sql(f"{coupons} AND status = 'EXPIRED'", activity.pk) + overdue
    unused = sql(f"{coupons} AND status = 'UNUSED'", activity.pk) - overdue
    redemptions = sql(f"SELECT COUNT(*) {entries}", activity.pk, "REDEEM")
    rolled_back = sql(f"SELECT COUNT(*) {entries}", activity.pk, "ROLL_BACK")
    given = sql("SELECT SUM(amount_off) FROM activities_coupon WHERE activity_id = %s", activity.pk)
    discount = sql(f"SELECT SUM(discount) {entries}", activity.pk, "REDEEM") - sql(
        f"SELECT SUM(discount) {entries}", activity.pk, "ROLL_BACK"
    )
    peak = sql(
        "SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM activities_coupon WHERE activity_id = %s"
        " GROUP BY TIMESTAMPDIFF(SECOND, '1970-01-01', seized_at)) AS by_second",
        activity.pk,
    )
    duration = sql(
        "SELECT TIMESTAMPDIFF(MICROSECOND, MIN(seized_at), MAX(seized_at)) FROM activities_coupon"
        " WHERE activity_id = %s",
        activity.pk,
    )
    assert (total, redeemed, expired, unused) == (6000, 200, 450, 5350)
    assert (redemptions, rolled_back, given, discount) == (300, 100, Decimal("120000.00"), Decimal("4000.00"))
    refused = {name: str(number) for name, number in told.items() if name != "WON"}

    shown = live(staff, activity)
    by_name = tiles(shown)
    assert (by_name["Won"], by_name["Issued"]) == (str(total), str(total))
    assert (by_name["Waiting"], by_name["Left"]) == ("0", "0")
    assert rows(shown) == refused
    series = json.loads(re.search(r'data-chart="(.*?)">', html.unescape(shown.replace("&quot;", '"')))[1])
    assert sum(second[1] for second in series["seconds"]) == total
    assert sum(second[2] for second in series["seconds"]) == told["SOLD_OUT"] + told["LIMIT_REACHED"]

    listed = staff.get("/admin/activities/activity/").context["cl"].result_list[0]
    page = staff.get(url(activity, "change/"))
    assert (listed.issued, listed.stock_left) == (total, 0)
    assert page.context["original"].issued == total

    board = tiles(text_of(staff.get("/admin/")))
    assert (board["Won today"], board["Redeemed today"]) == (str(total), str(redemptions))
    assert "rolled back: 100" in text_of(staff.get("/admin/"))
    for _run in range(3):
        days_count()
        board = tiles(text_of(staff.get("/admin/")))
        assert (board["Won today"], board["Redeemed today"]) == (str(total), str(redemptions))

    report = text_of(staff.get(url(activity, "report/")))
    by_name, by_row = tiles(report), rows(report)
    assert by_name["Issued"] == str(total)
    assert by_name["Peak"] == f"{peak}/s"
    assert by_name["From the first win to the last"] == f"{floatformat(duration / 1e6, 1)} s"
    assert (by_name["Face value given"], by_name["Face value redeemed"]) == (f"¥{given}", f"¥{discount}")
    assert {name: by_row.pop(name) for name in ("Unused", "Redeemed", "Expired", "Voided")} == {
        "Unused": str(unused), "Redeemed": str(redeemed), "Expired": str(expired), "Voided": "0",
    }  # fmt: skip
    assert (by_row.pop("Redemptions entered"), by_row.pop("Redemptions rolled back")) == ("300", "100")
    assert by_row == refused

    sheet = dict(
        row[:2] for row in csv.reader(io.StringIO(b"".join(staff.get(url(activity, "report.csv"))).decode("utf-8-sig")))
        if len(row) == 2
    )  # fmt: skip
    assert (sheet["issued"], sheet["redeemed"], sheet["expired"], sheet["unused"]) == ("6000", "200", "450", "5350")
    assert (sheet["peak_wins_per_second"], sheet["seconds_first_to_last"]) == (str(peak), f"{duration / 1e6:.3f}")
    assert (sheet["face_value_given_yuan"], sheet["face_value_redeemed_yuan"]) == ("120000.00", "4000.00")
    assert {name: sheet.get(f"refused_{name.lower()}") for name in ("SOLD_OUT", "LIMIT_REACHED")} == {
        name: refused[name] for name in ("SOLD_OUT", "LIMIT_REACHED")
    }


# -- Live -----------------------------------------------------------------------------------------------


def test_live_page_shows_the_sale_and_the_queue(staff):
    activity = offer(stock_total=5)
    for user in range(1, 8):
        press(activity, user)
    by_name = tiles(live(staff, activity))
    assert (by_name["Won"], by_name["Issued"], by_name["Waiting"], by_name["Left"]) == ("5", "0", "5", "0")
    drain(activity)
    shown = live(staff, activity)
    by_name = tiles(shown)
    assert (by_name["Won"], by_name["Issued"], by_name["Waiting"]) == ("5", "5", "0")
    assert rows(shown) == {"SOLD_OUT": "2"}
    assert 'data-over="0"' in shown
    page = text_of(staff.get(url(activity, "live/")))
    assert re.search(r"/static/sale(\.\w+)?\.js", page)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_live_counts_the_claims_of_this_activity_alone(staff):
    one, other = offer(id=21, stock_total=5), offer(id=31, stock_total=5)
    press(one, 1)
    press(other, 1)
    press(other, 2)
    assert tiles(live(staff, one))["Waiting"] == "1"
    assert tiles(live(staff, other))["Waiting"] == "2"


def test_fragment_is_the_same_until_something_changes(staff):
    activity = offer(starts_at=timezone.now() + timedelta(hours=1), ends_at=timezone.now() + timedelta(hours=2))
    first = staff.get(url(activity, "live/fragment"))
    assert "private" in first["Cache-Control"]
    watching.fragments_forget()
    second = staff.get(url(activity, "live/fragment"), headers={"If-None-Match": first["ETag"]})
    assert (second.status_code, second.content, second["ETag"]) == (304, b"", first["ETag"])
    press(activity, 1)
    counting.flush()
    watching.fragments_forget()
    third = staff.get(url(activity, "live/fragment"), headers={"If-None-Match": first["ETag"]})
    assert third.status_code == 200
    assert rows(text_of(third)) == {"NOT_STARTED": "1"}


def test_fragment_is_made_once_in_two_seconds_however_many_watch(staff, monkeypatch):
    activity = offer()
    made = []
    real = back_office.activity_live
    monkeypatch.setattr(back_office, "activity_live", lambda **kwargs: made.append(1) or real(**kwargs))
    for _watcher in range(20):
        staff.get(url(activity, "live/fragment"))
    assert len(made) == 1
    for fragment in watching._fragments.values():
        fragment.until -= 3
    for _watcher in range(20):
        staff.get(url(activity, "live/fragment"))
    assert len(made) == 2


def test_live_page_says_so_when_redis_is_away_and_shows_the_ledger(staff, settings):
    activity = offer(stock_total=5)
    press(activity, 1)
    drain(activity)
    press(activity, 2)
    counting.flush()
    counts_keep(now=timezone.now())
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    shown = live(staff, activity)
    assert "Redis does not answer" in shown
    by_name = tiles(shown)
    assert (by_name["Issued"], by_name["Waiting"], by_name["Left"]) == ("1", "–", "–")
    assert 'data-over="0"' in shown
    assert staff.get(url(activity, "live/")).status_code == 200
    assert staff.get(url(activity, "report/")).status_code == 200
    assert "Redis does not answer" in text_of(staff.get("/admin/"))


def test_an_activity_that_is_over_and_drained_says_so_and_one_with_claims_on_their_way_does_not(staff):
    activity = offer(stock_total=5)
    press(activity, 1)
    services.activity_void(activity_id=activity.pk, reason="test", now=timezone.now())
    assert 'data-over="0"' in live(staff, activity)
    drain(activity)
    assert 'data-over="1"' in live(staff, activity)


def test_live_page_shows_letters_of_this_activity_and_its_reconciliation(staff):
    activity, other = offer(), offer()
    claim = Entry(f"{activity.pk}:7:1", f"1:{activity.uid}")
    DeadLetter.of(claim, reason="NO_ROOM").save()
    DeadLetter.of(Entry(f"{other.pk}:7:1", f"1:{other.uid}"), reason="NO_ROOM").save()
    activity_reconcile(activity_id=other.pk, now=timezone.now())
    assert tiles(live(staff, activity))["Dead letters"] == "1"
    assert tiles(live(staff, other))["Reconciliation"] == Reconciliation.objects.get().get_state_display()


@pytest.mark.parametrize("tail", ["live/", "live/fragment", "report/", "report.csv"])
def test_who_may_not_see_activities_sees_no_page_of_one(client, tail):
    activity = offer()
    assert client.get(url(activity, tail)).status_code == 302
    person(client)
    assert client.get(url(activity, tail)).status_code == 403
    user = get_user_model().objects.get(username="clerk")
    user.user_permissions.add(Permission.objects.get(codename="view_activity"))
    assert client.get(url(activity, tail)).status_code == 200
    activity.pk += 999
    assert client.get(url(activity, tail)).status_code == 404


def test_buttons_lead_from_the_activity_to_its_pages_unless_it_is_a_draft(staff):
    activity, draft = offer(), DraftFactory()
    assert staff.get(url(activity, "to-live/"))["Location"] == url(activity, "live/")
    assert staff.get(url(activity, "to-report/"))["Location"] == url(activity, "report/")
    assert "to-live" in text_of(staff.get(url(activity, "change/")))
    assert "to-live" not in text_of(staff.get(url(draft, "change/")))


# -- Report ---------------------------------------------------------------------------------------------


def test_report_of_a_sale_that_sold_nothing(staff):
    activity = offer()
    report = text_of(staff.get(url(activity, "report/")))
    by_name = tiles(report)
    assert (by_name["Issued"], by_name["Peak"], by_name["Face value given"]) == ("0", "0/s", "¥0.00")
    assert "not sold out" in report


def test_report_outlives_redis(staff, raw):
    activity = offer(stock_total=2)
    for user in range(1, 6):
        press(activity, user)
    drain(activity)
    counting.flush()
    counts_keep(now=timezone.now())
    raw.flushall()
    cache.clear()
    assert rows(text_of(staff.get(url(activity, "report/"))))["SOLD_OUT"] == "3"


def test_report_of_a_voided_activity_counts_unused_coupons_as_void(staff):
    activity = offer(stock_total=5)
    for user in range(1, 4):
        press(activity, user)
    drain(activity)
    services.activity_void(activity_id=activity.pk, reason="test", now=timezone.now())
    by_row = rows(text_of(staff.get(url(activity, "report/"))))
    assert (by_row["Unused"], by_row["Voided"]) == ("0", "3")


def test_report_follows_a_coupon_that_comes_late(staff):
    activity = offer(stock_total=5)
    press(activity, 1)
    drain(activity)
    assert tiles(text_of(staff.get(url(activity, "report/"))))["Issued"] == "1"
    press(activity, 2)
    assert "Not all is in the ledger yet: Waiting 1" in text_of(staff.get(url(activity, "report/")))
    drain(activity)
    assert tiles(text_of(staff.get(url(activity, "report/"))))["Issued"] == "2"


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", "\tx", "\rx"])
def test_csv_holds_no_formula(staff, name):
    activity = offer()
    Activity.objects.filter(pk=activity.pk).update(name=name)
    response = staff.get(url(activity, "report.csv"))
    assert response.streaming
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    sheet = list(csv.reader(io.StringIO(b"".join(response).decode("utf-8-sig"), newline="")))
    assert sheet[1] == ["activity", f"'{name}"]


def test_csv_is_an_export_like_others_and_written_down(staff):
    activity = offer()
    staff.get(url(activity, "report.csv"))
    event = AuditEvent.objects.latest("id")
    assert (event.action, event.subject_id, event.after) == ("export", str(activity.pk), {"what": "report"})


# -- First page -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_midday")
def test_first_page_takes_twelve_queries_at_most(staff, django_assert_max_num_queries):
    for _number in range(5):
        offer()
    activity = offer(stock_total=5)
    press(activity, 1)
    drain(activity)
    days_count()
    with django_assert_max_num_queries(12):
        page = text_of(staff.get("/admin/"))
    assert tiles(page)["Won today"] == "1"
    assert page.count("data-countdown") == 6


def test_first_page_shows_what_is_wrong(staff):
    activity = offer()
    DeadLetter.of(Entry("x", "y"), reason="MALFORMED").save()
    Reconciliation.objects.create(activity=activity, state="DIFFERS", differing_runs=2, checked_at=timezone.now())
    by_name = tiles(text_of(staff.get("/admin/")))
    assert (by_name["Dead letters"], by_name["Differing"], by_name["Oldest waiting"]) == ("1", "1", "0 s")


@pytest.mark.parametrize(
    ("permissions", "seen"),
    [
        ((), set()),
        (("activities.view_activity",), {"offers"}),
        (("activities.view_coupon",), {"Won today", "Redeemed today"}),
        (("sync.view_reconciliation",), {"Oldest waiting", "Differing"}),
        (("sync.view_deadletter",), {"Dead letters"}),
    ],
)
def test_first_page_shows_each_only_what_they_may_see(client, permissions, seen):
    offer()
    page = text_of(person(client, *permissions).get("/admin/"))
    found = set(tiles(page)) | ({"offers"} if "On offer and to come" in page else set())
    assert found == seen


def test_every_role_sees_the_first_page(client):
    roles_create()
    activity = offer()
    issued(activity)
    for group in Group.objects.all():
        user = get_user_model().objects.create_user(group.name, password="x", is_staff=True)
        user.groups.add(group)
        client.force_login(user)
        assert client.get("/admin/").status_code == 200


def test_who_asks_while_a_fragment_is_being_made_gets_the_one_before(staff, monkeypatch):
    activity = offer()
    before = staff.get(url(activity, "live/fragment")).content
    for made in watching._fragments.values():
        made.until -= 3
    for lock in watching._making.values():
        lock.acquire()
    press(activity, 1)
    counting.flush()
    assert staff.get(url(activity, "live/fragment")).content == before
    for lock in watching._making.values():
        lock.release()
    assert staff.get(url(activity, "live/fragment")).content != before
