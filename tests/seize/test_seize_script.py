"""seize.lua: who wins, who hears what, and that a refusal leaves every key as it was."""

import time

import pytest

from seize import desk, store
from seize.keys import seize_keys
from seize.outcomes import Refusal, Refused, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize, coupons_seize
from tests.seize.stage import ACTIVITY, UID, declare_loaded, dumps, load, rules

pytestmark = pytest.mark.usefixtures("server")
KEYS = seize_keys(ACTIVITY)


def seize(user_id: int = 7, seq: int = 0, activity_id: int = ACTIVITY):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity_id, seq=seq), user_id=user_id)


def refusal(outcome) -> Refusal:
    assert isinstance(outcome, Refused)
    return outcome.refusal


def test_winner_takes_one_of_the_stock_and_a_place_among_holders_and_in_the_queue(server):
    load()
    before_ms = int(time.time() * 1000)
    won = seize()
    assert isinstance(won, Won)
    assert (won.activity_id, won.seq, won.replay) == (ACTIVITY, 1, False)
    assert before_ms <= won.seized_ms <= time.time() * 1000
    assert won.now_ms == won.seized_ms
    assert server.hgetall(KEYS.stock) == {"11": "4"}
    assert server.hgetall(KEYS.holders) == {"_": "1", "7": "1"}
    assert server.hgetall(KEYS.queue) == {"11:7:1": f"{won.seized_ms}:{UID}"}


def test_l01_shopper_who_wins_three_activities_of_one_shard_gets_all_three(server):
    for activity_id in (11, 21, 31):
        load(activity_id=activity_id)
        assert isinstance(seize(activity_id=activity_id), Won)
    assert sorted(server.hkeys(KEYS.queue)) == ["11:7:1", "21:7:1", "31:7:1"]
    assert server.hgetall(KEYS.stock) == {"11": "4", "21": "4", "31": "4"}


@pytest.mark.parametrize(
    ("reason", "prepare"),
    [
        (Refusal.LIMIT_REACHED, lambda: (load(), seize())),
        (Refusal.SOLD_OUT, lambda: (load(total=1), seize(user_id=8))),
        (Refusal.NOT_STARTED, lambda: load(starts_ms=int(time.time() * 1000) + 3_600_000)),
        (Refusal.ENDED, lambda: load(ends_ms=int(time.time() * 1000) - 1)),
        (Refusal.PAUSED, lambda: load(state="paused")),
        (Refusal.VOIDED, lambda: load(state="voided")),
        (Refusal.UNKNOWN_ACTIVITY, declare_loaded),
        (Refusal.NOT_READY, lambda: None),
    ],
    ids=lambda value: value.name if isinstance(value, Refusal) else "",
)
def test_l02_every_refusal_leaves_every_key_byte_identical(server, reason, prepare):
    prepare()
    before = dumps(server)
    assert refusal(seize()) is reason
    assert refusal(seize()) is reason
    assert dumps(server) == before


def test_p05_one_shopper_pressing_500_times_on_stock_100_leaves_99(server):
    load(total=100)
    outcomes = [seize() for _press in range(500)]
    assert sum(isinstance(outcome, Won) for outcome in outcomes) == 1
    assert {refusal(outcome) for outcome in outcomes[1:]} == {Refusal.LIMIT_REACHED}
    assert server.hget(KEYS.stock, "11") == "99"
    assert server.hlen(KEYS.queue) == 1


@pytest.mark.parametrize("stock", [1, 5])
def test_p14_last_coupon_is_sold_and_not_one_more(server, stock):
    load(total=stock)
    outcomes = [seize(user_id=user_id) for user_id in range(1, stock + 3)]
    assert [isinstance(outcome, Won) for outcome in outcomes] == [True] * stock + [False, False]
    assert refusal(outcomes[-1]) is Refusal.SOLD_OUT
    assert server.hget(KEYS.stock, "11") == "0"


def test_p20_stock_zero_and_negative_stock_are_sold_out_not_open(server):
    load(total=1)
    for left in ("0", "-3"):
        server.hset(KEYS.stock, "11", left)
        assert refusal(seize()) is Refusal.SOLD_OUT
        assert server.hget(KEYS.stock, "11") == left


