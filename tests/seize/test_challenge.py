"""The challenge: what is replayed, expired, another's or forged is refused, and an honest solution is good once."""

import base64
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import time_machine

from seize import desk
from seize.challenge import NONE, WRONG, challenge_make, solution_check
from tests.seize.challenges import packed, solution_of, solve
from tests.seize.stage import ACTIVITY, declare_loaded, load

CHALLENGED = desk.Access(challenge="always", effort=50)
URL = f"/market/consumer/activity/{ACTIVITY}/challenge"


def made(*, user_id: int = 7, activity_id: int = ACTIVITY, effort: int = 50) -> dict:
    now_ms = time.time_ns() // 1_000_000
    return challenge_make(activity_id=activity_id, user_id=user_id, effort=effort, now_ms=now_ms)


def check(text: str, *, user_id: int = 7, activity_id: int = ACTIVITY) -> int:
    return solution_check(text, activity_id=activity_id, user_id=user_id)


def test_honest_solution_is_known_by_the_moment_its_challenge_was_set():
    before = time.time_ns() // 1_000_000
    assert before <= check(solve(made())) <= time.time_ns() // 1_000_000
    assert check("") == NONE


def test_another_shoppers_and_another_activitys_solutions_are_wrong():
    assert check(solve(made(user_id=8))) == WRONG
    assert check(solve(made(activity_id=21))) == WRONG


# By name, what somebody makes of an own solution and of another's challenge without having done the work.
FORGERIES: dict[str, Callable[[dict, dict], object]] = {
    "another number": lambda good, other: {**good, "number": good["number"] + 1},
    "number as text": lambda good, other: {**good, "number": str(good["number"])},
    "number as bool": lambda good, other: {**good, "number": True},
    "number moved into the salt": lambda good, other: {**good, "salt": f"{good['salt']}{str(good['number'])[:1]}"},
    "longer lifetime": lambda good, other: {**good, "salt": good["salt"].replace("expires=", "expires=9")},
    "later moment": lambda good, other: {**good, "salt": good["salt"].replace("set_ms=", "set_ms=9")},
    "no lifetime": lambda good, other: {**good, "salt": good["salt"].partition("?")[0]},
    "another's salt": lambda good, other: {**good, "salt": other["salt"]},
    "another's signature": lambda good, other: {**good, "signature": other["signature"]},
    "another's challenge": lambda good, other: {
        **good,
        "challenge": other["challenge"],
        "signature": other["signature"],
    },
    "own signature": lambda good, other: {**good, "signature": "0" * 64},
    "own hash, old signature": lambda good, other: {**good, "number": 1, "challenge": "0" * 64},
    "another hash": lambda good, other: {**good, "algorithm": "SHA-1"},
    "no hash": lambda good, other: {**good, "algorithm": "none"},
    "a member missing": lambda good, other: {name: value for name, value in good.items() if name != "signature"},
    "a list": lambda good, other: [good],
    "null": lambda good, other: None,
    "a number": lambda good, other: 7,
    "members of other kinds": lambda good, other: {**good, "salt": ["a"], "challenge": {}},
}


@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_forged_solution_is_wrong(name):
    assert check(packed(FORGERIES[name](solution_of(made()), made(user_id=8)))) == WRONG


@pytest.mark.parametrize(
    "text", ["x", "====", "e30", "e30=", "bnVsbA==", "\x00", "A" * 700, base64.b64encode(b"\xff\xfe").decode()]
)
def test_what_is_no_base64_of_json_is_wrong(text):
    assert check(text) == WRONG


def test_bits_turned_anywhere_make_it_wrong():
    text = solve(made())
    for place in range(len(text)):
        turned = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        try:
            same = json.loads(base64.b64decode(turned)) == json.loads(base64.b64decode(text))
        except ValueError:
            same = False
        assert same or check(turned) == WRONG, place


def test_key_is_the_sites(settings):
    text = solve(made())
    settings.SECRET_KEY = "another"
    assert check(text) == WRONG


def test_checking_takes_the_same_few_steps_however_much_work_was_done():
    assert calls_of(solve(made(effort=2000))) <= calls_of(solve(made(effort=2))) + 5 < 500


