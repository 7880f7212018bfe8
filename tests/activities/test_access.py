"""Who is let in, and how fast, as staff say it: refused or audited, and decided by Redis at once."""

import random

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from activities import access, drafts
from activities.audit import Actor
from activities.exports import csv_stream, listed_export
from activities.listed import FILE_MAX_BYTES, Mistake, listed_file_read
from activities.models import ACCESS_FIELDS, LISTED_MAX, Activity, AuditEvent, Listed
from activities.workflow import ActivityRefused
from seize import desk
from seize.keys import listed_key
from seize.outcomes import Outcome, Won
from seize.services import coupons_seize
from tests.factories import DraftFactory, offer, shards_declare_loaded

pytestmark = pytest.mark.django_db(transaction=True)
ANN = Actor("ann", address="192.0.2.7")
ALLOW, DENY = Listed.Verdict.ALLOW, Listed.Verdict.DENY


def change(activity: Activity, **values: object) -> Activity:
    return access.activity_access_change(activity_id=activity.pk, values=values, now=timezone.now(), by=ANN)


def replace(activity: Activity, verdict: Listed.Verdict, *user_ids: int, **how: object) -> Activity:
    named = {"activity_id": activity.pk, "now": timezone.now(), "by": ANN, **how}
    return access.activity_listed_replace(verdict=verdict, user_ids=user_ids, **named)


def listed(activity: Activity) -> set[tuple[int, str]]:
    return set(Listed.objects.filter(activity=activity).values_list("user_id", "verdict"))


def answers(activity: Activity, *user_ids: int) -> list[object]:
    """'won', or why not, for each shopper's first coupon."""

    def name(outcome: Outcome) -> object:
        return "won" if isinstance(outcome, Won) else outcome.refusal.name

    shoppers = [(user_id, 1) for user_id in user_ids]
    return [name(outcome) for outcome in coupons_seize(activity_id=activity.pk, shoppers=shoppers)]


def row(activity: Activity) -> dict[str, object]:
    return Activity.objects.filter(pk=activity.pk).values().get()


# -- Limits, challenge, audience --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"asks_max": 0}, "greater than or equal to 1"),
        ({"asks_max": 1001}, "less than or equal to 1000"),
        ({"asks_window_s": 0}, "greater than or equal to 1"),
        ({"asks_window_s": 301}, "less than or equal to 300"),
        ({"asks_window_s": None}, "cannot be null"),
        ({"rate_max": 0}, "greater than or equal to 1"),
        ({"rate_max": 100_001}, "less than or equal to 100000"),
        ({"ramp_s": 601, "rate_max": 1}, "less than or equal to 600"),
        ({"ramp_s": 10}, "needs a number of coupons per second"),
        ({"challenge": "SOMETIMES"}, "valid choice"),
        ({"challenge_effort": 999}, "greater than or equal to 1000"),
        ({"challenge_effort": 1_000_001}, "less than or equal to 1000000"),
        ({"pressure_min": 0}, "greater than or equal to 1"),
        ({"audience": "FRIENDS"}, "valid choice"),
        ({"gray_percent": 101}, "less than or equal to 100"),
        ({"gray_percent": "half"}, "must be an integer"),
        ({"coming_soon": "perhaps"}, "True or False"),
    ],
)
def test_value_that_cannot_be_is_refused_and_nothing_is_changed(values, says):
    activity = DraftFactory()
    before = row(activity)
    with pytest.raises(ActivityRefused, match=says):
        change(activity, **{"coming_soon": True, **values})
    assert (row(activity), AuditEvent.objects.count()) == (before, 0)