def test_limit_three_with_seq_replays_change_nothing_and_the_fourth_is_refused(server):
    load(per_user=3)
    first = [seize(seq=seq) for seq in (1, 2, 3)]
    assert [(won.seq, won.replay) for won in first] == [(1, False), (2, False), (3, False)]
    before = dumps(server)
    again = [seize(seq=seq) for seq in (3, 1, 2, 2)]
    assert [(won.seq, won.replay) for won in again] == [(3, True), (1, True), (2, True), (2, True)]
    assert again[1].seized_ms == first[0].seized_ms
    fourth = seize(seq=4)
    assert (refusal(fourth), fourth.held) == (Refusal.LIMIT_REACHED, 3)
    assert dumps(server) == before
    assert server.hget(KEYS.stock, "11") == "2"


def test_p15_limit_two_gives_two_without_seq_and_refuses_the_third(server):
    load(per_user=2)
    assert [seize().seq, seize().seq] == [1, 2]
    assert refusal(seize()) is Refusal.LIMIT_REACHED


def test_seq_that_skips_one_is_refused_with_what_is_held(server):
    load(per_user=3)
    outcome = seize(seq=2)
    assert (refusal(outcome), outcome.held) == (Refusal.LIMIT_REACHED, 0)


def test_replay_after_the_drain_is_settled_without_a_time(server):
    load()
    seize(seq=1)
    server.delete(KEYS.queue)
    again = seize(seq=1)
    assert (again.replay, again.seized_ms) == (True, 0)


def test_holder_hears_of_the_coupon_before_any_business_refusal(server):
    load()
    seize(seq=1)
    for state in ("paused", "voided"):
        server.hset(KEYS.rules, "state", state)
        assert seize(seq=1).replay is True
        assert refusal(seize()) is Refusal.LIMIT_REACHED
        assert refusal(seize(user_id=8)) is (Refusal.PAUSED if state == "paused" else Refusal.VOIDED)


def test_ended_activity_without_holders_answers_ended_even_when_its_rules_are_of_another_process(server):
    load(ends_ms=int(time.time() * 1000) - 1)
    server.delete(KEYS.holders)
    server.hset(KEYS.rules, "gen", "0" * 40)
    assert refusal(seize()) is Refusal.ENDED


@pytest.mark.parametrize(
    "spoil",
    [
        lambda server: server.hset(KEYS.rules, "fence", "somebody"),
        lambda server: server.hset(KEYS.rules, "gen", "0" * 40),
        lambda server: server.hset(KEYS.holders, "_", "2"),
        lambda server: server.hdel(KEYS.holders, "_"),
        lambda server: server.hdel(KEYS.stock, "11"),
        lambda server: server.hdel(KEYS.rules, "per_user"),
        lambda server: server.delete(KEYS.rules),
    ],
    ids=["fenced", "other gen", "other epoch", "no epoch", "no stock", "no limit", "no rules"],
)
def test_anything_doubtful_closes_the_desk(server, spoil):
    load()
    spoil(server)
    before = dumps(server)
    assert refusal(seize()) is Refusal.NOT_READY
    assert dumps(server) == before


def test_unknown_is_said_only_while_this_very_process_is_declared_loaded(server):
    declare_loaded()
    assert refusal(seize()) is Refusal.UNKNOWN_ACTIVITY
    server.hset(KEYS.marker, "loaded", "0" * 40)
    assert refusal(seize()) is Refusal.NOT_READY


def test_l14_first_and_last_millisecond_by_the_clock_of_redis(server):
    """The start is inclusive, the end exclusive, and no clock but the server's is asked."""
    all_seen: set[object] = set()
    user_id = 0
    while all_seen != {Refusal.NOT_STARTED, "won", Refusal.ENDED}:  # again, should the machine sleep through a phase
        now_ms = store.time_us() // 1000
        load(starts_ms=now_ms + 100, ends_ms=now_ms + 200, total=10_000)
        what: object = None
        while what is not Refusal.ENDED:
            user_id += 1
            outcome = seize(user_id=user_id)
            what = "won" if isinstance(outcome, Won) else outcome.refusal
            if outcome.now_ms < now_ms + 100:
                assert what is Refusal.NOT_STARTED
            elif outcome.now_ms < now_ms + 200:
                assert what == "won"
            else:
                assert what is Refusal.ENDED
            all_seen.add(what)


