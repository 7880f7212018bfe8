"""preheat.lua, close.lua, the rebuild's scripts, leases and the list: fenced, versioned, repeatable."""

import time

import pytest

from seize import desk, queue, store
from seize.keys import LIST_KEY, seize_keys
from seize.outcomes import Refusal, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.seize.stage import ACTIVITY, UID, dumps, load, rules

pytestmark = pytest.mark.usefixtures("server")
KEYS = seize_keys(ACTIVITY)


def seize(user_id: int = 7, seq: int = 0):
    return coupon_seize(wanted=SeizeRequest(activity_id=ACTIVITY, seq=seq), user_id=user_id)


# -- preheat -------------------------------------------------------------------------------------


def test_l04_preheating_during_a_sale_never_touches_stock_or_holders(server):
    load()
    seize(user_id=1)
    before = dumps(server)
    assert [desk.preheat(rules()) for _minute in range(20)] == ["current"] * 20
    assert dumps(server) == before


def test_added_stock_arrives_as_a_difference_and_once(server):
    load(total=5)
    seize(user_id=1)
    more = rules(version=2, total=8)
    assert [desk.preheat(more), desk.preheat(more)] == ["applied", "current"]
    assert server.hget(KEYS.stock, "11") == "7"


def test_older_version_that_arrives_late_changes_nothing(server):
    load(version=1)
    desk.preheat(rules(version=3, state="paused"))
    assert desk.preheat(rules(version=2, state="open")) == "current"
    assert server.hget(KEYS.rules, "state") == "paused"


def test_total_that_shrank_is_not_believed(server):
    load(total=5)
    before = dumps(server)
    assert desk.preheat(rules(version=2, total=4)) == "rebuild"
    assert dumps(server) == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda server: server.delete(KEYS.rules),
        lambda server: server.hset(KEYS.rules, "uid", "other"),
        lambda server: server.hset(KEYS.rules, "gen", "0" * 40),
        lambda server: server.hset(KEYS.rules, "epoch", "9"),
        lambda server: server.hdel(KEYS.holders, "_"),
        lambda server: server.hdel(KEYS.stock, "11"),
    ],
    ids=["no rules", "other uid", "other gen", "other epoch", "no holders' epoch", "no stock"],
)
def test_preheat_of_something_doubtful_asks_for_a_rebuild_and_writes_nothing(server, spoil):
    load()
    spoil(server)
    before = dumps(server)
    assert desk.preheat(rules(version=2)) == "rebuild"
    assert dumps(server) == before


def test_preheat_keeps_holders_from_expiring(server):
    load()
    server.expire(KEYS.holders, 100)
    desk.preheat(rules(version=2))
    assert server.ttl(KEYS.holders) == -1


def test_settled_activity_keeps_only_its_small_answer(server):
    over = {"ends_ms": int(time.time() * 1000) - 1}
    assert desk.preheat(rules(settled=True, **over)) == "applied"
    assert desk.preheat(rules(settled=True, **over)) == "current"
    assert server.exists(KEYS.holders, KEYS.stock) == 0
    assert seize().refusal is Refusal.ENDED


# -- close ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "reason"), [("paused", Refusal.PAUSED), ("voided", Refusal.VOIDED)])
def test_closing_before_the_commit_stops_seizing_and_whatever_is_committed_is_newer(server, state, reason):
    load(version=4)
    assert desk.close(activity_id=ACTIVITY, uid=UID, state=state) is True
    assert seize().refusal is reason
    assert desk.preheat(rules(version=4)) == "applied"  # the commit failed: the row is as it was
    assert isinstance(seize(), Won)


def test_close_of_another_activity_with_this_id_does_nothing(server):
    load()
    before = dumps(server)
    assert desk.close(activity_id=ACTIVITY, uid="other", state="paused") is False
    assert dumps(server) == before


# -- rebuild -------------------------------------------------------------------------------------


def test_fence_has_one_owner_until_its_lease_is_over(server):
    load()
    assert desk.rebuild_begin(activity_id=ACTIVITY, token="a", lease_ms=3_600_000) == 0
    assert 0 < desk.rebuild_begin(activity_id=ACTIVITY, token="b", lease_ms=150) <= 3_600_000
    assert seize().refusal is Refusal.NOT_READY
    load(activity_id=21)
    assert desk.rebuild_begin(activity_id=21, token="a", lease_ms=50) == 0
    while desk.rebuild_begin(activity_id=21, token="b", lease_ms=3_600_000):
        pass
    assert desk.rebuild_begin(activity_id=21, token="a", lease_ms=50) > 0


def test_fence_of_a_former_process_does_not_count(server):
    load()
    desk.rebuild_begin(activity_id=ACTIVITY, token="a", lease_ms=60_000)
    server.hset(KEYS.rules, "fence_gen", "0" * 40)
    assert desk.rebuild_begin(activity_id=ACTIVITY, token="b", lease_ms=60_000) == 0


def test_stale_owner_writes_nothing_after_another_took_over(server):
    """A late chunk of a stale owner once let three shoppers win one seq twice."""
    load()
    desk.rebuild_begin(activity_id=ACTIVITY, token="stale", lease_ms=1)
    while desk.rebuild_begin(activity_id=ACTIVITY, token="new", lease_ms=60_000):
        pass
    before = dumps(server)
    assert not desk.rebuild_holders(activity_id=ACTIVITY, token="stale", lease_ms=1, reset=True, holders={8: 1})
    assert not desk.rebuild_finish(rules=rules(), token="stale", claims=0)
    assert dumps(server) == before


