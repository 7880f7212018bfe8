"""The checklist: what is good, what asks for a second look, what forbids to submit. No database, no Redis."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from activities.checklist import Facts, Item, Level, Redis, checklist_errors, checklist_of
from activities.models import Activity

NOW = datetime(2026, 11, 11, tzinfo=UTC)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
OK, WARNING, ERROR = Level.OK, Level.WARNING, Level.ERROR


def draft(**fields: object) -> Activity:
    """Everything as it should be: 20.00 off orders from 100.00, ten of them, from in an hour for an hour."""
    usual = {
        "name": "Sale",
        "kind": "FIXED",
        "min_spend": Decimal("100.00"),
        "amount_off": Decimal("20.00"),
        "valid_days": 7,
        "starts_at": NOW + HOUR,
        "ends_at": NOW + 2 * HOUR,
        "stock_total": 10,
        "per_user_limit": 1,
    }
    return Activity(**{**usual, **fields})


def percent(pay: int, **fields: object) -> Activity:
    return draft(kind="PERCENT", amount_off=None, pay_percent=pay, **fields)


def items(activity: Activity, **facts: object) -> dict[str, Item]:
    found = checklist_of(activity=activity, facts=Facts(**{"now": NOW, **facts}))
    return {item.title: item for item in found}


def test_good_draft_is_good_in_every_point():
    found = items(draft(), redis=Redis.READY)
    assert {title: item.level for title, item in found.items()} == dict.fromkeys(
        ("Fields", "Discount", "Window", "Validity of coupons", "Stock", "Sum at risk", "Other activities", "Redis"), OK
    )
    assert found["Discount"].text == "Of an order of 100.00 it takes off 20.00; 80.00 stay to be paid."
    assert found["Sum at risk"].text == "If every coupon is used it costs at most 200.00 yuan: 10 × 20.00."
    assert found["Stock"].text == "10 coupons, at most 1 a shopper."
    assert checklist_errors(activity=draft(), now=NOW) == []


@pytest.mark.parametrize(
    ("now", "level", "says"),
    [
        (NOW + HOUR - SECOND, OK, "starts and ends in the future"),
        (NOW + HOUR, WARNING, "Its start has passed"),
        (NOW + 2 * HOUR - SECOND, WARNING, "have 1 seconds"),
        (NOW + 2 * HOUR, ERROR, "move the end first"),
        (NOW + 3 * HOUR, ERROR, "move the end first"),
    ],
)
def test_window_by_the_clock(now, level, says):
    item = items(draft(), now=now)["Window"]
    assert (item.level, says in item.text) == (level, True)
    assert bool(checklist_errors(activity=draft(), now=now)) is (level is ERROR)


def test_window_that_began_and_is_nearly_over_says_both():
    found = checklist_of(activity=draft(), facts=Facts(now=NOW + 2 * HOUR - SECOND))
    assert [item.text[:15] for item in found if item.title == "Window"] == ["Its start has p", "Shoppers have 1"]


@pytest.mark.parametrize(("seconds", "level"), [(59, WARNING), (60, OK)])
def test_window_shorter_than_a_minute_is_asked_about(seconds, level):
    item = items(draft(ends_at=NOW + HOUR + seconds * SECOND))["Window"]
    assert item.level == level
    assert (f"have {seconds} seconds" in item.text) is (level is WARNING)


@pytest.mark.parametrize(
    ("after_end", "level"), [(timedelta(0), WARNING), (HOUR - SECOND, WARNING), (HOUR, OK), (24 * HOUR, OK)]
)
def test_validity_that_ends_with_the_activity_is_asked_about(after_end, level):
    activity = draft(valid_days=None, valid_until=NOW + 2 * HOUR + after_end)
    assert items(activity)["Validity of coupons"].level == level


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"valid_days": None, "valid_until": NOW + HOUR}, "valid until the activity ends"),
        ({"valid_days": None}, "either days or a fixed end"),
        ({"ends_at": NOW + HOUR}, "after the start"),
        ({"amount_off": None}, "needs it"),
        ({"stock_total": 0}, "greater than or equal to 1"),
        ({"name": ""}, "cannot be blank"),
        ({"starts_at": None}, "cannot be null"),
        ({"ends_at": None}, "cannot be null"),
        ({"amount_off": Decimal("1.001")}, "2 decimal places"),
    ],
)
def test_field_that_is_wrong_is_an_error_and_nothing_is_guessed_from_it(fields, says):
    found = items(draft(**fields))
    assert list(found) == ["Fields"]
    assert found["Fields"].level == ERROR
    assert says in found["Fields"].text
    assert len(checklist_errors(activity=draft(**fields), now=NOW)) == 1


def test_past_end_is_said_beside_a_field_that_is_wrong():
    errors = checklist_errors(activity=draft(name=""), now=NOW + 3 * HOUR)
    assert [error[:18] for error in errors] == ["Its end has passed", "This field cannot "]


@pytest.mark.parametrize(
    ("limit", "stock", "level"), [(1, 1, OK), (9, 10, OK), (10, 10, WARNING), (100, 10, WARNING), (2, 1, OK)]
)
def test_one_shopper_who_may_take_everything_is_asked_about(limit, stock, level):
    assert items(draft(per_user_limit=limit, stock_total=stock))["Stock"].level == level


def test_sum_at_risk_in_yuan_and_unlimited_for_a_percentage_without_a_cap():
    assert "200,000,000.00 yuan: 10,000,000 × 20.00" in items(draft(stock_total=10_000_000))["Sum at risk"].text
    capped = items(percent(80, max_off=Decimal("12.34"), stock_total=1000))["Sum at risk"]
    assert (capped.level, "12,340.00 yuan: 1,000 × 12.34" in capped.text) == (OK, True)
    bare = items(percent(80))["Sum at risk"]
    assert (bare.level, "no limit" in bare.text) == (WARNING, True)


@pytest.mark.parametrize(
    ("activity", "level", "says"),
    [
        (draft(min_spend=Decimal("20.00")), WARNING, "An order of 20.00 becomes free"),
        (draft(min_spend=Decimal("20.01")), OK, "Of an order of 20.01 it takes off 20.00; 0.01 stay"),
        (draft(min_spend=Decimal("0.00")), WARNING, "An order of 20.00 becomes free"),
        (draft(min_spend=Decimal("5.00")), WARNING, "An order of 20.00 becomes free"),
        (
            draft(min_spend=Decimal("0.00"), min_payable=Decimal("1.00")),
            OK,
            "Of an order of 100.00 it takes off 20.00; 80.00 stay",
        ),
        (
            draft(min_spend=Decimal("20.00"), min_payable=Decimal("1.00")),
            OK,
            "Of an order of 20.00 it takes off 19.00; 1.00 stay",
        ),
        (
            draft(min_spend=Decimal("20.00"), min_payable=Decimal("20.00")),
            WARNING,
            "An order of 20.00 gets nothing off",
        ),
        (percent(80, min_spend=Decimal("0.00")), OK, "Of an order of 100.00 it takes off 20.00; 80.00 stay"),
        (percent(80, max_off=Decimal("5.00")), OK, "Of an order of 100.00 it takes off 5.00; 95.00 stay"),
        (percent(50, min_spend=Decimal("0.00")), WARNING, "An order of 0.01 becomes free"),
        (percent(99, min_spend=Decimal("0.01")), WARNING, "An order of 0.01 gets nothing off"),
    ],
)
def test_worked_example_and_orders_that_become_free_or_get_nothing(activity, level, says):
    item = items(activity)["Discount"]
    assert (item.level, says in item.text) == (level, True), item.text


def test_overlaps_are_named():
    item = items(draft(), overlaps=[(3, "Double Eleven"), (4, "Vips")])["Other activities"]
    assert (item.level, item.activities) == (WARNING, ((3, "Double Eleven"), (4, "Vips")))


@pytest.mark.parametrize(("redis", "level"), [(Redis.READY, OK), (Redis.LOADING, WARNING), (Redis.AWAY, WARNING)])
def test_redis_that_is_not_ready_warns_and_forbids_nothing(redis, level):
    assert items(draft(), redis=redis)["Redis"].level == level
    assert "Redis" not in items(draft())