@pytest.mark.parametrize("status", ["DRAFT", "SUBMITTED", "APPROVED", "ACTIVE", "PAUSED"])
def test_access_is_changed_in_any_state_before_the_end_and_told_with_before_and_after(status):
    activity = DraftFactory(status=status)
    change(activity, asks_max=None, rate_max=100, ramp_s=60, challenge="PRESSURE", gray_percent=5, coming_soon=True)
    activity.refresh_from_db()
    assert [getattr(activity, name) for name in ACCESS_FIELDS] == [
        None, 10, 100, 60, "PRESSURE", 50_000, 500, "EVERYBODY", 5, True,
    ]  # fmt: skip
    event = AuditEvent.objects.get()
    assert (activity.version, event.action, event.actor_name, event.address) == (2, "access", "ann", "192.0.2.7")
    assert event.before == {
        "asks_max": 20, "rate_max": None, "ramp_s": 0, "challenge": "OFF", "gray_percent": 100, "coming_soon": False,
    }  # fmt: skip
    assert event.after == {
        "asks_max": None, "rate_max": 100, "ramp_s": 60, "challenge": "PRESSURE", "gray_percent": 5,
        "coming_soon": True,
    }  # fmt: skip


@pytest.mark.parametrize("status", ["VOIDED", "ENDED"])
def test_what_is_over_is_not_changed_any_more(status):
    activity = DraftFactory(status=status)
    for doing in (lambda: change(activity, gray_percent=5), lambda: replace(activity, ALLOW, 7)):
        with pytest.raises(ActivityRefused, match="not possible"):
            doing()
    activity.refresh_from_db()
    assert (activity.gray_percent, activity.version, listed(activity)) == (100, 1, set())
    assert AuditEvent.objects.count() == 0


def test_page_that_somebody_else_overtook_changes_nothing():
    activity = DraftFactory()
    change(activity, gray_percent=5)
    with pytest.raises(ActivityRefused, match="Somebody else"):
        access.activity_access_change(
            activity_id=activity.pk, values={"gray_percent": 9}, now=timezone.now(), expected_version=1
        )
    with pytest.raises(ActivityRefused, match="Somebody else"):
        replace(activity, ALLOW, 7, expected_version=1)
    activity.refresh_from_db()
    assert (activity.gray_percent, activity.version, listed(activity)) == (5, 2, set())
    assert AuditEvent.objects.count() == 1


def test_clone_has_the_access_of_its_source_but_not_its_lists():
    source = DraftFactory()
    change(source, rate_max=100, ramp_s=60, challenge="ALWAYS", audience="STAFF", gray_percent=5, coming_soon=True)
    replace(source, ALLOW, 7, 8)
    source.refresh_from_db()
    clone = drafts.activity_clone(activity_id=source.pk, now=timezone.now(), by=ANN)
    clone.refresh_from_db()
    assert [getattr(clone, name) for name in ACCESS_FIELDS] == [getattr(source, name) for name in ACCESS_FIELDS]
    assert (clone.listed_version, listed(clone), listed(source)) == (0, set(), {(7, "ALLOW"), (8, "ALLOW")})


# -- Lists -------------------------------------------------------------------------------------------------


def test_list_is_replaced_as_a_whole_and_the_audit_says_how_many_were_on_it():
    activity = DraftFactory()
    replace(activity, ALLOW, 1, 2, 3)
    replace(activity, DENY, 9, 2**63 - 1)
    replace(activity, ALLOW, 3, 4)
    replace(activity, DENY)
    activity.refresh_from_db()
    assert listed(activity) == {(3, "ALLOW"), (4, "ALLOW")}
    assert (activity.listed_version, activity.version) == (4, 5)
    told = AuditEvent.objects.order_by("id").values_list("action", "actor_name", "before", "after")
    assert list(told) == [
        ("listed", "ann", {"let_in": 0, "listed_version": 0}, {"let_in": 3, "listed_version": 1}),
        ("listed", "ann", {"kept_out": 0, "listed_version": 1}, {"kept_out": 2, "listed_version": 2}),
        ("listed", "ann", {"let_in": 3, "listed_version": 2}, {"let_in": 2, "listed_version": 3}),
        ("listed", "ann", {"kept_out": 2, "listed_version": 3}, {"kept_out": 0, "listed_version": 4}),
    ]


