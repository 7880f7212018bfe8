"""Coupons and redemptions by the day, without ever counting the ledger twice.

There is no index by time, and none is wanted: each index costs every coupon an entry. Ids grow with time, so each run
counts what came since the last one, and a page adds what came since then: both are short walks along the primary key.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Max, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from activities.models import Coupon, Redemption
from sync.models import DayCursor, DayTotals
from sync.slots import Slot

CHUNK = 200_000  # ids a run counts of each table: a ledger that was there before is caught up with in steps
SLOT_S = 900  # every time zone is off by whole quarters of an hour
LATE_MAX = 500_000  # ids a page adds itself


@dataclass(slots=True)
class Day:
    """What the ledger has of a day; ``redeemed`` counts entries, ``rolled_back`` those that were given back."""

    day: date
    won: int = 0
    redeemed: int = 0
    rolled_back: int = 0


@transaction.atomic
def days_count() -> int:
    """Count what came up to the last run into its days; the number of ids passed. Two runs at once wait in line."""
    DayCursor.objects.get_or_create(pk=1)
    cursor = DayCursor.objects.select_for_update().get(pk=1)
    coupons_to = min(cursor.coupon_seen, cursor.coupon_id + CHUNK)
    redemptions_to = min(cursor.redemption_seen, cursor.redemption_id + CHUNK)
    found = _days(
        Coupon.objects.filter(pk__gt=cursor.coupon_id, pk__lte=coupons_to),
        Redemption.objects.filter(pk__gt=cursor.redemption_id, pk__lte=redemptions_to),
    )
    for day in found.values():
        DayTotals.objects.get_or_create(day=day.day)
        DayTotals.objects.filter(day=day.day).update(
            won=F("won") + day.won,
            redeemed=F("redeemed") + day.redeemed,
            rolled_back=F("rolled_back") + day.rolled_back,
        )
    passed = coupons_to - cursor.coupon_id + redemptions_to - cursor.redemption_id
    cursor.coupon_id, cursor.redemption_id = coupons_to, redemptions_to
    cursor.coupon_seen, cursor.redemption_seen = _highest(Coupon.objects.all()), _highest(Redemption.objects.all())
    cursor.save()
    return passed


def days_read(*, today: date, days: int) -> list[Day] | None:
    """The last days up to and with ``today``, one each; None while the ledger is still being caught up with."""
    first = today - timedelta(days=days - 1)
    cursor, highest_coupon, highest_redemption = _cursor_read()
    late = Coupon.objects.filter(pk__gt=cursor.coupon_id)
    entries = Redemption.objects.filter(pk__gt=cursor.redemption_id)
    if max(highest_coupon - cursor.coupon_id, highest_redemption - cursor.redemption_id) > LATE_MAX:
        return None
    read = {first + timedelta(days=number): Day(first + timedelta(days=number)) for number in range(days)}
    counted = DayTotals.objects.filter(day__gte=first, day__lte=today)
    kept = {row.day: Day(row.day, row.won, row.redeemed, row.rolled_back) for row in counted}
    for part in (kept, _days(late, entries)):
        for day in part.values():
            if day.day in read:
                there = read[day.day]
                there.won += day.won
                there.redeemed += day.redeemed
                there.rolled_back += day.rolled_back
    return list(read.values())


def _cursor_read() -> tuple[DayCursor, int, int]:
    """How far is counted, and the highest ids of coupons and redemptions: one query, for a page has few to spend."""

    def newest(model: type[Coupon] | type[Redemption]) -> Coalesce:
        rows: QuerySet[Any] = model.objects.order_by("-pk")
        return Coalesce(Subquery(rows.values("pk")[:1]), 0)

    read = DayCursor.objects.filter(pk=1).annotate(coupons=newest(Coupon), redemptions=newest(Redemption)).first()
    if read is None:
        return DayCursor(), _highest(Coupon.objects.all()), _highest(Redemption.objects.all())
    return read, read.coupons, read.redemptions


def _days(coupons: QuerySet[Coupon], redemptions: QuerySet[Redemption]) -> dict[date, Day]:
    found: dict[date, Day] = {}
    won = coupons.order_by().annotate(slot=Slot("seized_at", width_s=SLOT_S)).values_list("slot")
    for slot, number in won.annotate(number=Count("pk")):
        day = _day_of(slot)
        found.setdefault(day, Day(day)).won += number
    entries = redemptions.order_by().annotate(slot=Slot("created_at", width_s=SLOT_S)).values_list("slot", "entry")
    for slot, entry, number in entries.annotate(number=Count("pk")):
        day = _day_of(slot)
        there = found.setdefault(day, Day(day))
        if entry == Redemption.Entry.REDEEM:
            there.redeemed += number
        else:
            there.rolled_back += number
    return found


def _day_of(slot: int) -> date:
    return datetime.fromtimestamp(slot * SLOT_S, tz=timezone.get_default_timezone()).date()


def _highest(rows: QuerySet[Any]) -> int:
    highest: int | None = rows.order_by().aggregate(highest=Max("pk"))["highest"]
    return highest or 0
