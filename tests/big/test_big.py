"""A million coupons of a thousand activities: how few statements each call takes, by which index, over how few rows.

Only by ``-m big``. Tests are functions in one module and roll back what they do, since laying the ledger out takes the
longest: they share it.
"""

from collections.abc import Iterator, Set

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import CharField, Count
from django.db.models.functions import Cast
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from activities import exports, readonly
from activities.api_keys import api_key_make
from activities.audit import Actor
from activities.expiry import CHUNK, coupons_expire
from activities.models import Activity, Coupon, Redemption
from seize.keys import SHARDS, queue_key
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync.models import DayCursor
from sync.rebuild import activity_rebuild
from tests.big import ledger
from tests.big.ledger import ACTIVITIES, BIG_COUPONS, BIG_SHOPPER, COUPONS, HOUR, VOIDED_EVERY, Ledger
from tests.big.plans import Asked, asked

pytestmark = [
    pytest.mark.big,
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "mysql", reason="the plans are MariaDB's"),
]
MY, INNER = "/market/consumer/coupon/my", "/market/inner/coupon"
COUPON_LIST, REDEMPTION_LIST = "/admin/activities/coupon/", "/admin/activities/redemption/"
SMALL_SHOPPER = ledger.shopper(20_019)  # has 20, as many as anybody but the big one
SHOPPERS = pytest.mark.parametrize(
    ("user_id", "has"), [(BIG_SHOPPER, BIG_COUPONS), (SMALL_SHOPPER, 20)], ids=["600 coupons", "20 coupons"]
)
VOIDED = ACTIVITIES // VOIDED_EVERY
FEW = 60  # rows: a handful, and what the server looks up about a table that it opens for the first time
# By which index one coupon is found: with its shopper the wallet's finds it as well.
ONE_COUPON = {"PRIMARY", "coupon_wallet"}
ONE_COUPONS_ENTRIES = {"redemption_once_a_turn", "redemption_once_an_order", "redemption_order"}


@pytest.fixture(scope="module")
def big(django_db_setup, django_db_blocker) -> Iterator[Ledger]:
    with django_db_blocker.unblock():
        yield ledger.fill(now=timezone.now())
        ledger.empty()


@pytest.fixture(autouse=True)
def _in_the_big_ledger(big, db, raw, monkeypatch) -> None:
    """At the moment for which it was laid out, however long the tests before took.

    With somebody's claim waiting in every queue, as while sales are under way: else nobody's is asked for.
    """
    monkeypatch.setattr(timezone, "now", lambda: big.now)
    for shard in range(SHARDS):
        raw.hset(queue_key(shard), f"{10 + shard}:1:1", "1700000000000:x")


@pytest.fixture
def service() -> APIClient:
    _key, text = api_key_make(name="checkout", scopes=["read", "redeem"], by=Actor("test"), now=timezone.now())
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Api-Key {text}")
    client.get(f"{INNER}/available", {"user_id": "1", "amount": "1.00"})  # the first use in a minute is noted
    return client


@pytest.fixture
def staff() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("boss", password="x"))
    return client


def of_big_shopper(status: str, *, uses: int = 0) -> Coupon:
    return Coupon.objects.filter(user_id=BIG_SHOPPER, status=status, uses=uses).order_by("id")[0]


def held(
    seen: Asked,
    *,
    statements: int,
    coupon: Set[str] = frozenset(),
    redemption: Set[str] = frozenset(),
    rows: int,
    counts: bool = False,
    sorted_max: int = 2 * BIG_COUPONS,
) -> None:
    """So many statements; rows of the two tables found by these indexes alone; few rows read, and fewer sorted.

    :param rows: at most so many are read, of all tables and of what is put aside on the way.
    :param counts: an index may be walked along from its end, as far as a LIMIT lets it, which ``rows`` then holds.
    :param sorted_max: by the planner's estimate; one shopper's coupons.
    """
    story = str(seen)
    assert len(seen.statements) == statements, story
    assert seen.keys("activities_coupon") <= coupon, story
    assert seen.keys("activities_redemption") <= redemption, story
    assert bool(coupon) == bool(seen.keys("activities_coupon")), story
    assert [step for step in seen.steps if step.access in ("ALL", *(() if counts else ("index",)))] == [], story
    assert [step for step in seen.steps if step.is_sorted and step.rows > sorted_max] == [], story
    assert seen.read <= rows, story


