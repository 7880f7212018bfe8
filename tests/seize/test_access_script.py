"""seize.lua: who may ask, how fast, and with which work done; and that whoever has won is told so all the same."""

import hashlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st
from services import PATIENCE_S

from seize import desk, store
from seize.keys import seize_keys
from seize.outcomes import Pace, Refusal, Refused, Won
from seize.services import outcomes_of
from tests.seize.stage import ACTIVITY, UID, dumps, load, rules

pytestmark = pytest.mark.usefixtures("server")
KEYS = seize_keys(ACTIVITY)
HOUR_MS = 3_600_000
LONGEST_MS = 300_000  # the longest window that staff can set: in it nothing comes back while a slow machine asks again


def access(**limits: object) -> dict[str, desk.Access]:
    return {"access": desk.Access(**limits)}


def ask(*shoppers: tuple[int, ...], demand: int = 0) -> list[str]:
    """What each shopper of one call is told: WON, REPLAY, or the refusal's name."""
    told = outcomes(*shoppers, demand=demand)
    return [("REPLAY" if one.replay else "WON") if isinstance(one, Won) else one.refusal.name for one in told]


def outcomes(*shoppers: tuple[int, ...], demand: int = 0) -> list[Won | Refused]:
    return outcomes_of(ACTIVITY, store.seize(activity_id=ACTIVITY, shoppers=list(shoppers), demand=demand))


def at(number: int) -> int:
    """A challenge that was set a minute ago, and ``number`` ms."""
    return int(time.time()) * 1000 - 60_000 + number


def in_an_hour_ms() -> int:
    return int(time.time() * 1000) + HOUR_MS


def hammering(seconds: float, *, until: int, of: list[int]) -> Iterator[None]:
    """Go on for so long, and on a slow machine until the list has so many entries."""
    began = time.monotonic()
    while time.monotonic() - began < seconds or len(of) < until:
        assert time.monotonic() - began < PATIENCE_S, "too few get through"
        yield


# -- Limits -----------------------------------------------------------------------------------------------


def test_shopper_may_ask_half_the_quota_at_once_and_then_is_told_when():
    load(starts_ms=in_an_hour_ms(), **access(asks=6, window_ms=LONGEST_MS))
    first = outcomes(*[(7, 1)] * 5)
    assert [one.refusal.name for one in first] == ["NOT_STARTED"] * 3 + ["TOO_MANY_REQUESTS"] * 2
    [refused] = outcomes((7, 1))
    assert refused.pace == Pace("activity-shopper", 6, LONGEST_MS, refused.pace.wait_ms)
    gone_ms = refused.now_ms - first[0].now_ms
    assert abs(refused.pace.wait_ms - (75_000 - gone_ms)) <= 1  # 3 at once leave 3 steps of 75 s of a window of 300 s
    assert ask((8, 1)) == ["NOT_STARTED"]  # another shopper's quota is another one


def test_refused_asks_are_not_counted_and_write_nothing(server):
    load(starts_ms=in_an_hour_ms(), **access(asks=2, window_ms=LONGEST_MS))
    assert ask((7, 1), (7, 1)) == ["NOT_STARTED", "TOO_MANY_REQUESTS"]
    before = dumps(server)
    assert ask(*[(7, 1)] * 50) == ["TOO_MANY_REQUESTS"] * 50
    assert dumps(server) == before


