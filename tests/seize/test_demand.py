"""Pressure: asks per second of an activity, as one process sees them."""

import pytest

from seize import demand
from seize.demand import demand_note


@pytest.fixture(autouse=True)
def clock(monkeypatch, settings):
    settings.WEB_WORKERS = 1
    monkeypatch.setattr(demand, "_seen", {})
    now = [1000.0]
    monkeypatch.setattr(demand.time, "monotonic", lambda: now[0])
    return now


def test_pressure_is_that_of_this_second_or_the_one_before(clock):
    assert [demand_note(11, 5), demand_note(11, 7), demand_note(21, 1)] == [5, 12, 1]
    clock[0] += 1
    assert demand_note(11, 1) == 12
    clock[0] += 1
    assert demand_note(11, 1) == 1
    clock[0] += 60
    assert demand_note(11, 2) == 2


def test_every_process_is_taken_to_see_as_much(settings):
    settings.WEB_WORKERS = 4
    assert demand_note(11, 5) == 20


def test_made_up_ids_neither_hide_an_activity_nor_fill_the_process(clock):
    demand_note(11, 400)
    for activity_id in range(1000, 5000):
        demand_note(activity_id, 1)
    assert demand_note(11, 1) == 401
    assert len(demand._seen) == demand.KEPT
    clock[0] += 5
    assert demand_note(11, 1) == 1
    assert demand_note(9999, 1) == 1
    assert len(demand._seen) == 2
