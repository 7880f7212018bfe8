"""Sixty-four processes that ask at the same instant. First: that the harness sees a limit that leaks."""

import multiprocessing
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import RequestFactory
from django.utils import timezone
from rest_framework.throttling import SimpleRateThrottle
from services import PATIENCE_S

from activities.access import activity_access_change
from seize import store
from seize.outcomes import Refused
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.factories import offer
from tests.race.conftest import harm_seen

pytestmark = pytest.mark.django_db(transaction=True)
PROCESSES, ASKS = 64, 10


def let_through(ask: Callable[[], bool]) -> int:
    """How many of all asks of all processes were let through; they begin together."""
    context = multiprocessing.get_context("fork")
    barrier, number = context.Barrier(PROCESSES), context.Value("i", 0)

    def run() -> None:
        barrier.wait(PATIENCE_S)
        mine = sum(ask() for _ask in range(ASKS))
        with number.get_lock():
            number.value += mine

    processes = [context.Process(target=run, daemon=True) for _process in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE_S)
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    return number.value


class FrameworksThrottle(SimpleRateThrottle):
    """REST framework's own: reads what was asked before, and writes it back."""

    rate = "10/day"
    cache = cache

    def get_cache_key(self, request: object, view: object) -> str:
        return "throttled:7"

    def throttle_success(self) -> bool:
        time.sleep(0.002)  # what a busy machine does between reading and writing
        return bool(super().throttle_success())


@pytest.mark.controls
def test_control_a_throttle_that_reads_and_writes_lets_too_many_through(record_property):
    request = RequestFactory().get("/")

    def ask() -> bool:
        return FrameworksThrottle().allow_request(request, None)

    def through_of_a_crowd() -> int:
        cache.clear()
        return let_through(ask)

    number = harm_seen(through_of_a_crowd, over=10)
    record_property("harm", f"with REST framework's throttle, let through of 10: {number}")


def test_no_more_than_the_limit_of_one_shopper_is_let_through_by_sixty_four_processes():
    activity = offer(starts_at=timezone.now() + timedelta(hours=1))
    limits = {"asks_max": 20, "asks_window_s": 300}
    activity_access_change(activity_id=activity.pk, values=limits, now=timezone.now())

    def ask() -> bool:
        outcome = coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
        assert isinstance(outcome, Refused)
        return outcome.refusal.name == "NOT_STARTED"

    began_us = store.time_us()
    number = let_through(ask)
    # Half of them at once, and of the other half one each 27 s and more, which a slow crowd may live to see.
    assert 10 <= number <= 10 + (store.time_us() - began_us) // (300_000_000 // 11)


def test_no_more_than_the_limit_of_one_activity_is_given_out_by_sixty_four_processes():
    activity = offer(stock_total=1000, per_user_limit=100)
    activity_access_change(activity_id=activity.pk, values={"rate_max": 5}, now=timezone.now())
    began = store.time_us()
    shoppers = iter(range(1, 10_000))

    def ask() -> bool:
        user_id = next(shoppers) + 10_000 * multiprocessing.current_process().pid
        return not isinstance(
            coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=user_id), Refused
        )

    number = let_through(ask)
    seconds = (store.time_us() - began) / 1_000_000
    assert 1 <= number <= 5 * (int(seconds) + 1)