def test_quota_comes_back_step_by_step():
    load(starts_ms=in_an_hour_ms(), **access(asks=4, window_ms=600))
    first = outcomes((7, 1), (7, 1), (7, 1))
    assert [one.refusal.name for one in first] == ["NOT_STARTED", "NOT_STARTED", "TOO_MANY_REQUESTS"]
    time.sleep(0.22)  # a step is 200 ms
    later = outcomes((7, 1), (7, 1))
    let_through = sum(one.refusal is Refusal.NOT_STARTED for one in later)
    gone_ms = later[0].now_ms - first[0].now_ms
    # The script counts µs and tells whole ms.
    assert let_through in {min(2, (gone_ms + rounding) // 200) for rounding in (-1, 0, 1)}


@pytest.mark.parametrize(("asks", "window_ms"), [(1, 250), (2, 300), (5, 400), (20, 500)])
def test_in_no_window_of_a_second_of_hammering_more_than_the_quota_gets_through(asks, window_ms):
    load(starts_ms=in_an_hour_ms(), **access(asks=asks, window_ms=window_ms))
    let_through_ms: list[int] = []
    for _ask in hammering(1.2, until=asks, of=let_through_ms):  # and not everybody is refused
        [told] = outcomes((7, 1))
        if told.refusal is Refusal.NOT_STARTED:
            let_through_ms.append(told.now_ms)
    for first in let_through_ms:
        # The script counts µs and tells whole ms: a window is one ms shorter by them.
        assert sum(first <= moment < first + window_ms - 1 for moment in let_through_ms) <= asks


def test_coupon_that_is_won_counts_as_no_ask(server):
    load(per_user=3, total=9, **access(asks=1, window_ms=LONGEST_MS))
    assert ask((7, 1), (7, 2), (7, 3), (7, 4)) == ["WON", "WON", "WON", "LIMIT_REACHED"]
    assert not server.exists(KEYS.asked_even, KEYS.asked_odd)


def test_holder_who_hammers_is_told_of_the_win_each_time():
    load(
        starts_ms=int(time.time() * 1000) - 10,
        **access(asks=1, window_ms=LONGEST_MS, rate=1, challenge="always", effort=1000),
    )
    assert ask((7, 1, at(5))) == ["WON"]
    assert ask(*[(7, 1)] * 200) == ["REPLAY"] * 200
    assert ask((7, -1), (8, -1)) == ["REPLAY", "TOO_MANY_REQUESTS"]  # a process that sheds only asks after wins


def test_ask_after_a_win_alone_claims_nothing(server):
    load()
    before = dumps(server)
    assert ask((7, -1), (7, -2)) == ["TOO_MANY_REQUESTS"] * 2
    assert outcomes((7, -1))[0].pace is None
    assert dumps(server) == before


def test_sold_out_paused_and_ended_are_told_without_counting(server):
    load(total=1, **access(asks=1, window_ms=LONGEST_MS))
    assert ask((1, 1), *[(7, 1)] * 3) == ["WON", *["SOLD_OUT"] * 3]
    for closed in ({"state": "paused"}, {"state": "voided"}, {"ends_ms": int(time.time() * 1000) - 1}):
        server.flushall()
        load(**closed, **access(asks=1, window_ms=LONGEST_MS))
        assert len(set(ask(*[(7, 1)] * 3))) == 1
        assert not server.exists(KEYS.asked_even, KEYS.asked_odd)


def test_memory_of_two_turns_ago_is_forgotten_and_of_the_last_one_is_not(server):
    while True:
        turn = store.time_us() // 300_000_000
        server.flushall()
        try:
            memory_is_forgotten_after(turn, server)
        except AssertionError:
            if store.time_us() // 300_000_000 == turn:
                raise
            continue  # the turn ended meanwhile
        return


def memory_is_forgotten_after(turn: int, server) -> None:
    load(starts_ms=in_an_hour_ms(), **access(asks=1, window_ms=LONGEST_MS))
    began_us = store.time_us()
    assert ask((7, 1), (8, 1)) == ["NOT_STARTED"] * 2
    now, other = (KEYS.asked_even, KEYS.asked_odd) if turn % 2 == 0 else (KEYS.asked_odd, KEYS.asked_even)
    assert 600_000 - (store.time_us() - began_us) / 1000 - 1 <= server.pttl(now) <= 600_000
    noted = server.hgetall(now)
    server.hset(other, mapping={**noted, "_": str(turn - 1)})  # as if it had been noted in the turn before
    server.delete(now)
    assert ask((7, 1)) == ["TOO_MANY_REQUESTS"]
    server.hset(other, "_", str(turn - 3))
    assert ask((7, 1)) == ["NOT_STARTED"]
    server.hset(now, "_", str(turn - 2))  # what lies here is two turns old
    assert ask((8, 1)) == ["NOT_STARTED"]
    assert set(server.hgetall(now)) == {"_", "8"}


def test_limit_that_staff_loosen_holds_for_those_who_wait_already():
    wanted = load(starts_ms=in_an_hour_ms(), **access(asks=2, window_ms=300_000))
    assert ask((7, 1), (7, 1)) == ["NOT_STARTED", "TOO_MANY_REQUESTS"]
    assert outcomes((7, 1))[0].pace.wait_ms > 100_000
    assert desk.preheat(replace(wanted, version=2, access=desk.Access(asks=20, window_ms=2_000))) == "applied"
    first, second = outcomes((7, 1), (7, 1))
    assert (first.refusal.name, second.refusal.name) == ("NOT_STARTED", "TOO_MANY_REQUESTS")
    assert second.pace.wait_ms <= 182  # a step
    time.sleep(0.2)
    assert ask((7, 1)) == ["NOT_STARTED"]


# -- Rate ---------------------------------------------------------------------------------------------------


def test_activity_gives_out_a_fifth_of_its_rate_at_once_and_never_more_than_the_rate_in_a_second():
    load(total=1000, **access(rate=50))
    first = outcomes(*[(user, 1) for user in range(1, 31)])
    assert [isinstance(one, Won) for one in first] == [True] * 10 + [False] * 20
    assert {one.pace[:3] for one in first[10:]} == {("activity", 50, 1000)}
    won_ms: list[int] = []
    user = 100
    for _ask in hammering(1.5, until=50, of=won_ms):
        told = outcomes(*[(user + i, 1) for i in range(20)])
        won_ms += [one.now_ms for one in told if isinstance(one, Won)]
        user += 20
    for first in won_ms:
        assert sum(first <= moment < first + 999 for moment in won_ms) <= 50


def test_rate_grows_from_a_tenth_while_it_warms_up():
    for since_ms in (0, HOUR_MS // 2, HOUR_MS):
        store.client().flushall()
        wanted = load(total=1000, starts_ms=store.time_us() // 1000 - since_ms, **access(rate=1000, ramp_ms=HOUR_MS))
        told = outcomes(*[(user, 1) for user in range(1, 257)])
        warm = min(1, (told[0].now_ms - wanted.starts_ms) / HOUR_MS)
        at_once = math.ceil(math.floor(1000 * (0.1 + 0.9 * warm)) / 5)  # 20, 110 and 200; slow machines are later
        assert sum(isinstance(one, Won) for one in told) == at_once


@pytest.mark.parametrize("rate", [2, 5, 10])
def test_warm_up_step_by_step_never_gives_out_more_than_the_rate_in_a_second(rate):
    load(total=1000, starts_ms=int(time.time() * 1000), **access(rate=rate, ramp_ms=1500))
    won_ms: list[int] = []
    user = 1
    for _ask in hammering(2.5, until=rate, of=won_ms):
        won_ms += [one.now_ms for one in outcomes(*[(user + i, 1) for i in range(3)]) if isinstance(one, Won)]
        user += 3
    for first in won_ms:
        assert sum(first <= moment < first + 999 for moment in won_ms) <= rate


# -- Challenge ------------------------------------------------------------------------------------------------


def test_challenge_always_wants_a_solution_that_was_not_used_before():
    first = at(0)
    load(per_user=3, **access(challenge="always", effort=1000))
    assert ask((7, 1), (7, 1, -1)) == ["CHALLENGE_REQUIRED", "CHALLENGE_INVALID"]
    assert ask((7, 1, first + 1000)) == ["WON"]
    assert ask((7, 2, first + 1000), (7, 2, first + 999), (7, 2, first + 1001)) == [
        "CHALLENGE_INVALID",
        "CHALLENGE_INVALID",
        "WON",
    ]
    assert ask((8, 1, first + 500)) == ["WON"]  # another shopper's are numbered for themselves
    assert ask((7, 1), (7, 2), (7, 1, -1)) == ["REPLAY"] * 3


def test_solution_that_came_to_nothing_is_still_good():
    first = at(0)
    load(total=2, **access(challenge="always", effort=1000, rate=1))
    assert ask((1, 1, first + 50), (7, 1, first + 60)) == ["WON", "TOO_MANY_REQUESTS"]
    time.sleep(1.05)
    assert ask((7, 1, first + 60)) == ["WON"]


def test_under_pressure_a_challenge_is_wanted_while_more_ask_than_the_staff_said():
    first = at(0)
    load(**access(challenge="pressure", pressure=100, effort=1000))
    assert ask((1, 1), demand=100) == ["WON"]
    assert ask((2, 1), (3, 1, first + 5), demand=101) == ["CHALLENGE_REQUIRED", "WON"]
    assert ask((2, 1), demand=3) == ["WON"]


def test_solution_is_good_for_four_minutes_by_redis_clock():
    load(total=100, **access(challenge="always", effort=1000))
    before_ms = int(time.time() * 1000)
    now_ms = desk.effort_read(activity_id=ACTIVITY)[1]
    assert before_ms <= now_ms <= time.time() * 1000
    shoppers = {user: now_ms - 240_000 + 100 * (user - 10) for user in range(1, 100)}  # one second less, nine more
    told = outcomes(*[(user, 1, set_ms) for user, set_ms in shoppers.items()])
    in_time = [set_ms > told[0].now_ms - 240_000 for set_ms in shoppers.values()]
    assert [isinstance(one, Won) for one in told] == in_time
    assert {one.refusal.name for one in told if isinstance(one, Refused)} == {"CHALLENGE_INVALID"}


def test_shopper_who_was_told_to_work_or_to_come_back_has_asked_in_vain_for_nothing(server):
    load(total=9, **access(challenge="always", effort=1000, asks=1, window_ms=LONGEST_MS, rate=1))
    first = at(0)
    assert ask((7, 1), (7, 1), (7, 1)) == ["CHALLENGE_REQUIRED"] * 3
    assert ask((8, 1, first + 1), (7, 1, first + 1)) == ["WON", "TOO_MANY_REQUESTS"]
    time.sleep(1.05)
    assert ask((7, 1, first + 1)) == ["WON"]
    assert ask((9, 1, -1), (9, 1, -1)) == ["CHALLENGE_INVALID", "TOO_MANY_REQUESTS"]


def test_effort_is_what_the_rules_say_now():
    assert desk.effort_read(activity_id=ACTIVITY)[0] is None
    wanted = load(**access(challenge="always", effort=1000))
    assert desk.effort_read(activity_id=ACTIVITY)[0] == 1000
    harder = desk.Access(challenge="always", effort=2000)
    assert desk.preheat(replace(wanted, version=2, access=harder)) == "applied"
    assert desk.effort_read(activity_id=ACTIVITY)[0] == 2000
    assert desk.preheat(replace(wanted, version=3, access=desk.NO_LIMITS)) == "applied"
    assert desk.effort_read(activity_id=ACTIVITY)[0] is None


# -- Gray release ---------------------------------------------------------------------------------------------


def let_in(percent: int, users: range) -> set[int]:
    store.client().flushall()
    load(total=1, **access(percent=percent))
    store.client().hset(KEYS.stock, str(ACTIVITY), 0)  # whoever is let in is told SOLD_OUT, and nothing is written
    found = set()
    for first in range(users.start, users.stop, 250):
        chunk = range(first, min(first + 250, users.stop))
        told = ask(*[(user, 1) for user in chunk])
        found |= {user for user, one in zip(chunk, told, strict=True) if one == "SOLD_OUT"}
        assert set(told) <= {"SOLD_OUT", "NOT_ELIGIBLE"}
    return found


def test_ten_percent_are_ten_percent_of_a_hundred_thousand_to_half_a_percent():
    number = len(let_in(10, range(1, 100_001)))
    assert 9_500 <= number <= 10_500


@trying(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 2**62))
def test_widening_a_gray_release_never_takes_anybody_away(one, other, first):
    users = range(first, first + 250)
    narrow, wide = sorted((one, other))
    assert let_in(narrow, users) <= let_in(wide, users)


def test_nobody_at_zero_percent_and_everybody_at_a_hundred():
    assert let_in(0, range(1, 501)) == set()
    assert let_in(100, range(1, 501)) == set(range(1, 501))


def test_share_of_a_shopper_is_the_hash_that_the_documentation_gives():
    users = range(1, 1001)
    shares = {user: int(hashlib.sha1(f"{UID}:{user}".encode()).hexdigest()[:8], 16) % 10_000 for user in users}
    assert let_in(37, users) == {user for user, share in shares.items() if share < 3700}


def test_lists_let_in_and_keep_out_whatever_the_percentage():
    load(**access(percent=0, lists=1))
    assert ask((7, 1)) == ["NOT_READY"]  # the list that the rules speak of is not here
    assert desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=[(7, "allow"), (8, "deny")])
    assert ask((7, 1), (8, 1), (9, 1)) == ["WON", "NOT_ELIGIBLE", "NOT_ELIGIBLE"]
    load(epoch=2, version=2, **access(lists=1))
    assert ask((8, 1), (9, 1)) == ["NOT_ELIGIBLE", "WON"]


def test_longer_list_replaces_a_shorter_one_at_once_and_an_older_one_never(server):
    load(total=5000, **access(percent=0, lists=1))
    assert desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=[(7, "allow")])
    assert desk.listed_write(
        activity_id=ACTIVITY, uid=UID, version=2, listed=[(user, "allow") for user in range(100, 2600)]
    )
    assert ask((7, 1), (100, 1), (2599, 1)) == ["NOT_ELIGIBLE", "WON", "WON"]
    assert not desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=[(7, "allow")])
    assert ask((7, 1)) == ["NOT_ELIGIBLE"]
    assert server.hlen(KEYS.listed) == 2501
    assert server.ttl(KEYS.listed) == -1
    assert [key for key in server.keys("COUPON:LISTED:*") if key != KEYS.listed] == []