def calls_of(text: str) -> int:
    """How many functions a check calls; what it costs is measured by ``script/bench admission``."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    check(text)  # what is looked up once
    sys.setprofile(count)
    try:
        assert check(text) > 0
    finally:
        sys.setprofile(None)
    return calls


# -- By HTTP ----------------------------------------------------------------------------------------------


def press(api, altcha: str | None = None, *, seq: int = 1):
    body = {"id": str(ACTIVITY), "seq": seq, **({} if altcha is None else {"altcha": altcha})}
    return api.post("/market/consumer/coupon/seize", body, format="json")


def test_shopper_who_solves_the_challenge_gets_the_coupon_and_each_solution_is_good_once(shopper_api):
    load(per_user=2, access=CHALLENGED)
    refused = press(shopper_api(7))
    assert (refused.status_code, refused.json()["code"]) == (403, "CHALLENGE_REQUIRED")
    assert refused.json()["challenge_url"] == URL
    given = shopper_api(7).get(refused.json()["challenge_url"])
    assert (given.status_code, given["Cache-Control"]) == (200, "no-store")
    text = solve(given.json())
    assert press(shopper_api(8), text).json()["code"] == "CHALLENGE_INVALID"
    assert press(shopper_api(7), text).status_code == 201
    assert press(shopper_api(7), text).status_code == 200  # the answer was lost: it is told again
    again = press(shopper_api(7), text, seq=2)
    assert (again.status_code, again.json()["code"]) == (403, "CHALLENGE_INVALID")
    assert press(shopper_api(7), solve(shopper_api(7).get(URL).json()), seq=2).status_code == 201
    assert press(shopper_api(7), "no solution").status_code == 200  # a win is told whatever comes with the question


def test_expired_solution_is_refused_whatever_the_clock_of_the_host_says(shopper_api):
    load(access=CHALLENGED)
    now_ms = desk.effort_read(activity_id=ACTIVITY)[1]
    old = challenge_make(activity_id=ACTIVITY, user_id=7, effort=50, now_ms=now_ms - 241_000)
    assert press(shopper_api(7), solve(old)).json()["code"] == "CHALLENGE_INVALID"
    with time_machine.travel(time.time() - 3600):
        text = solve(given_now())
    with time_machine.travel(time.time() + 3600):
        assert check(text) > now_ms - 1000
    assert press(shopper_api(7), text).status_code == 201


def given_now() -> dict:
    """A challenge as the view gives it; the view itself would find the token to be of another hour."""
    effort, now_ms = desk.effort_read(activity_id=ACTIVITY)
    return challenge_make(activity_id=ACTIVITY, user_id=7, effort=effort, now_ms=now_ms)


def test_effort_is_changed_in_a_sale_and_the_challenge_turned_off(shopper_api):
    wanted = load(access=CHALLENGED)
    assert shopper_api(7).get(URL).json()["maxnumber"] == 50
    desk.preheat(replace(wanted, version=2, access=replace(CHALLENGED, effort=90)))
    assert shopper_api(7).get(URL).json()["maxnumber"] == 90
    desk.preheat(replace(wanted, version=3, access=desk.NO_LIMITS))
    assert (shopper_api(7).get(URL).status_code, press(shopper_api(7)).status_code) == (404, 201)


def test_challenge_is_for_shoppers_of_activities_that_ask_for_one(api, shopper_api):
    load()
    declare_loaded()
    assert api.get(URL).status_code == 401
    for path in (URL, URL.replace("/11/", "/12/"), URL.replace("/11/", "/x/")):
        answer = shopper_api(7).get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    assert shopper_api(7).get(URL + "?a=1").status_code == 400


@pytest.mark.parametrize("altcha", ["", "x" * 701, 7, None, ["x"], "é"])
def test_altcha_that_is_no_text_of_a_sensible_length_is_refused(shopper_api, altcha):
    load()
    answer = shopper_api(7).post(
        "/market/consumer/coupon/seize", {"id": "11", "seq": 1, "altcha": altcha}, format="json"
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_REQUEST")
    assert "'altcha'" in answer.json()["detail"]
