"""The back office's first page: what sells, what waits, what is wrong; a dozen short queries at most."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from django.utils import timezone

from activities.admission import STORE_FAULTS
from activities.models import Activity
from activities.querysets import UNFINISHED
from activities.statuses import EffectiveStatus
from seize import desk
from sync.days import Day, days_read
from sync.health import differing, queue_states
from sync.models import DeadLetter, Reconciliation

DAYS = 14
ROWS_MAX = 20  # activities that are shown
LETTERS_MAX = 1000  # beyond it the number does not matter


@dataclass(slots=True)
class Offer:
    """An activity that sells or will."""

    activity: Activity
    status: EffectiveStatus
    changes_ms: int
    left: int | None = None

    @property
    def sold_percent(self) -> int | None:
        """How much of the stock is gone; None while Redis is away or does not know the activity."""
        if self.left is None:
            return None
        return round(100 * (self.activity.stock_total - self.left) / self.activity.stock_total)


@dataclass(slots=True)
class Board:
    """What one person may see; None where they may not, or while it cannot be asked."""

    offers: list[Offer] | None = None
    days: list[Day] | None = None
    sees_days: bool = False
    redis_away: bool = False
    waiting: int | None = None
    oldest_s: float | None = None
    differing: list[Reconciliation] | None = None
    letters: int | None = None
    letters_more: bool = False
    today: Day | None = field(default=None)


def dashboard_read(*, may: Callable[[str], bool], now: datetime) -> Board:
    """The first page for somebody who may do what ``may`` says.

    :param may: "app.permission" → whether the person has it.
    """
    board = Board()
    if may("activities.view_activity"):
        board.offers = _offers(board, now=now)
    if may("activities.view_coupon"):
        board.sees_days = True
        board.days = days_read(today=timezone.localdate(now), days=DAYS)
        board.today = board.days[-1] if board.days else None
    if may("sync.view_reconciliation"):
        board.differing = differing()
        try:
            states = queue_states()
            board.waiting = sum(state.waiting for state in states)
            board.oldest_s = max((state.oldest_s for state in states if state.oldest_s is not None), default=None)
        except STORE_FAULTS:
            board.redis_away = True
    if may("sync.view_deadletter"):
        rows = DeadLetter.objects.filter(state=DeadLetter.State.WAITING).order_by()
        number = rows.values("pk")[: LETTERS_MAX + 1].count()
        board.letters, board.letters_more = min(number, LETTERS_MAX), number > LETTERS_MAX
    return board


def _offers(board: Board, *, now: datetime) -> list[Offer]:
    rows = Activity.objects.filter(status__in=UNFINISHED, ends_at__gt=now).order_by("starts_at", "pk")[:ROWS_MAX]
    offers = []
    for activity in rows:
        status = activity.effective_status(now=now)
        changes_at = activity.starts_at if status == EffectiveStatus.UPCOMING else activity.ends_at
        offers.append(Offer(activity, status, int(changes_at.timestamp() * 1000)))
    try:
        left = desk.stock_left([offer.activity.pk for offer in offers]) if offers else {}
    except STORE_FAULTS:
        board.redis_away, left = True, {}
    for offer in offers:
        offer.left = left.get(offer.activity.pk)
    return offers
