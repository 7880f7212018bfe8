"""The comparison mends whatever differs, by itself, and declares a shard loaded only when it is."""

from datetime import timedelta

import pytest
from django.utils import timezone

from activities import services
from activities.models import Activity
from seize import desk
from seize.keys import LIST_KEY, SHARDS, seize_keys, shard_of
from seize.outcomes import Refusal, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync import comparison
from sync.comparison import ledger_compare, preheat_all
from sync.rebuild import activity_rebuild
from tests.factories import DraftFactory, approved, drain, offer, shards_declare_loaded

pytestmark = pytest.mark.django_db(transaction=True)


def press(activity_id: int, user_id: int = 7):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity_id, seq=1), user_id=user_id)


def compare() -> comparison.ComparisonResult:
    return ledger_compare(rebuild=lambda activity_id: activity_rebuild(activity_id=activity_id))


def test_healthy_redis_needs_nothing():
    offer()
    shards_declare_loaded()
    assert compare().as_dict() == {}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw, keys, activity: raw.hset(keys.rules, "gen", "0" * 40),
        lambda raw, keys, activity: raw.hset(keys.rules, "uid", "other"),
        lambda raw, keys, activity: raw.hset(keys.rules, "epoch", "99"),
        lambda raw, keys, activity: raw.hset(keys.holders, "_", "99"),
        lambda raw, keys, activity: raw.delete(keys.holders),
        lambda raw, keys, activity: raw.hdel(keys.stock, str(activity.pk)),
        lambda raw, keys, activity: raw.delete(keys.rules),
        lambda raw, keys, activity: desk.rebuild_begin(activity_id=activity.pk, token="dead", lease_ms=1),
        lambda raw, keys, activity: raw.flushall(),
        lambda raw, keys, activity: Activity.objects.filter(pk=activity.pk).update(epoch=9),
    ],
    ids=["gen", "uid", "epoch", "holders' epoch", "holders", "stock", "rules", "dead fence", "flushall", "row"],
)
def test_anything_missing_or_different_is_rebuilt_and_reopens_by_itself(raw, spoil):
    activity = offer(stock_total=5)
    assert isinstance(press(activity.pk, 1), Won)
    drain(activity)
    shards_declare_loaded()
    spoil(raw, seize_keys(activity.pk), activity)
    # A dead owner's lease of a millisecond must be over first.
    found = compare()
    while not found.rebuild:
        found = compare()
    assert found.rebuild == [activity.pk]
    assert desk.stock_left([activity.pk]) == {activity.pk: 4}
    assert isinstance(press(activity.pk, 2), Won)
    shards_declare_loaded()
    assert compare().as_dict() == {}


def test_version_that_is_behind_is_preheated_only():
    """A void lost between its commit and its write to Redis once sold on."""
    activity = offer()
    shards_declare_loaded()
    Activity.objects.filter(pk=activity.pk).update(status="VOIDED", version=activity.version + 1)
    assert isinstance(press(activity.pk, 1), Won)
    found = compare()
    assert (found.preheated, found.rebuild) == ([activity.pk], [])
    assert press(activity.pk, 2).refusal is Refusal.VOIDED


def test_live_fence_is_left_alone_and_its_shard_not_declared():
    activity = offer()
    desk.rebuild_begin(activity_id=activity.pk, token="alive", lease_ms=3_600_000)
    found = compare()
    assert (found.fenced, found.rebuild) == ([activity.pk], [])
    assert shard_of(activity.pk) not in found.loaded
    assert len(found.loaded) == SHARDS - 1


def test_unknown_ids_are_404_only_after_everything_of_their_shard_is_there(raw):
    activity = offer()
    unknown = activity.pk + 10
    assert press(unknown).refusal is Refusal.NOT_READY
    shards_declare_loaded()
    assert press(unknown).refusal is Refusal.UNKNOWN_ACTIVITY
    raw.flushall()
    assert press(unknown).refusal is Refusal.NOT_READY
    shards_declare_loaded()
    assert press(unknown).refusal is Refusal.UNKNOWN_ACTIVITY


def test_flushall_just_before_the_stamp_leaves_the_shard_undeclared(raw, monkeypatch):
    offer()
    real = desk.shard_declare_loaded

    def emptied(**arguments: object) -> bool:
        raw.flushall()
        return real(**arguments)

    monkeypatch.setattr(desk, "shard_declare_loaded", emptied)
    assert compare().loaded == []


