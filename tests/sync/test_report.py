"""Figures of a sale that the pages' tests do not reach."""

from datetime import UTC, datetime, timedelta

import pytest

from sync.report import facts_of, slots_of
from tests.factories import issued, offer, percent_terms

pytestmark = pytest.mark.django_db(transaction=True)
START = datetime(2027, 3, 2, 12, 0, 0, 500_000, tzinfo=UTC)


def test_peak_mean_and_duration_by_the_second():
    activity = offer(stock_total=100)
    for user, second in enumerate((0, 0, 1, 1, 1, 9), start=1):
        issued(activity, user_id=user, seized_at=START + timedelta(seconds=second))
    facts = facts_of(activity=activity)
    assert (facts.rows, facts.peak, facts.peak_at) == (6, 3, START.replace(microsecond=0) + timedelta(seconds=1))
    assert (facts.first_at, facts.last_at, facts.duration_s) == (START, START + timedelta(seconds=9), 9.0)
    assert facts.mean == 6 / 9
    base = int(START.timestamp())
    assert (facts.width_s, facts.wins) == (1, [(base, 2), (base + 1, 3), (base + 9, 1)])


def test_a_percentage_is_worth_its_cap_and_without_one_nobody_knows():
    capped = offer(stock_total=10, **percent_terms())
    open_ended = offer(stock_total=10, **{**percent_terms(), "max_off": None})
    for activity in (capped, open_ended):
        issued(activity, user_id=1)
        issued(activity, user_id=2)
    assert facts_of(activity=capped).given == 100
    assert facts_of(activity=open_ended).given is None


def test_facts_are_remembered_only_when_all_rows_that_the_activity_counts_are_there():
    activity = offer(stock_total=10)
    issued(activity, user_id=1)
    assert facts_of(activity=activity).rows == 1
    issued(activity, user_id=2)
    assert facts_of(activity=activity).rows == 2
    activity.issued = 2
    assert facts_of(activity=activity).rows == 2
    issued(activity, user_id=3)
    assert facts_of(activity=activity).rows == 2
    activity.issued = 3
    assert facts_of(activity=activity).rows == 3


@pytest.mark.parametrize(("span", "width"), [(2, 1), (240, 1), (241, 2), (3600, 30), (86_400, 600), (10**8, 86_400)])
def test_slots_are_as_narrow_as_a_chart_has_room_for(span, width):
    found, slots = slots_of({0: 1, span - 1: 2})
    assert found == width
    assert sum(number for _first, number in slots) == 3