def test_nobody_is_on_both_lists_and_one_activitys_lists_are_no_others():
    first, second = DraftFactory(), DraftFactory()
    replace(first, ALLOW, 7, 8)
    before = (row(first), listed(first), AuditEvent.objects.count())
    with pytest.raises(ActivityRefused, match="2 of them are on the other list, for example shopper 7"):
        replace(first, DENY, 9, 8, 7)
    assert (row(first), listed(first), AuditEvent.objects.count()) == before
    replace(second, DENY, 7)
    assert (listed(first), listed(second)) == ({(7, "ALLOW"), (8, "ALLOW")}, {(7, "DENY")})


def test_list_that_is_too_long_is_refused_before_anything_is_read():
    activity = DraftFactory()
    with pytest.raises(ActivityRefused, match="at most 100000"):
        replace(activity, ALLOW, *range(1, LISTED_MAX + 2))
    assert (Listed.objects.count(), AuditEvent.objects.count()) == (0, 0)


def test_list_of_100000_is_replaced_published_and_given_out_a_thousand_at_a_time(monkeypatch):
    """What a file of the greatest length costs: in the ledger, in Redis, and as a download."""
    activity = offer()
    user_ids = random.Random(7).sample(range(1, 2**63), LISTED_MAX)
    thousands, round_trips, client = LISTED_MAX // 1000, [], desk.client
    monkeypatch.setattr(desk, "client", lambda: round_trips.append(1) or client())
    with CaptureQueriesContext(connection) as asked:
        replace(activity, ALLOW, *user_ids)
    assert thousands <= len(asked) < thousands + 20
    assert thousands <= len(round_trips) < thousands + 10
    change(activity, gray_percent=0)
    assert answers(activity, user_ids[0], user_ids[-1], 7) == ["won", "won", "NOT_ELIGIBLE"]
    with CaptureQueriesContext(connection) as asked:
        replace(activity, ALLOW, *user_ids[:-1], 7)
    assert len(asked) < 20, "only what differs is written"
    assert answers(activity, user_ids[1], user_ids[-2], 7) == ["won"] * 3
    activity.refresh_from_db()
    export = listed_export(verdict=ALLOW, activity=activity, in_full=True, now=timezone.now())
    text = b"".join(csv_stream([export.header], export.rows))
    assert listed_file_read(text).user_ids == sorted([*user_ids[:-1], 7])
    assert export.expected == LISTED_MAX


# -- Files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"7\n9223372036854775807\n",
        b"user_id\r\n7\r\n9223372036854775807",
        "用户 id\n7\n9223372036854775807".encode(),
        "\ufeff用户 ID\n\n 7 \n\n9223372036854775807\n\n".encode(),
        b'"User_ID",\n"7",\n"9223372036854775807",\n',
    ],
)
def test_file_is_one_column_with_or_without_heading_byte_order_mark_and_blank_lines(content):
    file = listed_file_read(content)
    assert (file.user_ids, file.mistakes) == ([7, 2**63 - 1], [])


def test_each_line_that_is_no_shopper_is_named_with_its_number():
    content = b"user_id\n7\n0\n-1\n1.5\n9223372036854775808\n007\n7\nuser_id\n8,9\n5\n\n=1+1\n8\n"
    no_id = "No id: a whole number from 1 to 2^63-1."
    file = listed_file_read(content, others={5})
    assert file.user_ids == [7, 8]
    assert file.mistakes == [
        Mistake(3, "0", no_id),
        Mistake(4, "-1", no_id),
        Mistake(5, "1.5", no_id),
        Mistake(6, "9223372036854775808", no_id),
        Mistake(7, "007", no_id),
        Mistake(8, "7", "Twice in the file, first in line 2."),
        Mistake(9, "user_id", no_id),
        Mistake(10, "8, 9", "More than one column."),
        Mistake(11, "5", "On the other list."),
        Mistake(13, "=1+1", no_id),
    ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "nobody in the file"),
        (b"user_id\n\n", "nobody in the file"),
        ("用户".encode("gb18030"), "not UTF-8"),
        (b'"7', "no CSV"),
        (b"1\n" * (LISTED_MAX + 1), "more rows than a list takes"),
        (b"1" * (FILE_MAX_BYTES + 1), "larger than 3 MB"),
    ],
)
def test_file_that_is_no_list_is_refused_as_a_whole(content, says):
    with pytest.raises(ValidationError, match=says):
        listed_file_read(content)


