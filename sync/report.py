"""What came of a sale, in figures that equal SQL over the ledger; only refusals are counted elsewhere."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.core.cache import cache
from django.db.models import Count, Max, Min, Sum

from activities.admission import STORE_FAULTS
from activities.models import Activity, Coupon, Redemption
from activities.statuses import ActivityStatus, CouponStatus, EffectiveStatus
from seize.counting import Bucket, Counts
from sync.counts import counts_kept, counts_of
from sync.live import activity_live
from sync.slots import Slot

POINTS_MAX = 240  # of a chart
WIDTHS_S = (1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 21_600, 86_400)
FACTS_KEPT_S = 3600
ZERO = Decimal("0.00")


@dataclass(frozen=True, slots=True)
class Facts:
    """How coupons were won, by the seconds in which Redis gave them; changes only when a row comes in.

    ``given``: what the coupons are worth at most, in yuan; None where a percentage has no cap. ``wins``: (first second,
    number) of slots ``width_s`` seconds wide, those in which somebody won.
    """

    rows: int
    first_at: datetime | None
    last_at: datetime | None
    given: Decimal | None
    peak: int
    peak_at: datetime | None
    width_s: int
    wins: list[tuple[int, int]]

    @property
    def duration_s(self) -> float:
        """Seconds from the first win to the last."""
        return (self.last_at - self.first_at).total_seconds() if self.first_at and self.last_at else 0.0

    @property
    def mean(self) -> float:
        """Wins per second from the first to the last; a sale within one second is one second long."""
        return self.rows / max(self.duration_s, 1.0)


@dataclass(slots=True)
class Report:
    """A sale, as the ledger has it at an instant. Money in yuan."""

    activity: Activity
    status: EffectiveStatus
    facts: Facts
    waiting: int | None
    letters: int
    unused: int = 0
    redeemed: int = 0
    expired: int = 0
    voided: int = 0
    redemptions: int = 0
    rolled_back: int = 0
    discount: Decimal = ZERO
    counts: Counts = field(default_factory=Counts)

    @property
    def issued(self) -> int:
        """Rows of the ledger."""
        return self.facts.rows

    @property
    def sold_out_at(self) -> datetime | None:
        """When the last coupon was won, if it was the last."""
        return self.facts.last_at if self.issued >= self.activity.stock_total else None

    @property
    def refusals(self) -> list[Bucket]:
        """Refusals over time, those buckets in which somebody was refused."""
        return [bucket for bucket in self.counts.buckets if bucket.refused]


def activity_report(*, activity_id: int, now: datetime) -> Report:
    """The report of an activity; redemptions and statuses as of ``now``.

    :raises activities.models.Activity.DoesNotExist: there is none.
    """
    live = activity_live(activity_id=activity_id, now=now)
    activity = live.activity
    report = Report(
        activity,
        live.status,
        facts_of(activity=activity),
        waiting=live.waiting.number if live.waiting else None,
        letters=live.letters,
    )
    _statuses_add(report, now=now)
    entries = Redemption.objects.filter(activity=activity).order_by().values_list("entry")
    for entry, number, discount in entries.annotate(number=Count("pk"), discount=Sum("discount")):
        if entry == Redemption.Entry.REDEEM:
            report.redemptions = number
            report.discount += discount
        else:
            report.rolled_back = number
            report.discount -= discount
    report.discount = report.discount.quantize(ZERO)  # SQLite sums binary fractions
    try:
        report.counts = counts_of(activity=activity)
    except STORE_FAULTS:
        report.counts = counts_kept(activity=activity)
    return report


def _statuses_add(report: Report, *, now: datetime) -> None:
    """Coupons by the status that holds at ``now``: what is stored, corrected as every page corrects it."""
    # Each status and the activity: four short ranges of one index, and no row is looked at.
    rows = Coupon.objects.filter(activity=report.activity, status__in=CouponStatus.values).order_by()
    stored = dict(rows.values_list("status").annotate(number=Count("pk")))
    unused = stored.get(CouponStatus.UNUSED, 0)
    report.redeemed = stored.get(CouponStatus.REDEEMED, 0)
    report.expired = stored.get(CouponStatus.EXPIRED, 0)
    report.voided = stored.get(CouponStatus.VOIDED, 0)
    if report.activity.status == ActivityStatus.VOIDED:
        report.voided += unused
        return
    # Those of a minute at most: the next run stores them.
    overdue = Coupon.objects.overdue(now=now).filter(activity=report.activity).count() if unused else 0
    report.expired += overdue
    report.unused = unused - overdue


def facts_of(*, activity: Activity) -> Facts:
    """How an activity's coupons were won: two walks over its rows, remembered until another row comes in."""
    key = f"report:{activity.uid}:{activity.issued}"
    known = cache.get(key)
    if isinstance(known, Facts):
        return known
    facts = _facts_read(activity)
    if facts.rows == activity.issued:
        cache.set(key, facts, FACTS_KEPT_S)
    return facts


def _facts_read(activity: Activity) -> Facts:
    rows = Coupon.objects.filter(activity=activity).order_by()
    column = "amount_off" if activity.kind == Activity.Kind.FIXED else "max_off"
    sums: dict[str, Any] = rows.aggregate(
        rows=Count("pk"), first=Min("seized_at"), last=Max("seized_at"), given=Sum(column), priced=Count(column)
    )
    peak, peak_at = 0, None
    seconds: dict[int, int] = {}
    by_second = rows.annotate(second=Slot("seized_at")).values_list("second").annotate(number=Count("pk"))
    for second, number in by_second.iterator():
        seconds[second] = number
        if number > peak or (number == peak and peak_at is not None and second < peak_at):
            peak, peak_at = number, second
    width_s, wins = slots_of(seconds)
    return Facts(
        rows=sums["rows"],
        first_at=sums["first"],
        last_at=sums["last"],
        given=(sums["given"] or ZERO).quantize(ZERO) if sums["priced"] == sums["rows"] else None,
        peak=peak,
        peak_at=None if peak_at is None else datetime.fromtimestamp(peak_at, tz=UTC),
        width_s=width_s,
        wins=wins,
    )


def slots_of(seconds: dict[int, int]) -> tuple[int, list[tuple[int, int]]]:
    """Second → number as the narrowest slots of which a chart has room: (width in s, (first second, number) each)."""
    if not seconds:
        return 1, []
    span = max(seconds) - min(seconds) + 1
    width_s = next((width for width in WIDTHS_S if span <= width * POINTS_MAX), WIDTHS_S[-1])
    slots: dict[int, int] = {}
    for second, number in seconds.items():
        first = second - second % width_s
        slots[first] = slots.get(first, 0) + number
    return width_s, sorted(slots.items())
