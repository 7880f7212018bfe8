"""What staff may do and when; that Redis follows; that services write only their own fields."""

import json
from datetime import timedelta

import pytest
from django.db import OperationalError, transaction
from django.utils import timezone
from services import wait_until

from activities import admission, drafts, services
from activities.contention import ContentionLost
from activities.expiry import coupons_expire
from activities.models import STOCK_MAX, Activity, Coupon
from activities.statuses import CouponStatus
from activities.workflow import ActivityRefused, activity_may
from seize import desk
from seize.outcomes import Refusal, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.factories import DraftFactory, approved, drain, offer

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


def press(activity: Activity, user_id: int = 7):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=user_id)


CALLS = {
    "publish": lambda activity, now: services.activity_publish(activity_id=activity.pk, now=now),
    "pause": lambda activity, now: services.activity_pause(activity_id=activity.pk, now=now),
    "resume": lambda activity, now: services.activity_resume(activity_id=activity.pk, now=now),
    "add_stock": lambda activity, now: services.activity_add_stock(activity_id=activity.pk, amount=1, now=now),
    "change_end": lambda activity, now: services.activity_change_end(
        activity_id=activity.pk, ends_at=now + 3 * HOUR, now=now
    ),
    "void": lambda activity, now: services.activity_void(activity_id=activity.pk, reason="wrong price", now=now),
}
LEGAL = {
    "draft": set(),
    "submitted": set(),
    "approved": {"publish"},
    "upcoming": {"pause", "add_stock", "change_end", "void"},
    "ongoing": {"pause", "add_stock", "change_end", "void"},
    "paused": {"resume", "add_stock", "change_end", "void"},
    "ended": set(),
    "voided": set(),
}


def activity_that_is(effective: str) -> Activity:
    now = timezone.now()
    starts_at, ends_at = {
        "upcoming": (now + HOUR, now + 2 * HOUR),
        "ended": (now - 2 * HOUR, now - HOUR),
    }.get(effective, (now - HOUR, now + HOUR))
    stored = {
        "draft": "DRAFT",
        "submitted": "SUBMITTED",
        "approved": "APPROVED",
        "paused": "PAUSED",
        "voided": "VOIDED",
    }.get(effective, "ACTIVE")
    return DraftFactory(starts_at=starts_at, ends_at=ends_at, status=stored)


@pytest.mark.parametrize("effective", LEGAL)
@pytest.mark.parametrize("change", CALLS)
def test_l05_only_legal_changes_pass_and_a_refused_one_changes_nothing(effective, change):
    activity = activity_that_is(effective)
    before = Activity.objects.filter(pk=activity.pk).values().get()
    now = timezone.now()
    legal = change in LEGAL[effective]
    assert activity_may(activity=activity, change=change, now=now) is legal
    if legal:
        assert CALLS[change](activity, now).version == before["version"] + 1
    else:
        with pytest.raises(ActivityRefused) as refused:
            CALLS[change](activity, now)
        assert str(refused.value)
        assert Activity.objects.filter(pk=activity.pk).values().get() == before


def test_l13_published_activity_is_in_the_list_at_once(api):
    draft = approved(name="Brand new")
    services.activity_publish(activity_id=draft.pk, now=timezone.now())
    [listed] = api.get("/market/consumer/activity/list").json()["results"]
    assert (listed["id"], listed["name"], listed["status"]) == (str(draft.pk), "Brand new", "ongoing")


def test_publishing_sends_a_hint_for_the_first_load_and_unknown_is_not_said_meanwhile(broker):
    other = offer()
    desk.shard_token_write(shard=other.pk % 10, token="t")
    assert desk.shard_declare_loaded(shard=other.pk % 10, token="t")
    draft = approved(id=other.pk + 10)
    services.activity_publish(activity_id=draft.pk, now=timezone.now())
    assert press(draft).refusal is Refusal.NOT_READY
    newest = json.loads(broker.lindex("celery", 0))
    assert newest["headers"]["task"] == "sync.rebuild_activity"
    assert newest["headers"]["kwargsrepr"] == f"{{'activity_id': {draft.pk}}}"


def test_pause_and_resume_act_at_once():
    activity = offer()
    services.activity_pause(activity_id=activity.pk, now=timezone.now())
    assert press(activity).refusal is Refusal.PAUSED
    services.activity_resume(activity_id=activity.pk, now=timezone.now())
    assert isinstance(press(activity), Won)


def test_added_stock_can_be_seized_and_total_has_a_ceiling():
    activity = offer(stock_total=1)
    press(activity, 1)
    assert press(activity, 2).refusal is Refusal.SOLD_OUT
    services.activity_add_stock(activity_id=activity.pk, amount=2, now=timezone.now())
    assert isinstance(press(activity, 2), Won)
    assert desk.stock_left([activity.pk]) == {activity.pk: 1}
    for amount in (0, -1, STOCK_MAX):
        with pytest.raises(ActivityRefused):
            services.activity_add_stock(activity_id=activity.pk, amount=amount, now=timezone.now())
    activity.refresh_from_db()
    assert activity.stock_total == 3


