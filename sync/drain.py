"""The drain: claims waiting in Redis become rows in the ledger, one activity's batch in one transaction.

An entry leaves the queue only after its row, or its dead letter, is committed. Everything here
may run twice, at once, or die between any two lines, and still make exactly one coupon a claim.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, transaction

from activities.coupons import coupons_insert
from activities.models import Activity, Coupon
from seize import queue, store
from seize.claims import Claim, claim_parse
from seize.queue import Entry
from sync.models import DeadLetter, fingerprint

log = logging.getLogger(__name__)

Claims = list[tuple[Entry, Claim]]
NO_DEFAULT = 1364  # MySQL's and MariaDB's: a column that this version does not know was added, and wants a value


@dataclass(slots=True)
class DrainResult:
    """What became of the entries of a queue; what Flower shows."""

    shard: int
    inserted: int = 0
    existed: int = 0
    dead: int = 0
    deferred: int = 0
    skipped: bool = False
    more: bool = False  # time was over before the queue was empty: send another drain

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    def add(self, other: "DrainResult") -> None:
        self.inserted += other.inserted
        self.existed += other.existed
        self.dead += other.dead
        self.deferred += other.deferred


class _EpochChanged(Exception):
    """Redis and the row disagree on the epoch: a rebuild is due or under way; leave the entries."""


def queue_drain(*, shard: int, batch_size: int, lease_ms: int, budget_s: float) -> DrainResult:
    """Drain one queue until it is empty, nothing moves any more, or ``budget_s`` seconds are over.

    One drain a queue at a time (S20): while another holds the lease this one does nothing.
    The lease only saves work; a second drain at the same time is harmless. So a Redis whose
    memory is full, and that grants no lease, is drained without one: nothing else frees it.

    :raises seize.store.StoreUnavailable: Redis is not there; entries are where they were.
    """
    result = DrainResult(shard=shard)
    lease = store.Lease(f"drain:{shard}", lease_ms=lease_ms)
    try:
        result.skipped = not lease.acquire()
    except store.StoreRefused as fault:
        log.warning("draining queue %s without a lease: %s", shard, fault)
    if result.skipped:
        return result
    deadline = time.monotonic() + budget_s
    try:
        while True:
            passed = _queue_pass(shard=shard, batch_size=batch_size, lease=lease, deadline=deadline)
            deferred = passed.deferred
            result.add(passed)
            moved = passed.inserted + passed.existed + passed.dead
            waiting = queue.queue_lengths([shard]) != [0]
            if not (moved and waiting) or time.monotonic() > deadline:
                result.deferred = deferred
                result.more = bool(moved and waiting)
                return result
    finally:
        lease.release()


def _queue_pass(*, shard: int, batch_size: int, lease: store.Lease, deadline: float) -> DrainResult:
    """Follow the cursor through the queue once; starting again at 0 after each batch would starve the rest.

    Entries are gathered per activity until a batch is full: a transaction costs the same for ten rows as for one.
    What is left is drained at the end of the pass, which comes at ``deadline`` at the latest. An activity that has
    to wait (a locked row, a rebuild) is left out for the rest of the pass: its neighbours do not wait with it.
    """
    result = DrainResult(shard=shard)
    gathered: dict[int | None, list[Entry]] = {}
    waiting: set[int | None] = set()
    cursor = 0
    while True:
        cursor, entries = queue.queue_scan(shard=shard, cursor=cursor, count=batch_size)
        for entry in entries:
            claim = claim_parse(entry)
            gathered.setdefault(claim.activity_id if claim else None, []).append(entry)
        over = cursor == 0 or time.monotonic() > deadline
        for activity_id, batch in gathered.items():
            while len(batch) >= batch_size or (over and batch):
                part = batch[:batch_size]
                del batch[:batch_size]
                if activity_id in waiting:
                    result.deferred += len(part)
                    continue
                drained = batch_drain(shard=shard, activity_id=activity_id, batch=part)
                result.add(drained)
                if drained.deferred:
                    waiting.add(activity_id)
                lease.keep()
        if over:
            return result


def batch_drain(*, shard: int, activity_id: int | None, batch: Sequence[Entry]) -> DrainResult:
    """Settle one activity's entries (None = malformed ones) and delete them from the queue.

    Passing faults (a lock wait, a deadlock, a lost connection, a table that is being migrated)
    leave the entries for the next pass. A fault of the data is narrowed down by halves until the
    entry that causes it is alone, and that one becomes a dead letter.
    """
    try:
        result, done = _batch_settle(shard=shard, activity_id=activity_id, batch=batch)
    except _EpochChanged:
        return DrainResult(shard=shard, deferred=len(batch))
    except (DataError, IntegrityError) as fault:
        if fault.args[:1] == (NO_DEFAULT,):
            log.warning("activity %s: %d claims wait for a worker that knows the newer table", activity_id, len(batch))
            return DrainResult(shard=shard, deferred=len(batch))
        if len(batch) > 1:
            result = batch_drain(shard=shard, activity_id=activity_id, batch=batch[: len(batch) // 2])
            result.add(batch_drain(shard=shard, activity_id=activity_id, batch=batch[len(batch) // 2 :]))
            return result
        log.exception("activity %s: the database refuses a claim", activity_id)
        with transaction.atomic():
            dead = _letters_write([DeadLetter.of(batch[0], reason=DeadLetter.Reason.DATA, detail=str(fault))])
        result, done = DrainResult(shard=shard, dead=dead), list(batch)
    except (DatabaseError, InterfaceError) as fault:
        log.warning("activity %s: %d claims wait on: %s", activity_id, len(batch), fault)
        return DrainResult(shard=shard, deferred=len(batch))
    queue.queue_delete(shard=shard, entries=done)
    return result


@transaction.atomic
def _batch_settle(*, shard: int, activity_id: int | None, batch: Sequence[Entry]) -> tuple[DrainResult, list[Entry]]:
    """Write a batch's rows and dead letters; returns counts and the entries that the ledger now has.

    The first statement locks the activity's row: a read before the lock could be stale after it.

    :raises _EpochChanged: a rebuild is due; nothing is written.
    """
    result = DrainResult(shard=shard)
    reasons = DeadLetter.Reason
    if activity_id is None:
        result.dead = _letters_write([DeadLetter.of(entry, reason=reasons.MALFORMED) for entry in batch])
        return result, list(batch)

    activity = Activity.objects.select_for_update().published().filter(pk=activity_id).first()
    epoch, held = queue.drain_check(activity_id=activity_id, entries=batch)
    claims = _known(batch, held)
    letters: list[DeadLetter] = []
    if activity is None:
        letters = [DeadLetter.of(entry, reason=reasons.NO_ACTIVITY) for entry, _claim in claims]
        result.dead = _letters_write(letters)
        return result, [entry for entry, _claim in claims]

    foreign = [(entry, claim) for entry, claim in claims if claim.uid != activity.uid]
    letters += [DeadLetter.of(entry, reason=reasons.OTHER_UID) for entry, _claim in foreign]
    done = [entry for entry, _claim in foreign]
    own = [(entry, claim) for entry, claim in claims if claim.uid == activity.uid]
    if own and epoch != str(activity.epoch):
        if not letters:
            raise _EpochChanged
        result.deferred, own = len(own), []

    lettered = _lettered(own, activity_id)
    done += [entry for entry, _claim in own]
    if lettered:
        own = [(entry, claim) for entry, claim in own if fingerprint(entry) not in lettered]
    result.existed = len(lettered)

    # The ledger's guard: whatever Redis said, there are never more rows than coupons. Earliest first.
    own.sort(key=lambda pair: (pair[1].seized_ms, pair[1].user_id, pair[1].seq))
    room = room_of(activity)
    if len(own) <= room and _all_new(own, activity):
        result.inserted = len(own)
    else:
        fresh, replays, conflicts = _compared_with_rows(own, activity)
        result.existed += len(replays)
        letters += [DeadLetter.of(entry, reason=reasons.CONFLICT) for entry, _claim in conflicts]
        letters += [DeadLetter.of(entry, reason=reasons.NO_ROOM) for entry, _claim in fresh[room:]]
        coupons_insert(claims=[claim for _entry, claim in fresh[:room]], activity=activity)
        result.inserted = len(fresh[:room])
    if result.inserted:
        activity.issued += result.inserted
        activity.save(update_fields=["issued"])
    result.dead = _letters_write(letters)
    return result, done


def _known(batch: Sequence[Entry], held: Sequence[bool]) -> Claims:
    """The entries that are still in the queue with the value that was scanned, each with its claim.

    An entry may be scanned twice; it counts once.
    """
    standing = dict.fromkeys(entry for entry, is_held in zip(batch, held, strict=True) if is_held)
    parsed = ((entry, claim_parse(entry)) for entry in standing)
    return [(entry, claim) for entry, claim in parsed if claim is not None]


def _lettered(claims: Claims, activity_id: int) -> set[str]:
    """Fingerprints of claims that have a dead letter in any state: they are decided elsewhere.

    A letter's activity is its claim's. Most activities have no letter at all, which one look into the index tells.
    """
    if not claims or not DeadLetter.objects.filter(activity_id=activity_id).exists():
        return set()
    found = DeadLetter.objects.filter(fingerprint__in=[fingerprint(entry) for entry, _claim in claims])
    return set(found.values_list("fingerprint", flat=True))


def _all_new(claims: Claims, activity: Activity) -> bool:
    """Insert all, unless UNIQUE knows one of them: then nothing is inserted, and they must be compared.

    Nearly always all are new, and being told so by the index costs nothing, where asking first is a query a batch.
    Only for claims that there is room for: replays of a full activity must not be taken for overflow.
    """
    try:
        with transaction.atomic():
            coupons_insert(claims=[claim for _entry, claim in claims], activity=activity)
    except IntegrityError:
        return False
    return True


def _compared_with_rows(claims: Claims, activity: Activity) -> tuple[Claims, Claims, Claims]:
    """Claims that are new, that are rows already, and that contradict a row (same coupon, another time)."""
    users = {claim.user_id for _entry, claim in claims}
    rows = Coupon.objects.filter(activity=activity, user_id__in=users) if users else Coupon.objects.none()
    seized = {(user_id, seq): at for user_id, seq, at in rows.values_list("user_id", "seq", "seized_at")}
    fresh: Claims = []
    replays: Claims = []
    conflicts: Claims = []
    for entry, claim in claims:
        row_seized_at = seized.get((claim.user_id, claim.seq))
        if row_seized_at is None:
            fresh.append((entry, claim))
        elif row_seized_at == claim.seized_at:
            replays.append((entry, claim))
        else:
            conflicts.append((entry, claim))
    return fresh, replays, conflicts


def _letters_write(letters: Sequence[DeadLetter]) -> int:
    """Store letters that are not there yet; the number given."""
    DeadLetter.objects.bulk_create(letters, ignore_conflicts=True)
    for letter in letters:
        log.error("dead letter: %s %s: %s %s", letter.field, letter.value, letter.reason, letter.detail)
    return len(letters)


def room_of(activity: Activity) -> int:
    """How many more coupons the ledger may hold; true only under the row's lock."""
    return activity.stock_total - activity.issued