def estimated(seen: Asked, *, rows: int) -> None:
    assert max(step.rows for step in seen.steps) <= rows, str(seen)


# -- The ledger itself -------------------------------------------------------------------------------------


def test_ledger_is_as_large_and_as_mixed_as_these_tests_say(big):
    statuses = dict(Coupon.objects.order_by().values_list("status").annotate(Count("id")))
    assert statuses == {"EXPIRED": 464_160, "REDEEMED": 300_189, "UNUSED": 199_122, "VOIDED": 36_529}
    assert sum(statuses.values()) == COUPONS
    assert Activity.objects.count() == ACTIVITIES
    assert Activity.objects.filter(status="VOIDED").count() == VOIDED
    assert Coupon.objects.filter(user_id=BIG_SHOPPER).count() == BIG_COUPONS
    assert Coupon.objects.filter(user_id=SMALL_SHOPPER).count() == 20
    entries = dict(Redemption.objects.order_by().values_list("entry").annotate(Count("id")))
    assert entries["REDEEM"] - entries["ROLL_BACK"] == statuses["REDEEMED"]


def test_control_search_that_compares_numbers_as_text_is_seen_to_read_the_whole_table(record_property):
    """What Django's own search does; were it to pass, nothing here would mean anything."""
    text = Coupon.objects.alias(text=Cast("user_id", CharField()))
    seen = asked(lambda: text.filter(text=str(BIG_SHOPPER)).count())
    record_property("harm", f"a search by text reads {seen.read:,} rows for {seen.answer}")
    assert seen.answer == BIG_COUPONS
    assert seen.read > COUPONS


# -- Shoppers ----------------------------------------------------------------------------------------------


@SHOPPERS
@pytest.mark.parametrize("status", [None, "unused", "redeemed", "expired", "voided"])
def test_my_coupons_are_found_by_the_wallets_index_whatever_the_status(shopper_api, user_id, has, status):
    client = shopper_api(user_id)
    seen = asked(lambda: client.get(MY, {} if status is None else {"status": status}))
    assert seen.answer.status_code == 200
    held(seen, statements=2, coupon={"coupon_wallet"}, rows=2 * has + FEW)
    estimated(seen, rows=has)


def test_coupon_on_its_way_costs_my_coupons_one_statement_that_looks_for_its_row(big, shopper_api, service):
    theirs = Coupon.objects.filter(user_id=BIG_SHOPPER).values_list("activity_id", flat=True)
    # Redis has a clock of its own: of those that sell the one that does so longest.
    selling = Activity.objects.watched().exclude(status="VOIDED").exclude(pk__in=list(theirs)).order_by("-ends_at")[0]
    activity_rebuild(activity_id=selling.pk)
    coupon_seize(wanted=SeizeRequest(activity_id=selling.pk, seq=1), user_id=BIG_SHOPPER)
    client = shopper_api(BIG_SHOPPER)
    seen = asked(lambda: client.get(MY))
    assert [coupon["state"] for coupon in seen.answer.json()["results"][:2]] == ["pending", "issued"]
    held(seen, statements=3, coupon={"coupon_wallet", "coupon_once"}, rows=2 * BIG_COUPONS + FEW)
    seen = asked(lambda: service.get(f"{INNER}/available", {"user_id": str(BIG_SHOPPER), "amount": "199.00"}))
    assert seen.answer.json()["unusable"][0]["reason"] == "COUPON_PENDING"
    held(seen, statements=4, coupon={"coupon_wallet"}, rows=3 * BIG_COUPONS + FEW)


@pytest.mark.parametrize("status", [None, "expired"])
def test_my_coupons_behind_a_cursor_are_found_by_the_wallets_index(shopper_api, status):
    client, asking = shopper_api(BIG_SHOPPER), {} if status is None else {"status": status}
    cursor = client.get(MY, asking).json()["next_cursor"]
    seen = asked(lambda: client.get(MY, {**asking, "cursor": cursor}))
    assert len(seen.answer.json()["results"]) == 20
    held(seen, statements=1, coupon={"coupon_wallet"}, rows=2 * BIG_COUPONS)
    estimated(seen, rows=BIG_COUPONS)