def test_winner_is_told_of_the_win_though_the_list_is_lost(server):
    load(**access(percent=0, lists=1))
    desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=[(7, "allow")])
    assert ask((7, 1)) == ["WON"]
    server.delete(KEYS.listed)
    assert ask((7, 1), (7, 2), (8, 1)) == ["REPLAY", "LIMIT_REACHED", "NOT_READY"]


def test_list_that_redis_lost_half_of_while_it_was_written_is_none(server, monkeypatch):
    load(total=5000, **access(percent=0, lists=1))
    monkeypatch.setattr(desk, "LISTED_CHUNK", 10)
    finish = desk.script_call

    def emptied_before(name, keys, arguments):
        if name == "listed_finish":
            server.hdel(keys[1], "101")
        return finish(name, keys, arguments)

    monkeypatch.setattr(desk, "script_call", emptied_before)
    listed = [(user, "allow") for user in range(100, 130)]
    with pytest.raises(desk.ListBroken):
        desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=listed)
    assert server.keys("COUPON:LISTED:*") == []
    assert ask((100, 1)) == ["NOT_READY"]


def test_list_of_an_activity_that_had_the_id_before_is_none(server):
    load(**access(percent=0, lists=1))
    desk.listed_write(activity_id=ACTIVITY, uid="0ther", version=5, listed=[(7, "allow")])
    assert ask((7, 1)) == ["NOT_READY"]
    assert desk.preheat(rules(version=2, access=desk.Access(percent=0, lists=1))) == "lists"
    assert desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=[(8, "allow")])
    assert ask((7, 1), (8, 1)) == ["NOT_ELIGIBLE", "WON"]