def test_p12_before_start_at_end_and_after_are_distinct_and_never_stick(server):
    now_ms = store.time_us() // 1000
    wanted = load(starts_ms=now_ms + 3_600_000)
    outcome = seize()
    assert (refusal(outcome), outcome.starts_ms) == (Refusal.NOT_STARTED, wanted.starts_ms)
    desk.preheat(rules(version=2, starts_ms=now_ms - 1))
    assert isinstance(seize(), Won)
    desk.preheat(rules(version=3, starts_ms=now_ms - 2, ends_ms=now_ms - 1))
    assert refusal(seize(user_id=8)) is Refusal.ENDED


def test_ids_of_19_digits_stay_exact(server):
    activity_id, user_id = 2**63 - 7, 2**63 - 1
    load(activity_id=activity_id)
    won = seize(user_id=user_id, activity_id=activity_id)
    assert won.activity_id == activity_id
    assert server.hkeys(seize_keys(activity_id).queue) == [f"{activity_id}:{user_id}:1"]


def test_batch_serves_shoppers_in_order_as_single_calls_would(server):
    load(total=3, per_user=2)
    outcomes = coupons_seize(activity_id=ACTIVITY, shoppers=[(1, 1), (2, 0), (1, 1), (1, 0), (1, 0), (3, 0), (2, 1)])
    shown = [(o.seq, o.replay) if isinstance(o, Won) else o.refusal for o in outcomes]
    assert shown == [
        (1, False),
        (1, False),
        (1, True),
        (2, False),
        Refusal.LIMIT_REACHED,
        Refusal.SOLD_OUT,
        (1, True),
    ]
    assert outcomes[2].seized_ms == outcomes[0].seized_ms
    assert server.hgetall(KEYS.holders) == {"_": "1", "1": "2", "2": "1"}
    assert server.hget(KEYS.stock, "11") == "0"
    assert server.hlen(KEYS.queue) == 3


def test_batch_of_256_is_served_and_257_is_a_programming_error(server):
    load(total=300)
    outcomes = coupons_seize(activity_id=ACTIVITY, shoppers=[(user_id, 1) for user_id in range(1, 257)])
    assert sum(isinstance(outcome, Won) for outcome in outcomes) == 256
    with pytest.raises(ValueError, match="at most 256"):
        coupons_seize(activity_id=ACTIVITY, shoppers=[(user_id, 1) for user_id in range(1, 258)])
    assert server.hget(KEYS.stock, "11") == "44"


@pytest.mark.parametrize("key", ["stock", "holders", "queue"])
def test_key_of_another_type_stops_the_script_before_its_first_write(server, key):
    load()
    name = getattr(KEYS, key)
    server.delete(name)
    server.set(name, "not a hash")
    before = dumps(server)
    with pytest.raises(store.StoreUnavailable):
        seize()
    assert dumps(server) == before


def test_memory_full_refuses_before_anything_is_written(server):
    load()
    before = dumps(server)
    server.config_set("maxmemory", "1")
    try:
        with pytest.raises(store.StoreUnavailable, match=r"OOM|maxmemory"):
            seize()
    finally:
        server.config_set("maxmemory", "0")
    assert dumps(server) == before


def test_p10_script_that_redis_forgot_is_loaded_again_and_runs_once(server):
    load()
    seize(user_id=1)
    server.script_flush()
    assert isinstance(seize(user_id=2), Won)
    assert server.hget(KEYS.stock, "11") == "3"


def test_l17_cost_of_a_seize_does_not_depend_on_the_number_of_activities(server):
    """The same Redis commands with one activity and with two hundred; the list is never read."""

    def commands_of_one_seize(user_id: int) -> dict[str, int]:
        server.config_resetstat()
        assert isinstance(seize(user_id=user_id), Won)
        stats = server.info("commandstats")
        ignored = {"cmdstat_info", "cmdstat_config|resetstat"}
        return {name: stat["calls"] for name, stat in stats.items() if name not in ignored}

    load(total=100)
    seize(user_id=1)
    alone = commands_of_one_seize(2)
    for activity_id in range(1, 2001, 10):
        load(activity_id=activity_id) if activity_id != ACTIVITY else None
    server.set("ACTIVITY:LIST", "not even JSON")
    assert commands_of_one_seize(3) == alone
    assert "cmdstat_get" not in alone
    assert sum(alone.values()) < 12