def test_one_coupon_is_found_by_its_id(shopper_api):
    client, coupon = shopper_api(BIG_SHOPPER), of_big_shopper("REDEEMED", uses=1)
    seen = asked(lambda: client.get(f"/market/consumer/coupon/{coupon.pk}"))
    assert seen.answer.json()["status"] == "redeemed"
    held(seen, statements=1, coupon={"PRIMARY"}, rows=FEW)
    estimated(seen, rows=1)


def test_claim_is_found_by_the_index_that_keeps_coupons_once(shopper_api):
    client, coupon = shopper_api(BIG_SHOPPER), of_big_shopper("UNUSED")
    seen = asked(lambda: client.get(f"/market/consumer/activity/{coupon.activity_id}/claim"))
    [claim] = seen.answer.json()["claims"]
    assert (claim["state"], claim["coupon_id"]) == ("issued", str(coupon.pk))
    held(seen, statements=3, coupon={"coupon_once"}, rows=FEW)
    estimated(seen, rows=1)


# -- Checkout ----------------------------------------------------------------------------------------------


@SHOPPERS
def test_available_coupons_are_found_and_sorted_among_the_shoppers_own(service, user_id, has):
    seen = asked(lambda: service.get(f"{INNER}/available", {"user_id": str(user_id), "amount": "199.00"}))
    body = seen.answer.json()
    unused = Coupon.objects.filter(user_id=user_id, status="UNUSED").count()
    assert (len(body["usable"]), body["complete"]) == (unused, True)
    held(seen, statements=4, coupon={"coupon_wallet"}, rows=3 * has + FEW)
    estimated(seen, rows=has)


def test_quote_finds_its_coupon_by_its_id(service):
    body = {"coupon_id": of_big_shopper("UNUSED").pk, "user_id": BIG_SHOPPER, "order_amount": "199.00"}
    seen = asked(lambda: service.post(f"{INNER}/quote", body, format="json"))
    assert seen.answer.json()["code"] == "USABLE"
    held(seen, statements=2, coupon={"PRIMARY"}, rows=FEW)
    estimated(seen, rows=1)


def test_redeem_again_and_roll_back_find_one_coupon_and_its_entries(service):
    coupon = of_big_shopper("UNUSED", uses=1)  # an order gave it back before
    order = {"coupon_id": coupon.pk, "user_id": BIG_SHOPPER, "order_id": "N-1", "order_amount": "199.00"}
    back = {"coupon_id": coupon.pk, "order_id": "N-1", "reason": "refund"}
    calls = [
        ("redeem", order, 201, 4),
        ("redeem", order, 200, 3),
        ("roll-back", back, 201, 5),
        ("roll-back", back, 200, 3),
    ]
    for name, body, status, statements in calls:
        seen = asked(lambda name=name, body=body: service.post(f"{INNER}/{name}", body, format="json"))
        assert seen.answer.status_code == status
        held(seen, statements=statements, coupon=ONE_COUPON, redemption=ONE_COUPONS_ENTRIES, rows=FEW)
        estimated(seen, rows=4)
    assert Redemption.objects.filter(coupon=coupon).count() == 4


# -- The job that stores what holds already ----------------------------------------------------------------

BY_EXPIRY = {"coupon_status_activity", "coupon_expiry"}


def test_expiry_that_finds_nothing_looks_once_at_each_voided_activity_and_at_no_row_of_them(big):
    seen = asked(lambda: coupons_expire(now=big.now))
    assert seen.answer == {"voided": 0, "expired": 0}
    held(seen, statements=2, coupon=BY_EXPIRY, rows=3 * VOIDED + FEW)


