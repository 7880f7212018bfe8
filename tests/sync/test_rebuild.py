"""Rebuild: stock and holders from everything that counts as claimed, and nothing sold meanwhile."""

import pytest
from django.db import OperationalError

from activities.models import Activity, Coupon
from seize import desk, queue, store
from seize.keys import seize_keys, shard_of
from seize.outcomes import Refusal, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync import rebuild
from sync.models import DeadLetter
from sync.rebuild import RebuildLost, activity_rebuild
from tests.factories import DraftFactory, drain, offer

pytestmark = pytest.mark.django_db(transaction=True)


def press(activity: Activity, user_id: int = 7, seq: int = 0):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=seq), user_id=user_id)


def left(activity: Activity) -> int | None:
    return desk.stock_left([activity.pk]).get(activity.pk)


def test_first_load_is_a_rebuild_with_nothing_claimed(raw):
    activity = offer(stock_total=10)
    assert raw.hgetall(seize_keys(activity.pk).holders) == {"_": "1"}
    assert (left(activity), activity.epoch) == (10, 1)


def test_rebuild_counts_queue_letters_and_rows_once_each():
    """Rows alone oversold 13 of 10."""
    activity = offer(stock_total=10, per_user_limit=2)
    for user_id in (1, 2, 3):
        press(activity, user_id)
    drain(activity)
    press(activity, 3, 2)
    press(activity, 4)
    entry = queue.Entry(f"{activity.pk}:5:1", f"1700000000000:{activity.uid}")
    DeadLetter.of(entry, reason="NO_ROOM").save()
    result = activity_rebuild(activity_id=activity.pk)
    assert result == {"state": "rebuilt", "claims": 6, "holders": 5}
    assert left(activity) == 4
    assert press(activity, 3, 2).replay is True
    assert press(activity, 5, 1).replay is True


def test_after_flushall_rows_come_back_and_nobody_gets_a_second_coupon(raw):
    activity = offer(stock_total=3)
    press(activity, 1)
    press(activity, 2)
    drain(activity)
    raw.flushall()
    assert press(activity, 9).refusal is Refusal.NOT_READY
    activity_rebuild(activity_id=activity.pk)
    assert left(activity) == 1
    assert press(activity, 1).refusal is Refusal.LIMIT_REACHED
    assert isinstance(press(activity, 9), Won)
    assert press(activity, 10).refusal is Refusal.SOLD_OUT
    drain(activity)
    assert Coupon.objects.count() == 3


def test_discarded_claim_frees_the_coupon_and_its_seq_is_never_given_again():
    activity = offer(stock_total=2, per_user_limit=3)
    entry = queue.Entry(f"{activity.pk}:7:1", f"1700000000000:{activity.uid}")
    letter = DeadLetter.of(entry, reason="NO_ROOM")
    letter.state = DeadLetter.State.DISCARDED
    letter.save()
    assert activity_rebuild(activity_id=activity.pk) == {"state": "rebuilt", "claims": 0, "holders": 1}
    assert left(activity) == 2
    won = press(activity, 7)
    assert won.seq == 2


def test_discarded_claim_that_is_still_in_the_queue_does_not_count(raw):
    activity = offer(stock_total=2)
    press(activity, 7)
    [entry] = queue.queue_entries(shard=shard_of(activity.pk), activity_id=activity.pk)
    letter = DeadLetter.of(entry, reason="NO_ROOM")
    letter.state = DeadLetter.State.DISCARDED
    letter.save()
    assert activity_rebuild(activity_id=activity.pk)["claims"] == 0


def test_claims_of_an_earlier_activity_with_this_id_do_not_count(raw):
    activity = offer(stock_total=2)
    raw.hset(seize_keys(activity.pk).queue, f"{activity.pk}:7:1", "1700000000000:earl1er")
    assert activity_rebuild(activity_id=activity.pk)["claims"] == 0


def test_more_claims_than_stock_give_a_negative_stock_that_sells_nothing():
    activity = offer(stock_total=2)
    for user_id in range(1, 5):
        entry = queue.Entry(f"{activity.pk}:{user_id}:1", f"1700000000000:{activity.uid}")
        DeadLetter.of(entry, reason="NO_ROOM").save()
    activity_rebuild(activity_id=activity.pk)
    assert left(activity) == -2
    assert press(activity, 9).refusal is Refusal.SOLD_OUT


def test_second_owner_meets_the_fence():
    activity = offer()
    assert desk.rebuild_begin(activity_id=activity.pk, token="somebody", lease_ms=3_600_000) == 0
    assert activity_rebuild(activity_id=activity.pk) == {"state": "fenced"}
    activity.refresh_from_db()
    assert activity.epoch == 1


@pytest.mark.parametrize("step", ["_epoch_raise", "_claims_collect", "_holders_write"])
def test_rebuild_that_loses_redis_at_any_step_leaves_the_desk_closed_and_can_be_repeated(monkeypatch, raw, step):
    activity = offer(stock_total=3)
    press(activity, 1)
    drain(activity)
    real = getattr(rebuild, step)

    def and_then_redis_is_emptied(*args: object, **kwargs: object):
        result = real(*args, **kwargs)
        raw.flushall()
        return result

    with monkeypatch.context() as patched:
        patched.setattr(rebuild, step, and_then_redis_is_emptied)
        with pytest.raises(RebuildLost):
            activity_rebuild(activity_id=activity.pk)
    assert press(activity, 9).refusal is Refusal.NOT_READY
    assert activity_rebuild(activity_id=activity.pk)["claims"] == 1
    assert left(activity) == 2


def test_rebuild_that_fails_gives_its_lease_up_so_that_the_next_begins_at_once(monkeypatch):
    activity = offer()

    def broken(*_arguments: object, **_more: object) -> None:
        raise OperationalError(2006, "gone")

    with monkeypatch.context() as patched:
        patched.setattr(rebuild, "_claims_collect", broken)
        with pytest.raises(OperationalError):
            activity_rebuild(activity_id=activity.pk)
    assert press(activity).refusal is Refusal.NOT_READY
    until = store.time_us() + 2_000
    while store.time_us() < until:
        pass
    assert activity_rebuild(activity_id=activity.pk)["state"] == "rebuilt"


def test_pause_committed_during_a_rebuild_holds_when_it_ends(monkeypatch):
    from django.utils import timezone

    from activities import services

    activity = offer()
    real = rebuild._holders_write

    def and_staff_pauses(*args: object, **kwargs: object) -> None:
        real(*args, **kwargs)
        services.activity_pause(activity_id=activity.pk, now=timezone.now())

    monkeypatch.setattr(rebuild, "_holders_write", and_staff_pauses)
    activity_rebuild(activity_id=activity.pk)
    assert press(activity).refusal is Refusal.PAUSED


def test_drafts_and_unknown_ids_are_not_loaded(raw):
    draft = DraftFactory()
    assert activity_rebuild(activity_id=draft.pk) == {"state": "gone"}
    assert activity_rebuild(activity_id=10**9) == {"state": "gone"}
    assert raw.keys("COUPON:*") == []


def test_holders_are_written_in_chunks_that_together_are_complete(monkeypatch, raw):
    monkeypatch.setattr(rebuild, "CHUNK", 3)
    activity = offer(stock_total=50)
    for user_id in range(1, 21):
        press(activity, user_id)
    drain(activity)
    activity_rebuild(activity_id=activity.pk)
    holders = raw.hgetall(seize_keys(activity.pk).holders)
    assert holders == {"_": "2", **{str(user_id): "1" for user_id in range(1, 21)}}