def test_longest_list_in_quotation_marks_is_taken():
    content = "user_id\r\n" + "".join(f'"{number}"\r\n' for number in range(2**63 - LISTED_MAX, 2**63))
    file = listed_file_read(content.encode())
    assert (len(file.user_ids), file.mistakes) == (LISTED_MAX, [])


# -- In Redis ----------------------------------------------------------------------------------------------


def test_percent_lists_and_staff_decide_the_next_press_on_a_published_activity():
    activity = offer(stock_total=100)
    worker = get_user_model().objects.create_user("worker", is_staff=True)
    assert answers(activity, 1) == ["won"]
    change(activity, gray_percent=0)
    assert answers(activity, 2, 3) == ["NOT_ELIGIBLE", "NOT_ELIGIBLE"]
    replace(activity, ALLOW, 2)
    assert answers(activity, 2, 3) == ["won", "NOT_ELIGIBLE"]
    change(activity, gray_percent=100)
    replace(activity, DENY, 4)
    assert answers(activity, 3, 4) == ["won", "NOT_ELIGIBLE"]
    change(activity, audience="STAFF")
    replace(activity, ALLOW, 5)
    assert answers(activity, 5, 6, worker.pk) == ["NOT_ELIGIBLE", "NOT_ELIGIBLE", "won"]
    change(activity, audience="EVERYBODY")
    replace(activity, DENY)
    assert answers(activity, 4, 6) == ["won", "won"]
    assert answers(activity, 1, 2) == ["won", "won"], "who has won is told so again, whatever has changed"


def test_gray_release_lets_the_same_shoppers_in_and_a_higher_number_adds_some():
    activity, shoppers = offer(stock_total=1000), range(1, 201)
    change(activity, gray_percent=20, asks_max=None)
    first = {user_id for user_id, told in zip(shoppers, answers(activity, *shoppers), strict=True) if told == "won"}
    change(activity, gray_percent=60)
    more = {user_id for user_id, told in zip(shoppers, answers(activity, *shoppers), strict=True) if told == "won"}
    assert 20 < len(first) < 60
    assert 90 < len(more) < 150
    assert first < more


def test_rate_of_the_activity_refuses_the_surplus_at_once():
    activity = offer(stock_total=100)
    change(activity, rate_max=5)
    told = answers(activity, *range(1, 11))
    assert (told[0], told.count("won"), set(told)) == ("won", 1, {"won", "TOO_MANY_REQUESTS"})


def test_list_that_redis_lost_refuses_everybody_until_it_is_preheated(raw):
    activity = offer()
    change(activity, gray_percent=0)
    replace(activity, ALLOW, 7)
    raw.delete(listed_key(activity.pk))
    assert answers(activity, 7, 8) == ["NOT_READY", "NOT_READY"]
    shards_declare_loaded()  # the next second's comparison
    assert answers(activity, 7, 8) == ["won", "NOT_ELIGIBLE"]


def test_emptied_redis_gets_the_lists_back_by_the_rebuild(raw):
    activity = offer()
    replace(activity, DENY, 8)
    raw.flushall()
    assert answers(activity, 7, 8) == ["NOT_READY", "NOT_READY"]
    shards_declare_loaded()
    assert answers(activity, 7, 8) == ["won", "NOT_ELIGIBLE"]
    assert raw.hgetall(listed_key(activity.pk)) == {"_": f"{activity.uid}:1", "8": "deny"}


def test_change_while_redis_is_away_is_kept_and_brought_by_the_comparison(settings):
    activity, url = offer(), settings.REDIS_URL
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    change(activity, gray_percent=0)
    replace(activity, ALLOW, 7)
    settings.REDIS_URL = url
    assert answers(activity, 8) == ["won"], "Redis has not heard of it yet"
    shards_declare_loaded()
    assert answers(activity, 7, 9) == ["won", "NOT_ELIGIBLE"]