def test_expiry_reads_the_overdue_and_changes_them_by_their_ids(big):
    later = big.now + 2 * HOUR
    overdue = Coupon.objects.filter(status="UNUSED", expires_at__lte=later).count()
    assert overdue > CHUNK
    seen = asked(lambda: coupons_expire(now=later))
    assert seen.answer == {"voided": 0, "expired": overdue}
    held(seen, statements=5, coupon={*BY_EXPIRY, "PRIMARY"}, rows=4 * overdue)
    estimated(seen, rows=2 * overdue)


def test_expiry_voids_what_is_unused_of_a_voided_activity_and_leaves_the_rest_alone(big):
    activity_id = big.activity_id(900)
    unused = Coupon.objects.filter(activity_id=activity_id, status="UNUSED").count()
    Activity.objects.filter(pk=activity_id).update(status="VOIDED")
    seen = asked(lambda: coupons_expire(now=big.now))
    assert seen.answer == {"voided": unused, "expired": 0}
    held(seen, statements=3, coupon={*BY_EXPIRY, "PRIMARY"}, rows=4 * unused)
    again = asked(lambda: coupons_expire(now=big.now))
    assert again.answer == {"voided": 0, "expired": 0}
    held(again, statements=2, coupon=BY_EXPIRY, rows=3 * VOIDED + FEW)


# -- The back office ---------------------------------------------------------------------------------------

PAGE = 12  # statements
COUNTED = readonly.COUNTED_MAX
# What counting up to the limit reads: one row more, each of them again from the table that the count makes of them.
COUNTING = 2 * (COUNTED + 1) + 200


def page(staff: Client, path: str, **asking: object) -> Asked:
    """A page of the back office; whatever it counts, it counts up to the limit."""
    seen = asked(lambda: staff.get(path, asking))
    assert seen.answer.status_code == 200
    assert len(seen.statements) <= PAGE, str(seen)
    counts = [statement.sql for statement in seen.statements if "COUNT(" in statement.sql]
    assert counts != []
    assert [sql for sql in counts if f"LIMIT {COUNTED + 1}) subquery" not in sql] == []
    return seen


def ids(seen: Asked) -> list[int]:
    return [row.pk for row in seen.answer.context["cl"].result_list]


@pytest.mark.parametrize(("number", "passed_by"), [(1, 0), (2, 50), (200, 9_950)])
def test_coupons_are_listed_newest_first_and_neither_sorted_nor_all_counted(staff, number, passed_by):
    seen = page(staff, COUPON_LIST, p=number)
    assert ids(seen) == list(Coupon.objects.order_by("-id").values_list("id", flat=True)[passed_by : passed_by + 50])
    assert seen.answer.context["cl"].result_count == COUNTED
    held(seen, statements=5, coupon={"PRIMARY", "coupon_wallet"}, rows=COUNTING + passed_by + 50, counts=True)


def test_redemptions_are_listed_newest_first_and_neither_sorted_nor_all_counted(staff):
    seen = page(staff, REDEMPTION_LIST)
    assert ids(seen) == list(Redemption.objects.order_by("-id").values_list("id", flat=True)[:50])
    held(seen, statements=4, redemption={"PRIMARY", "redemption_shopper"}, rows=COUNTING + 50, counts=True)


@pytest.mark.parametrize("number", [1, 200])
@pytest.mark.parametrize("status", ["UNUSED", "REDEEMED", "EXPIRED", "VOIDED"])
def test_coupons_of_a_status_are_one_walk_along_the_index_of_expiry(big, staff, status, number):
    later = big.now + HOUR  # an activity's coupons are overdue, and not yet stored so
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: later)
        seen = page(staff, COUPON_LIST, effective=status, p=number)
    assert len(ids(seen)) == 50
    assert {coupon.effective_status(now=later) for coupon in seen.answer.context["cl"].result_list} == {status}
    looks = {"coupon_status_activity"} if status == "VOIDED" else set()
    passed_by = 50 * (number - 1)
    # Coupons of voided activities stay redeemed or voided: none is passed by here.
    held(
        seen, statements=5 + len(looks), coupon={"coupon_expiry", *looks}, rows=COUNTING + passed_by + 900, counts=True
    )