def test_l13_lost_publish_is_found_within_one_comparison(monkeypatch, api):
    """Redis was down when it was published: nothing was written, no hint was sent."""
    draft = approved()
    with monkeypatch.context() as patched:
        patched.setattr("activities.admission.activity_admit", lambda **_: None)
        services.activity_publish(activity_id=draft.pk, now=timezone.now())
    found = compare()
    assert found.rebuild == [draft.pk]
    assert found.list_written is True
    assert isinstance(press(draft.pk), Won)


def test_list_that_is_absent_is_written(raw):
    offer()
    shards_declare_loaded()
    raw.delete(LIST_KEY)
    assert compare().as_dict() == {"list_written": True}
    assert raw.exists(LIST_KEY) == 1


def test_many_activities_of_one_shard_are_inspected_in_chunks(monkeypatch):
    monkeypatch.setattr(comparison, "INSPECT_CHUNK", 2)
    activities = [offer(id=10 * number + 5) for number in range(1, 6)]
    shards_declare_loaded()
    assert compare().as_dict() == {}
    Activity.objects.filter(pk=activities[-1].pk).update(version=99)
    assert compare().preheated == [activities[-1].pk]


def test_s23_preheat_writes_rules_and_list_and_repeats_harmlessly(raw):
    activity = offer()
    Activity.objects.filter(pk=activity.pk).update(version=9, stock_total=12)
    first, second = preheat_all(), preheat_all()
    assert (first["applied"], second["current"]) == (1, 1)
    assert desk.stock_left([activity.pk]) == {activity.pk: 12}


def test_published_activity_that_redis_misses_is_never_called_unknown():
    """The web process died between commit and hint: the comparison withdraws "loaded" before the rebuild is done."""
    other = offer()
    shards_declare_loaded()
    draft = DraftFactory(id=other.pk + 10)
    Activity.objects.filter(pk=draft.pk).update(status="ACTIVE")
    assert press(draft.pk).refusal is Refusal.UNKNOWN_ACTIVITY
    found = ledger_compare(rebuild=lambda _activity_id: None)  # a message that nobody takes
    assert found.rebuild == [draft.pk]
    assert press(draft.pk).refusal is Refusal.NOT_READY


def test_l12_void_lost_before_the_list_was_written_is_shown_within_one_comparison(api):
    activity = offer()
    shards_declare_loaded()
    Activity.objects.filter(pk=activity.pk).update(status="VOIDED", version=9)
    assert api.get("/market/consumer/activity/list").json()["results"][0]["status"] == "ongoing"
    compare()
    assert api.get("/market/consumer/activity/list").json()["results"][0]["status"] == "voided"


def test_late_message_does_not_rebuild_a_healthy_activity():
    activity = offer()
    shards_declare_loaded()
    assert comparison.activity_mend(activity_id=activity.pk) == {"state": "current"}
    assert comparison.activity_mend(activity_id=10**9) == {"state": "gone"}
    activity.refresh_from_db()
    assert activity.epoch == 1


def test_old_file_with_holders_of_a_settled_activity_answers_ended_after_the_comparison(raw):
    now = timezone.now()
    activity = offer()
    press(activity.pk)
    drain(activity)
    Activity.objects.filter(pk=activity.pk).update(
        status="ENDED", starts_at=now - timedelta(days=9), ends_at=now - timedelta(days=8), settled_at=now
    )
    raw.hset(seize_keys(activity.pk).rules, mapping={"gen": "0" * 40, "ends_ms": "1"})
    assert press(activity.pk).refusal is Refusal.NOT_READY
    shards_declare_loaded()
    assert press(activity.pk).refusal is Refusal.ENDED
    assert raw.exists(seize_keys(activity.pk).holders) == 0
    assert activity_rebuild(activity_id=activity.pk) == {"state": "gone"}


def test_settled_activity_is_known_again_after_redis_was_emptied(raw):
    now = timezone.now()
    over = DraftFactory(
        status="ENDED", starts_at=now - timedelta(days=9), ends_at=now - timedelta(days=8), settled_at=now
    )
    raw.flushall()
    shards_declare_loaded()
    assert press(over.pk).refusal is Refusal.ENDED
    assert raw.exists(seize_keys(over.pk).holders) == 0


def test_healthy_activities_cost_one_query_however_many_they_are(django_assert_num_queries):
    for number in range(12):
        offer(id=11 + 10 * number)
    shards_declare_loaded()
    with django_assert_num_queries(1):
        assert compare().as_dict() == {}
