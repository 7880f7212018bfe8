"""Rebuild: an activity's stock and holders in Redis made anew from everything that counts as claimed.

It is also the first load of an activity (with nothing claimed). While it runs the activity is
fenced off and sells nothing; every write is a script that checks that the fence is still ours
and that Redis is still the same process.
"""

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from django.db import connection, transaction

from activities.admission import activity_preheat, listed_publish, rules_of
from activities.models import Activity, Coupon
from seize import desk, queue, store
from seize.claims import claim_parse
from seize.keys import shard_of
from sync.models import DeadLetter

log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]  # step, done, total (0 = not known)

LEASE_MS = 10_000
CHUNK = 1000  # holders a script call


class RebuildLost(Exception):
    """Another owner took over, or Redis was restarted: the next comparison begins anew."""


@dataclass(slots=True)
class _Claimed:
    """What counts as claimed: the ledger's rows, and what is not a row yet; and every user's highest seq.

    Rows are unique in the ledger and only counted; a set is kept of the others alone, so that memory
    follows the backlog. A discarded seq does not count, but is never given out again.
    """

    rows: int = 0
    others: set[tuple[int, int]] = field(default_factory=set)
    holders: dict[int, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.rows + len(self.others)

    def other(self, user_id: int, seq: int, *, counts: bool) -> None:
        if counts:
            self.others.add((user_id, seq))
        self._held(user_id, seq)

    def row(self, user_id: int, seq: int) -> None:
        self.rows += 1
        self.others.discard((user_id, seq))
        self._held(user_id, seq)

    def _held(self, user_id: int, seq: int) -> None:
        if seq > self.holders.get(user_id, 0):
            self.holders[user_id] = seq


def activity_rebuild(*, activity_id: int, progress: Progress | None = None) -> dict[str, object]:
    """Rebuild one published activity in Redis; safe to repeat, and to run twice at once.

    :param progress: called now and then with the step, how much is done, and of how much.
    :return: ``{"state": "rebuilt" | "fenced" | "gone", "claims": …, "holders": …}``; fenced = another owner is at it.
    :raises RebuildLost: the fence was lost on the way.
    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    if not Activity.objects.watched().filter(pk=activity_id).exists():
        return {"state": "gone"}
    token = secrets.token_hex(16)
    if desk.rebuild_begin(activity_id=activity_id, token=token, lease_ms=LEASE_MS) > 0:
        return {"state": "fenced"}
    try:
        result = _rebuild(activity_id, token=token, progress=progress or _no_progress)
    except Exception:
        _fence_give_up(activity_id, token=token)
        raise
    log.info("rebuilt activity %s: %s", activity_id, result)
    return result


def _rebuild(activity_id: int, *, token: str, progress: Progress) -> dict[str, object]:
    """The steps behind the fence."""
    activity = _epoch_raise(activity_id)
    claimed = _claims_collect(activity, token=token, progress=progress)
    _holders_write(activity_id, claimed.holders, token=token, progress=progress)
    listed_publish(activity, force=True)
    if not desk.rebuild_finish(rules=rules_of(activity), token=token, claims=claimed.count):
        raise RebuildLost(f"activity {activity_id}")
    # What was committed while the fence stood.
    _session_renew()
    activity_preheat(Activity.objects.get(pk=activity_id))
    return {"state": "rebuilt", "claims": claimed.count, "holders": len(claimed.holders)}


def _fence_give_up(activity_id: int, *, token: str) -> None:
    """Let the next comparison begin anew at once instead of after the lease; the fence itself stays."""
    try:
        desk.rebuild_holders(activity_id=activity_id, token=token, lease_ms=1, reset=False)
    except (store.StoreUnavailable, store.OutcomeUnknown) as fault:
        log.warning("the fence of activity %s stands until its lease is over: %s", activity_id, fault)


def _session_renew() -> None:
    """Read on a fresh database session: the old one may have been idle for longer than the server keeps it."""
    if not connection.in_atomic_block:
        connection.close()


def _epoch_raise(activity_id: int) -> Activity:
    """Make every drain that scanned before this moment roll back."""
    with transaction.atomic():
        activity = Activity.objects.select_for_update().get(pk=activity_id)
        activity.epoch += 1
        activity.save(update_fields=["epoch"])
    return activity


def _claims_collect(activity: Activity, *, token: str, progress: Progress) -> _Claimed:
    """Queue, then dead letters, then rows: a claim only ever moves in this direction, so none is missed."""
    claimed = _Claimed()
    discarded = {
        (user_id, seq, seized_ms)
        for user_id, seq, seized_ms, state in letters_read(activity)
        if state == DeadLetter.State.DISCARDED
    }
    for number, entry in enumerate(queue.queue_entries(shard=shard_of(activity.pk), activity_id=activity.pk), start=1):
        claim = claim_parse(entry)
        if claim is not None and claim.uid == activity.uid:
            counts = (claim.user_id, claim.seq, claim.seized_ms) not in discarded
            claimed.other(claim.user_id, claim.seq, counts=counts)
        _fence_keep(activity.pk, token=token, number=number)
    _session_renew()
    for user_id, seq, _seized_ms, state in letters_read(activity):
        claimed.other(user_id, seq, counts=state != DeadLetter.State.DISCARDED)
    rows = Coupon.objects.filter(activity=activity).order_by().values_list("user_id", "seq")
    for number, (user_id, seq) in enumerate(rows.iterator(chunk_size=10 * CHUNK), start=1):
        claimed.row(user_id, seq)
        if _fence_keep(activity.pk, token=token, number=number):
            progress("rows", number, activity.issued)
    return claimed


def letters_read(activity: Activity) -> Iterator[tuple[int, int, int, str]]:
    """(user id, seq, seized_ms, state) of the activity's letters; one with a uid was a claim and has them all."""
    letters = DeadLetter.objects.filter(activity_id=activity.pk, uid=activity.uid)
    for user_id, seq, seized_ms, state in letters.values_list("user_id", "seq", "seized_ms", "state").iterator():
        assert user_id is not None
        assert seq is not None
        assert seized_ms is not None
        yield user_id, seq, seized_ms, state


def _fence_keep(activity_id: int, *, token: str, number: int) -> bool:
    """Renew the fence's lease each ten thousand steps; whether this was one."""
    if number % (10 * CHUNK):
        return False
    if not desk.rebuild_holders(activity_id=activity_id, token=token, lease_ms=LEASE_MS, reset=False):
        raise RebuildLost(f"activity {activity_id}")
    return True


def _no_progress(_step: str, _done: int, _total: int) -> None:
    """Nobody watches."""


def _holders_write(activity_id: int, holders: Mapping[int, int], *, token: str, progress: Progress) -> None:
    """Replace the holders, a chunk a call; the first call forgets what was there."""
    pairs = list(holders.items())
    for start in range(0, max(len(pairs), 1), CHUNK):
        written = desk.rebuild_holders(
            activity_id=activity_id,
            token=token,
            lease_ms=LEASE_MS,
            reset=start == 0,
            holders=dict(pairs[start : start + CHUNK]),
        )
        if not written:
            raise RebuildLost(f"activity {activity_id}")
        progress("holders", min(start + CHUNK, len(pairs)), len(pairs))
