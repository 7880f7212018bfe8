"""Totals by the day: each row once, whichever run counts it, and what came since is added."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from activities import checkout
from activities.audit import SYSTEM
from activities.models import Coupon
from sync import days
from sync.days import Day, days_count, days_read
from sync.models import DayCursor, DayTotals
from tests.factories import issued, offer

pytestmark = pytest.mark.django_db(transaction=True)
ZONE = ZoneInfo("Asia/Shanghai")
TODAY = date(2027, 3, 2)
MIDNIGHT = datetime(2027, 3, 2, tzinfo=ZONE)


def read() -> dict[date, tuple[int, int, int]]:
    found = days_read(today=TODAY, days=3)
    return {day.day: (day.won, day.redeemed, day.rolled_back) for day in found}


def test_days_are_the_sites_and_every_row_counts_once_whenever_it_is_read():
    activity = offer(stock_total=100, valid_days=900)
    for user, moment in enumerate(
        (MIDNIGHT - timedelta(milliseconds=1), MIDNIGHT, MIDNIGHT + timedelta(hours=23, minutes=59)), start=1
    ):
        issued(activity, user_id=user, seized_at=moment)
    wanted = {date(2027, 2, 28): (0, 0, 0), date(2027, 3, 1): (1, 0, 0), TODAY: (2, 0, 0)}
    assert read() == wanted
    for _run in range(3):
        days_count()
        assert read() == wanted
    issued(activity, user_id=9, seized_at=MIDNIGHT)
    assert read()[TODAY] == (3, 0, 0)
    days_count()  # sees it
    assert DayTotals.objects.get(day=TODAY).won == 2
    days_count()  # counts it
    assert DayTotals.objects.get(day=TODAY).won == 3
    assert read()[TODAY] == (3, 0, 0)


def test_redemptions_and_roll_backs_count_on_their_own_day():
    activity = offer(stock_total=100, valid_days=900)
    coupon = issued(activity, user_id=1, seized_at=MIDNIGHT - timedelta(days=1))
    order = {"coupon_id": coupon.pk, "order_id": "a", "by": SYSTEM}
    checkout.coupon_redeem(user_id=1, order_amount=Decimal("150.00"), now=MIDNIGHT - timedelta(minutes=1), **order)
    checkout.coupon_roll_back(reason="x", now=MIDNIGHT + timedelta(minutes=1), **order)
    wanted = {date(2027, 2, 28): (0, 0, 0), date(2027, 3, 1): (1, 1, 0), TODAY: (0, 0, 1)}
    assert read() == wanted
    days_count()
    days_count()
    assert read() == wanted


def test_a_big_ledger_is_caught_up_with_in_steps_and_no_page_counts_it(monkeypatch):
    activity = offer(stock_total=100, valid_days=900)
    for user in range(1, 11):
        issued(activity, user_id=user, seized_at=MIDNIGHT)
    monkeypatch.setattr(days, "CHUNK", 4)
    monkeypatch.setattr(days, "LATE_MAX", 9)
    # Ids begin where those of earlier tests ended: stepping through all of them takes minutes.
    first = Coupon.objects.order_by("pk").values_list("pk", flat=True)[0]
    DayCursor.objects.create(pk=1, coupon_id=first - 1, coupon_seen=first - 1)
    assert days_read(today=TODAY, days=3) is None
    while days_count() or DayTotals.objects.filter(won=10).count() == 0:
        pass
    assert read()[TODAY] == (10, 0, 0)
    assert DayTotals.objects.get().won == 10
    assert days_read(today=TODAY, days=1) == [Day(TODAY, 10, 0, 0)]