def test_coupons_of_an_activity_that_was_voided_just_now_are_counted_as_void_by_two_indexes(big, staff):
    stored, voided = Coupon.objects.filter(status="VOIDED"), big.activity_id(900)
    stored.exclude(activity_id=big.activity_id(999)).update(status="EXPIRED")  # few enough to be counted exactly
    unused = Coupon.objects.filter(activity_id=voided, status="UNUSED")
    Activity.objects.filter(pk=voided).update(status="VOIDED")
    seen = page(staff, COUPON_LIST, effective="VOIDED")
    there = stored.count() + unused.count()
    assert seen.answer.context["cl"].result_count == there
    # Only in this minute, and only as many as are void, they are sorted.
    held(
        seen, statements=6, coupon={"coupon_expiry", "coupon_status_activity"}, rows=6 * there + 200, sorted_max=80_000
    )
    one = unused.order_by("id")[0]
    counts = {
        status: page(staff, COUPON_LIST, effective=status, q=str(one.pk)).answer.context["cl"].result_count
        for status in ("UNUSED", "EXPIRED", "VOIDED")
    }
    assert counts == {"UNUSED": 0, "EXPIRED": 0, "VOIDED": 1}


@SHOPPERS
@pytest.mark.parametrize("status", [None, "REDEEMED", "EXPIRED"])
def test_search_for_a_shopper_reads_the_shoppers_coupons_and_counts_them_exactly(staff, user_id, has, status):
    by_id = Coupon.objects.filter(pk=user_id)  # a number is looked for among both
    theirs = Coupon.objects.filter(user_id=user_id) | by_id
    if status is not None:
        theirs = theirs.filter(status=status)
    seen = page(staff, COUPON_LIST, q=str(user_id), **({} if status is None else {"effective": status}))
    assert seen.answer.context["cl"].result_count == theirs.count()
    assert set(ids(seen)) <= set(theirs.values_list("id", flat=True))
    held(seen, statements=5, coupon={"coupon_wallet", "PRIMARY"}, rows=6 * has + 200)
    estimated(seen, rows=has + 1)


def test_search_for_no_number_asks_the_coupons_nothing(staff):
    for word in ("x", "007", "1" * 30, "7 x", "优惠券"):
        seen = asked(lambda word=word: staff.get(COUPON_LIST, {"q": word}))
        assert (ids(seen), seen.answer.context["cl"].result_count) == ([], 0)
        held(seen, statements=2, coupon=set(), rows=FEW)  # the session and its user


@pytest.mark.parametrize("what", ["order", "shopper", "coupon"])
def test_search_for_an_order_a_shopper_or_a_coupon_finds_the_entries(staff, what):
    coupon = of_big_shopper("REDEEMED", uses=2)
    wanted = {"order": coupon.order_id, "shopper": str(BIG_SHOPPER), "coupon": str(coupon.pk)}[what]
    number = int(wanted) if what != "order" else 0
    theirs = (
        Redemption.objects.filter(order_id=wanted)
        | Redemption.objects.filter(user_id=number)
        | Redemption.objects.filter(coupon_id=number)
    )
    seen = page(staff, REDEMPTION_LIST, q=wanted)
    assert seen.answer.context["cl"].result_count == theirs.count()
    assert coupon.pk in {entry.coupon_id for entry in theirs}
    held(seen, statements=4, redemption={*ONE_COUPONS_ENTRIES, "redemption_shopper"}, rows=6 * theirs.count() + FEW)


@pytest.mark.parametrize("entry", ["REDEEM", "ROLL_BACK"])
def test_entries_of_one_kind_are_one_walk_along_their_index(staff, entry):
    seen = page(staff, REDEMPTION_LIST, entry__exact=entry)
    assert {row.entry for row in seen.answer.context["cl"].result_list} == {entry}
    held(seen, statements=4, redemption={"redemption_entry"}, rows=COUNTING + 50, counts=True)


def test_page_of_one_coupon_is_found_by_its_id(staff):
    url = f"{COUPON_LIST}{of_big_shopper('REDEEMED', uses=1).pk}/change/"
    seen = asked(lambda: staff.get(url))
    assert seen.answer.status_code == 200
    held(seen, statements=7, coupon={"PRIMARY"}, rows=FEW)


# -- The back office's first page, live page and report --------------------------------------------------------


