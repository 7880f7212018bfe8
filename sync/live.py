"""What is known of an activity while it sells: cheap enough to be asked each second by every process."""

from dataclasses import dataclass, field
from datetime import datetime

from activities.admission import STORE_FAULTS
from activities.models import Activity
from activities.statuses import EffectiveStatus
from seize import desk, queue
from seize.claims import claim_parse
from seize.counting import Counts, Second
from seize.keys import shard_of
from sync.counts import counts_kept, counts_of
from sync.models import DeadLetter, Reconciliation

SCAN_MAX = 1_000  # entries of a queue that are looked at one by one
SAMPLE = 200  # of a longer queue, for the age of the oldest
RATE_S = 5  # seconds that the rate is the mean of
OVER = (EffectiveStatus.ENDED, EffectiveStatus.VOIDED)


@dataclass(slots=True)
class Waiting:
    """Claims of an activity that are not in the ledger yet, and the age of the oldest that was seen, in s.

    ``is_exact`` is False when the queue was too long to look at each entry: then it is what Redis has sold and the
    ledger does not have.
    """

    number: int = 0
    oldest_s: float | None = None
    is_exact: bool = True


@dataclass(slots=True)
class Live:
    """An activity at an instant. What only Redis knows is None while it is away."""

    activity: Activity
    status: EffectiveStatus
    left: int | None = None
    waiting: Waiting | None = None
    letters: int = 0
    reconciliation: Reconciliation | None = None
    counts: Counts = field(default_factory=Counts)
    rate: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether Redis could not be asked."""
        return self.waiting is None

    @property
    def won(self) -> int:
        """Coupons won, by the ledger and the queue: at the end, the rows."""
        return self.activity.issued + (self.waiting.number if self.waiting else 0)

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in OVER and self.waiting is not None and not self.waiting.number

    @property
    def changes_at(self) -> datetime | None:
        """When the status will change by the clock."""
        if self.status == EffectiveStatus.UPCOMING:
            return self.activity.starts_at
        if self.status in (EffectiveStatus.ONGOING, EffectiveStatus.PAUSED):
            return self.activity.ends_at
        return None


def activity_live(*, activity_id: int, now: datetime) -> Live:
    """The state of an activity.

    :raises activities.models.Activity.DoesNotExist: there is none.
    """
    try:
        # The queue before the row: a claim that moves meanwhile is seen twice for a moment, and never missed.
        length = queue.queue_lengths([shard_of(activity_id)])[0]
        waiting: Waiting | None = _waiting(activity_id, length, now)
        left = desk.stock_left([activity_id]).get(activity_id)
    except STORE_FAULTS:
        waiting, left = None, None
    activity = Activity.objects.get(pk=activity_id)
    live = Live(activity, activity.effective_status(now=now), left, waiting)
    live.letters = DeadLetter.objects.filter(activity_id=activity_id, state=DeadLetter.State.WAITING).count()
    live.reconciliation = Reconciliation.objects.filter(pk=activity_id).first()
    if waiting is not None and not waiting.is_exact:
        sold = activity.stock_total - left if left is not None else length
        waiting.number = min(length, max(0, sold - activity.issued - live.letters))
    try:
        live.counts = counts_of(activity=activity) if waiting is not None else counts_kept(activity=activity)
    except STORE_FAULTS:
        live.counts, live.waiting, live.left = counts_kept(activity=activity), None, None
    if not live.is_away:
        live.rate = rate_of(live.counts.seconds, now_s=int(now.timestamp()))
    return live


def _waiting(activity_id: int, length: int, now: datetime) -> Waiting:
    if not length:
        return Waiting()
    shard, now_ms = shard_of(activity_id), now.timestamp() * 1000
    is_exact = length <= SCAN_MAX
    if is_exact:
        entries = list(queue.queue_entries(shard=shard, activity_id=activity_id))
    else:
        _cursor, entries = queue.queue_scan(shard=shard, cursor=0, count=SAMPLE, activity_id=activity_id)
    seized = {entry.field: claim.seized_ms for entry in entries if (claim := claim_parse(entry)) is not None}
    oldest_s = max(0.0, (now_ms - min(seized.values())) / 1000) if seized else None
    return Waiting(len(seized), oldest_s, is_exact)


def rate_of(seconds: list[Second], *, now_s: int) -> float:
    """Wins per second: the mean of the last ``RATE_S`` seconds that every process has written."""
    last = now_s - 2
    return sum(second.won for second in seconds if last - RATE_S < second.second <= last) / RATE_S