def test_rebuild_replaces_a_list_of_the_same_version(server):
    load(**access(percent=0, lists=1))
    desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=[(7, "allow")])
    assert not desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=[(8, "allow")])
    assert desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=[(8, "allow")], force=True)
    assert ask((7, 1), (8, 1)) == ["NOT_ELIGIBLE", "WON"]


def test_rules_that_speak_of_a_newer_list_wait_for_it():
    there = load(**access(lists=1))
    desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=[])
    newer = replace(there, version=2, access=desk.Access(lists=2))
    assert desk.preheat(newer) == "lists"
    desk.listed_write(activity_id=ACTIVITY, uid=UID, version=2, listed=[(7, "deny")])
    assert ask((7, 1), (8, 1)) == ["NOT_ELIGIBLE", "WON"]  # in force before the rules are, and never undone by them
    assert desk.preheat(newer) == "applied"
    assert desk.preheat(there) == "current"


def test_staff_only_is_for_staff():
    load(**access(staff=True))
    assert ask((7, 1)) == ["NOT_ELIGIBLE"]
    desk.staff_write([7, 9])
    assert ask((7, 1), (8, 1)) == ["WON", "NOT_ELIGIBLE"]
    desk.staff_write([])
    assert ask((9, 1)) == ["NOT_ELIGIBLE"]
    assert ask((7, 1)) == ["REPLAY"]


def test_limits_of_every_kind_at_once_in_one_call():
    load(
        total=2,
        per_user=2,
        **access(asks=2, window_ms=LONGEST_MS, rate=100, challenge="always", effort=9, percent=0, lists=1),
    )
    desk.listed_write(activity_id=ACTIVITY, uid=UID, version=1, listed=[(user, "allow") for user in (1, 2, 3)])
    good = at(0)
    told = ask((1, 1, good), (9, 1, good), (2, 1), (2, 1, -1), (2, 1, good), (3, 1, good), (3, 1, good), (1, 1))
    assert told == ["WON", "NOT_ELIGIBLE", "CHALLENGE_REQUIRED", "CHALLENGE_INVALID", "TOO_MANY_REQUESTS", "WON",
                    "REPLAY", "REPLAY"]  # fmt: skip