def test_report_and_live_page_read_the_rows_of_their_activity_alone(staff, big):
    activity = Activity.objects.get(pk=big.activity_id(ACTIVITIES - 60))
    entries = Redemption.objects.filter(activity=activity).count()
    base = f"/admin/activities/activity/{activity.pk}"
    seen = asked(lambda: staff.get(f"{base}/report/"))
    assert seen.answer.context["report"].issued == activity.issued
    assert seen.keys("activities_coupon") <= {"coupon_once", "coupon_status_activity", "coupon_expiry"}, str(seen)
    assert seen.keys("activities_redemption") == {"redemption_activity"}, str(seen)
    assert [step for step in seen.steps if step.access in ("ALL", "index")] == [], str(seen)
    assert seen.read <= 8 * activity.issued + 2 * entries + 500, str(seen)
    again = asked(lambda: staff.get(f"{base}/report/"))
    assert again.read <= 2 * activity.issued + 2 * entries + 500, str(again)  # how it was won is remembered
    live = asked(lambda: staff.get(f"{base}/live/fragment"))
    assert live.answer.status_code == 200
    held(live, statements=6, rows=FEW)


def test_first_page_reads_what_came_since_the_last_count(staff):
    seen = asked(lambda: staff.get("/admin/"))
    assert seen.answer.context["board"].days is None  # a million is too much for a page
    assert seen.read <= 400, str(seen)
    highest = Coupon.objects.order_by("-pk").values_list("pk", flat=True)[0]
    last = Redemption.objects.order_by("-pk").values_list("pk", flat=True)[0]
    DayCursor.objects.create(pk=1, coupon_id=highest - 100, redemption_id=last - 50)
    seen = asked(lambda: staff.get("/admin/"))
    assert len(seen.answer.context["board"].days) == 14
    assert len(seen.statements) <= 12, str(seen)
    assert seen.keys("activities_coupon") | seen.keys("activities_redemption") <= {"PRIMARY"}, str(seen)
    assert seen.read <= 1000, str(seen)


# -- Exports -----------------------------------------------------------------------------------------------


def test_chunk_of_winners_is_found_by_the_index_that_keeps_coupons_once(big, monkeypatch):
    """An activity has a thousand coupons here: each chunk reads its own rows, not those behind or before it."""
    monkeypatch.setattr(exports, "CHUNK", 100)
    activity = Activity.objects.get(pk=big.activity_id(500))
    there = Coupon.objects.filter(activity=activity).count()
    made = exports.winners_export(activity=activity, in_full=True, now=big.now)
    seen = asked(lambda: list(made.rows))
    assert [row[0] for row in seen.answer] == list(
        Coupon.objects.filter(activity=activity).order_by("user_id", "seq").values_list("id", flat=True)
    )
    held(seen, statements=-(-there // 100) + 1, coupon={"coupon_once"}, rows=2 * there + FEW, counts=True, sorted_max=0)
    assert max(statement.read for statement in seen.statements) <= 2 * 100 + 10, str(seen)


def test_chunk_of_entries_is_found_by_the_index_of_the_activitys_entries(big, monkeypatch):
    monkeypatch.setattr(exports, "CHUNK", 50)
    activity = Activity.objects.get(pk=big.activity_id(500))
    counted = asked(lambda: exports.redemptions_export(activity=activity, in_full=True, now=big.now))
    there = Redemption.objects.filter(activity=activity).count()
    assert counted.answer.expected == there > 200
    held(counted, statements=1, redemption={"redemption_activity"}, rows=there + FEW)
    seen = asked(lambda: list(counted.answer.rows))
    assert [row[0] for row in seen.answer] == list(
        Redemption.objects.filter(activity=activity).order_by("id").values_list("id", flat=True)
    )
    held(
        seen,
        statements=len(seen.statements),
        redemption={"redemption_activity", "PRIMARY"},  # the newest entry of all is found by its id
        rows=2 * there + FEW,
        counts=True,
        sorted_max=0,
    )
    assert len(seen.statements) <= there / 50 + 5, str(seen)
    assert max(statement.read for statement in seen.statements) <= 2 * 50 + 10, str(seen)