def test_end_moves_later_and_earlier_but_never_into_the_past_or_beyond_validity():
    now = timezone.now()
    activity = offer(valid_days=None, valid_until=now + 5 * HOUR)
    for ends_at in (now, now - HOUR, activity.starts_at, now + 6 * HOUR):
        with pytest.raises(ActivityRefused):
            services.activity_change_end(activity_id=activity.pk, ends_at=ends_at, now=now)
    services.activity_change_end(activity_id=activity.pk, ends_at=now + 5 * HOUR, now=now)
    services.activity_change_end(activity_id=activity.pk, ends_at=now + 4 * HOUR, now=now)
    assert isinstance(press(activity, 1), Won)
    services.activity_change_end(activity_id=activity.pk, ends_at=timezone.now(), now=now)  # it comes at once
    activity.refresh_from_db()
    ends_ms = admission.unix_ms(activity.ends_at)
    wait_until(lambda: press(activity, 1).now_ms >= ends_ms, what="the end")
    assert press(activity, 2).refusal is Refusal.ENDED


def test_l12_void_closes_at_once_and_coupons_are_void_before_any_job_ran(shopper_api):
    activity = offer(stock_total=60)
    for user_id in range(1, 11):
        press(activity, user_id)
    drain(activity)
    services.activity_void(activity_id=activity.pk, reason="wrong price", now=timezone.now())
    assert press(activity, 99).refusal is Refusal.VOIDED
    [coupon] = shopper_api(1).get("/market/consumer/coupon/my").json()["results"]
    assert coupon["status"] == "voided"
    assert coupons_expire(now=timezone.now()) == {"expired": 0, "voided": 10}
    assert set(Coupon.objects.values_list("status", flat=True)) == {CouponStatus.VOIDED}
    activity.refresh_from_db()
    assert activity.void_reason == "wrong price"


def test_void_without_a_reason_is_refused():
    activity = offer()
    with pytest.raises(ActivityRefused):
        services.activity_void(activity_id=activity.pk, reason="  ", now=timezone.now())
    assert isinstance(press(activity), Won)


def test_pause_is_effective_before_its_commit_and_undone_when_the_commit_fails():
    activity = offer()
    with pytest.raises(RuntimeError), transaction.atomic():  # noqa: PT012 - what happens inside is the test
        services.activity_pause(activity_id=activity.pk, now=timezone.now())
        assert press(activity, 1).refusal is Refusal.PAUSED
        raise RuntimeError
    activity.refresh_from_db()
    assert admission.activity_admit(activity_id=activity.pk) == "applied"
    assert isinstance(press(activity, 1), Won)


@pytest.mark.parametrize("change", ["pause", "void", "add_stock"])
def test_p19_row_that_stays_locked_is_tried_again_and_then_said_so(monkeypatch, change):
    activity = offer()
    tries: list[int] = []

    def locked(*_arguments: object, **_named: object) -> None:
        tries.append(1)
        raise OperationalError(1205, "Lock wait timeout exceeded")

    with monkeypatch.context() as patched:
        patched.setattr(services, "activity_changing", locked)
        with pytest.raises(ContentionLost):
            CALLS[change](activity, timezone.now())
    assert len(tries) == 4
    CALLS[change](activity, timezone.now())


def test_draft_that_was_published_meanwhile_is_not_deleted():
    draft = approved()
    services.activity_publish(activity_id=draft.pk, now=timezone.now())
    with pytest.raises(ActivityRefused):
        drafts.activity_draft_delete(now=timezone.now(), activity_id=draft.pk)
    assert Activity.objects.filter(pk=draft.pk).exists()


@pytest.mark.parametrize("change", ["publish", "pause", "void"])
def test_staff_can_act_while_redis_is_down_and_the_row_says_so(settings, change):
    activity = approved() if change == "publish" else offer()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    CALLS[change](activity, timezone.now())
    activity.refresh_from_db()
    assert activity.status == {"publish": "ACTIVE", "pause": "PAUSED", "void": "VOIDED"}[change]


def test_l05_services_write_their_own_fields_only():
    """A stale object with issued = 0 must not reset what the drain wrote."""
    activity = offer(stock_total=10)
    Activity.objects.filter(pk=activity.pk).update(issued=4)
    services.activity_add_stock(activity_id=activity.pk, amount=1, now=timezone.now())
    services.activity_pause(activity_id=activity.pk, now=timezone.now())
    activity.refresh_from_db()
    assert activity.issued == 4


def test_draft_is_saved_only_as_it_was_read():
    draft = DraftFactory()
    mine, yours = Activity.objects.get(pk=draft.pk), Activity.objects.get(pk=draft.pk)
    mine.name = "Mine"
    drafts.activity_draft_save(now=timezone.now(), activity=mine)
    yours.name = "Yours"
    with pytest.raises(ActivityRefused):
        drafts.activity_draft_save(now=timezone.now(), activity=yours)
    drafts.activity_submit(activity_id=draft.pk, now=timezone.now())
    mine.name = "Too late"
    with pytest.raises(ActivityRefused):
        drafts.activity_draft_save(now=timezone.now(), activity=mine)
    draft.refresh_from_db()
    assert draft.name == "Mine"


def test_s22_stored_statuses_follow_the_clock():
    now = timezone.now()
    started = DraftFactory(status="PENDING")
    waiting = DraftFactory(status="PENDING", starts_at=now + HOUR, ends_at=now + 2 * HOUR)
    over = [DraftFactory(status=s, starts_at=now - 2 * HOUR, ends_at=now) for s in ("PENDING", "ACTIVE", "PAUSED")]
    voided = DraftFactory(status="VOIDED", starts_at=now - 2 * HOUR, ends_at=now)
    assert services.statuses_refresh(now=now) == {"ended": 3, "started": 1}
    assert services.statuses_refresh(now=now) == {"ended": 0, "started": 0}
    stored = dict(Activity.objects.values_list("id", "status"))
    assert stored == {started.pk: "ACTIVE", waiting.pk: "PENDING", voided.pk: "VOIDED"} | {a.pk: "ENDED" for a in over}