def test_rebuild_begun_under_a_former_process_cannot_finish(server):
    load()
    desk.rebuild_begin(activity_id=ACTIVITY, token="a", lease_ms=60_000)
    server.hset(KEYS.rules, "fence_gen", "0" * 40)
    before = dumps(server)
    assert not desk.rebuild_holders(activity_id=ACTIVITY, token="a", lease_ms=1, reset=True, holders={8: 1})
    assert not desk.rebuild_finish(rules=rules(), token="a", claims=0)
    assert dumps(server) == before


def test_rebuild_replaces_holders_and_computes_stock_from_claims_even_below_zero(server):
    load(total=2)
    seize(user_id=1)
    desk.rebuild_begin(activity_id=ACTIVITY, token="a", lease_ms=60_000)
    assert desk.rebuild_holders(activity_id=ACTIVITY, token="a", lease_ms=60_000, reset=True, holders={5: 1, 6: 2})
    assert desk.rebuild_holders(activity_id=ACTIVITY, token="a", lease_ms=60_000, reset=False, holders={9: 1})
    assert desk.rebuild_finish(rules=rules(epoch=2, total=2), token="a", claims=4)
    assert server.hgetall(KEYS.holders) == {"_": "2", "5": "1", "6": "2", "9": "1"}
    assert server.hget(KEYS.stock, "11") == "-2"
    assert seize(user_id=1).refusal is Refusal.SOLD_OUT
    assert seize(user_id=5, seq=1).replay is True


def test_rules_that_became_newer_during_a_rebuild_stay(server):
    load(version=1, total=5)
    desk.rebuild_begin(activity_id=ACTIVITY, token="a", lease_ms=60_000)
    assert desk.preheat(rules(version=2, state="paused", total=9)) == "fenced"
    assert desk.rebuild_finish(rules=rules(version=1, epoch=2, total=5), token="a", claims=1)
    assert server.hget(KEYS.stock, "11") == "8"
    assert seize().refusal is Refusal.PAUSED


# -- drain ---------------------------------------------------------------------------------------


def test_drain_check_tells_the_epoch_and_which_claims_still_stand(server):
    load(epoch=3)
    server.hset(KEYS.queue, mapping={"11:1:1": "5:u", "11:2:1": "6:u"})
    entries = [queue.Entry("11:1:1", "5:u"), queue.Entry("11:2:1", "7:u"), queue.Entry("11:3:1", "5:u")]
    assert queue.drain_check(activity_id=ACTIVITY, entries=entries) == ("3", [True, False, False])
    server.delete(KEYS.rules)
    assert queue.drain_check(activity_id=ACTIVITY, entries=entries[:1]) == ("", [True])


def test_queue_delete_spares_a_claim_whose_value_changed(server):
    server.hset(KEYS.queue, mapping={"11:1:1": "5:u", "11:2:1": "6:u"})
    entries = [queue.Entry("11:1:1", "5:u"), queue.Entry("11:2:1", "7:u"), queue.Entry("11:3:1", "5:u")]
    assert queue.queue_delete(shard=1, entries=entries) == 1
    assert server.hgetall(KEYS.queue) == {"11:2:1": "6:u"}


# -- shards, list, leases --------------------------------------------------------------------------


def test_shard_is_not_declared_loaded_when_redis_was_emptied_meanwhile(server):
    desk.shard_token_write(shard=1, token="t")
    server.flushall()
    assert desk.shard_declare_loaded(shard=1, token="t") is False
    assert desk.shard_inspect(shard=1, activity_ids=[]).loaded is False


def test_shard_inspect_tells_everything_of_an_activity_and_of_one_that_is_missing(server):
    load(epoch=3, version=2)
    state = desk.shard_inspect(shard=1, activity_ids=[11, 21])
    there = state.activities[11]
    assert (there.uid, there.epoch, there.version, there.holders_epoch, there.stock) == (UID, "3", "2", "3", "5")
    assert there.gen == state.gen == server.info("replication")["master_replid"]
    assert set(state.activities[21]) == {""}


def test_list_of_a_reader_who_began_earlier_never_replaces_a_later_one(server):
    assert desk.list_write(stamp_us=200, text="[2]") is True
    assert desk.list_write(stamp_us=100, text="[1]") is False
    assert desk.list_read()[0] == "[2]"
    server.delete(LIST_KEY)
    assert desk.list_write(stamp_us=100, text="[1]") is True


def test_list_stamp_of_a_clock_that_was_set_back_is_not_believed(server):
    future_us = store.time_us() + 60_000_000
    assert desk.list_write(stamp_us=future_us, text="[1]") is True
    assert desk.list_write(stamp_us=store.time_us(), text="[2]") is True


def test_s10_lease_has_one_holder_and_is_released_only_by_its_holder(server):
    mine, yours = store.Lease("x", lease_ms=60_000), store.Lease("x", lease_ms=60_000)
    assert mine.acquire() is True
    assert yours.acquire() is False
    assert (yours.renew(), yours.release()) == (False, False)
    assert mine.renew() is True
    assert store.leases_held(["x", "y"]) == [True, False]
    assert mine.release() is True
    assert yours.acquire() is True


def test_lease_that_ran_out_is_free_for_the_next(server):
    mine, yours = store.Lease("x", lease_ms=30), store.Lease("x", lease_ms=60_000)
    mine.acquire()
    while not yours.acquire():
        pass
    assert (mine.renew(), mine.release()) == (False, False)


def test_lease_is_prolonged_only_when_a_fifth_of_its_time_has_gone_by(server):
    lease = store.Lease("x", lease_ms=60_000)
    assert lease.acquire()
    server.pexpire(lease.key, 1000)
    lease.keep()
    assert server.pttl(lease.key) <= 1000
    lease.taken_at -= 13
    lease.keep()
    assert server.pttl(lease.key) > 59_000
