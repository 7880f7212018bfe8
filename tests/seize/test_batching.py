"""Group commit: who shares a call, who waits for nobody, and whom a fault hits."""

import asyncio

import pytest

from seize.batching import Lanes
from seize.outcomes import Won
from seize.store import OutcomeUnknown, StoreUnavailable
from tests.loops import loop_run, until


class Desk:
    """Stands for the script: notes each call, and holds it until it is let go."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[tuple[int, int]]]] = []
        self.is_open = True
        self.faults: list[Exception] = []

    async def __call__(self, activity_id: int, shoppers: list[tuple[int, int]]) -> list[Won]:
        self.calls.append((activity_id, list(shoppers)))
        await until(lambda: self.is_open)
        if self.faults:
            raise self.faults.pop(0)
        return [Won(activity_id, seq or 1, 1, replay=False, now_ms=user_id) for user_id, seq in shoppers]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def run(scenario, desk: Desk, *, waiting_max: int = 10_000):
    """Run a coroutine function that gets Lanes and a list of what was answered."""
    answers: list[tuple[int, object]] = []

    async def main() -> None:
        await scenario(Lanes(call=desk, waiting_max=waiting_max), answers)

    loop_run(main())
    return answers


def submit(lanes: Lanes, answers: list, user_id: int, *, activity_id: int = 11, is_late: bool = False):
    return lanes.submit(
        activity_id=activity_id,
        shopper=(user_id, 1),
        done=lambda answer: answers.append((user_id, answer)),
        is_late=is_late,
    )


def test_a_lonely_shopper_is_asked_for_at_once(desk):
    async def scenario(lanes, answers):
        submit(lanes, answers, 7)
        await until(lambda: answers)

    answers = run(scenario, desk)
    assert desk.calls == [(11, [(7, 1)])]
    assert answers == [(7, Won(11, 1, 1, replay=False, now_ms=7))]


def test_who_comes_while_a_call_is_under_way_forms_the_next_one_in_order(desk):
    desk.is_open = False

    async def scenario(lanes, answers):
        submit(lanes, answers, 1)
        await until(lambda: desk.calls)
        for user_id in range(2, 52):
            submit(lanes, answers, user_id)
        await asyncio.sleep(0.05)
        assert len(desk.calls) == 1
        assert lanes.waiting == 51
        desk.is_open = True
        await until(lambda: len(answers) == 51)
        assert lanes.waiting == 0

    answers = run(scenario, desk)
    assert [len(shoppers) for _activity, shoppers in desk.calls] == [1, 50]
    assert [user_id for user_id, _answer in answers] == list(range(1, 52))


def test_a_call_carries_at_most_256(desk):
    async def scenario(lanes, answers):
        for user_id in range(1, 601):
            submit(lanes, answers, user_id)
        await until(lambda: len(answers) == 600)

    run(scenario, desk)
    assert [len(shoppers) for _activity, shoppers in desk.calls] == [256, 256, 88]


def test_activities_do_not_wait_for_each_other(desk):
    desk.is_open = False

    async def scenario(lanes, answers):
        submit(lanes, answers, 1, activity_id=11)
        submit(lanes, answers, 2, activity_id=12)
        await until(lambda: len(desk.calls) == 2)
        desk.is_open = True
        await until(lambda: len(answers) == 2)

    run(scenario, desk)
    assert sorted(desk.calls) == [(11, [(1, 1)]), (12, [(2, 1)])]


def test_a_failing_call_hits_those_in_it_and_nobody_after_them(desk):
    desk.is_open = False
    desk.faults = [StoreUnavailable("down")]

    async def scenario(lanes, answers):
        submit(lanes, answers, 1)
        await until(lambda: desk.calls)
        submit(lanes, answers, 2)
        submit(lanes, answers, 3)
        desk.is_open = True
        await until(lambda: len(answers) == 3)

    answers = dict(run(scenario, desk))
    assert isinstance(answers[1], StoreUnavailable)
    assert isinstance(answers[2], Won)
    assert isinstance(answers[3], Won)


def test_a_fault_that_nobody_expected_is_told_as_such_and_the_lane_goes_on(desk, caplog):
    desk.faults = [KeyError("surprise")]

    async def scenario(lanes, answers):
        submit(lanes, answers, 1)
        await until(lambda: answers)
        submit(lanes, answers, 2)
        await until(lambda: len(answers) == 2)

    answers = dict(run(scenario, desk))
    assert answers[1] is None
    assert isinstance(answers[2], Won)
    assert "a call for 1 shoppers failed" in caplog.text


def test_answers_that_are_too_few_are_nobodys_and_the_lane_goes_on(desk):
    real = desk.__call__

    async def short(activity_id, shoppers):
        return (await real(activity_id, shoppers))[:1]

    async def scenario(lanes, answers):
        submit(lanes, answers, 1)
        submit(lanes, answers, 2)
        await until(lambda: len(answers) == 2)
        assert lanes.waiting == 0
        submit(lanes, answers, 3)
        await until(lambda: len(answers) == 3)

    answers = dict(run(scenario, short))
    assert isinstance(answers[1], OutcomeUnknown)
    assert isinstance(answers[2], OutcomeUnknown)
    assert isinstance(answers[3], Won)


def test_an_answer_that_cannot_be_given_keeps_no_other_back(desk):
    async def scenario(lanes, answers):
        def broken(_answer: object) -> None:
            raise RuntimeError("gone")

        lanes.submit(activity_id=11, shopper=(1, 1), done=broken)
        submit(lanes, answers, 2)
        await until(lambda: answers)

    assert [user_id for user_id, _answer in run(scenario, desk)] == [2]


def test_who_left_before_being_asked_takes_no_coupon(desk):
    desk.is_open = False

    async def scenario(lanes, answers):
        submit(lanes, answers, 1)
        await until(lambda: desk.calls)
        left = submit(lanes, answers, 2)
        submit(lanes, answers, 3)
        left.left = True
        desk.is_open = True
        await until(lambda: len(answers) == 2)
        assert lanes.waiting == 0

    run(scenario, desk)
    assert desk.calls == [(11, [(1, 1)]), (11, [(3, 1)])]


def test_full_is_when_as_many_wait_as_may(desk):
    desk.is_open = False

    async def scenario(lanes, answers):
        submit(lanes, answers, 1)
        submit(lanes, answers, 2, activity_id=12)
        assert not lanes.is_full
        submit(lanes, answers, 3)
        assert lanes.is_full
        desk.is_open = True
        await until(lambda: len(answers) == 3)
        assert not lanes.is_full

    run(scenario, desk, waiting_max=3)


def test_who_asks_too_often_comes_after_all_others_and_is_not_forgotten(desk):
    async def scenario(lanes, answers):
        desk.is_open = False
        submit(lanes, answers, 1)
        await until(lambda: desk.calls)
        for user_id in range(1000, 1040):
            submit(lanes, answers, user_id, is_late=True)
        for user_id in range(2, 502):
            submit(lanes, answers, user_id)
        assert (lanes.waiting, lanes.late, lanes.is_full) == (501, 40, False)
        desk.is_open = True
        await until(lambda: len(answers) == 541)
        assert (lanes.waiting, lanes.late) == (0, 0)

    run(scenario, desk)
    users = [[user for user, _seq in shoppers] for _activity, shoppers in desk.calls]
    assert users == [[1], [*range(2, 242), *range(1000, 1016)], [*range(242, 482), *range(1016, 1032)],
                     [*range(482, 502), *range(1032, 1040)]]  # fmt: skip


def test_who_asks_too_often_takes_no_place_from_others(desk):
    async def scenario(lanes, answers):
        desk.is_open = False
        for user_id in range(2):
            assert not lanes.is_crowded
            submit(lanes, answers, user_id, is_late=True)
        assert (lanes.is_crowded, lanes.is_full) == (True, False)
        waiting = submit(lanes, answers, 9, is_late=True)
        waiting.left = True
        desk.is_open = True
        await until(lambda: len(answers) == 2)
        assert lanes.late == 0

    run(scenario, desk, waiting_max=8)
