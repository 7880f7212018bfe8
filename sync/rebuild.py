"""Rebuild: an activity's stock and holders in Redis made anew from everything that counts as claimed.

It is also the first load of an activity (with nothing claimed). While it runs the activity is
fenced off and sells nothing; every write is a script that checks that the fence is still ours
and that Redis is still the same process.
"""

import logging
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from django.db import transaction

from activities.admission import rules_of
from activities.models import Activity, Coupon
from seize import desk, queue
from seize.claims import claim_parse
from seize.keys import shard_of
from sync.models import DeadLetter

log = logging.getLogger(__name__)

LEASE_MS = 10_000
CHUNK = 1000  # holders a script call


class RebuildLost(Exception):
    """Another owner took over, or Redis was restarted: the next comparison begins anew."""


@dataclass(slots=True)
class _Claimed:
    """Everything that counts: distinct (user, seq), and the highest seq a user ever had."""

    taken: set[tuple[int, int]] = field(default_factory=set)
    holders: dict[int, int] = field(default_factory=dict)

    def add(self, user_id: int, seq: int, *, counts: bool = True) -> None:
        """A discarded seq does not count, but is never given out again."""
        if counts:
            self.taken.add((user_id, seq))
        if seq > self.holders.get(user_id, 0):
            self.holders[user_id] = seq


def activity_rebuild(*, activity_id: int) -> dict[str, object]:
    """Rebuild one published activity in Redis; safe to repeat, and to run twice at once.

    :return: ``{"state": "rebuilt" | "fenced" | "gone", "claims": …, "holders": …}``; fenced = another owner is at it.
    :raises RebuildLost: the fence was lost on the way.
    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    if not Activity.objects.published().filter(pk=activity_id).exists():
        return {"state": "gone"}
    token = secrets.token_hex(16)
    if desk.rebuild_begin(activity_id=activity_id, token=token, lease_ms=LEASE_MS) > 0:
        return {"state": "fenced"}

    activity = _epoch_raise(activity_id)
    claimed = _claims_collect(activity, token=token)
    _holders_write(activity_id, claimed.holders, token=token)
    if not desk.rebuild_finish(rules=rules_of(activity), token=token, claims=len(claimed.taken)):
        raise RebuildLost(f"activity {activity_id}")
    # What was committed while the fence stood.
    desk.preheat(rules_of(Activity.objects.get(pk=activity_id)))
    result = {"state": "rebuilt", "claims": len(claimed.taken), "holders": len(claimed.holders)}
    log.info("rebuilt activity %s at epoch %s: %s", activity_id, activity.epoch, result)
    return result


def _epoch_raise(activity_id: int) -> Activity:
    """Make every drain that scanned before this moment roll back."""
    with transaction.atomic():
        activity = Activity.objects.select_for_update().get(pk=activity_id)
        activity.epoch += 1
        activity.save(update_fields=["epoch"])
    return activity


def _claims_collect(activity: Activity, *, token: str) -> _Claimed:
    """Queue, then dead letters, then rows: a claim only ever moves in this direction, so none is missed."""
    claimed = _Claimed()
    discarded = {
        (user_id, seq, seized_ms)
        for user_id, seq, seized_ms, state in _letters_read(activity)
        if state == DeadLetter.State.DISCARDED
    }
    for count, (user_id, seq, counts) in enumerate(_claims_read(activity, discarded), start=1):
        claimed.add(user_id, seq, counts=counts)
        if count % (10 * CHUNK) == 0:
            _fence_keep(activity.pk, token=token)
    return claimed


def _claims_read(activity: Activity, discarded: set[tuple[int, int, int]]) -> Iterator[tuple[int, int, bool]]:
    """(user id, seq, whether it counts) of every claim, some more than once."""
    for entry in queue.queue_entries(shard=shard_of(activity.pk), activity_id=activity.pk):
        claim = claim_parse(entry)
        if claim is not None and claim.uid == activity.uid:
            counts = (claim.user_id, claim.seq, claim.seized_ms) not in discarded
            yield claim.user_id, claim.seq, counts
    for user_id, seq, _seized_ms, state in _letters_read(activity):
        yield user_id, seq, state != DeadLetter.State.DISCARDED
    rows = Coupon.objects.filter(activity=activity).order_by()
    for user_id, seq in rows.values_list("user_id", "seq").iterator(chunk_size=10 * CHUNK):
        yield user_id, seq, True


def _letters_read(activity: Activity) -> Iterator[tuple[int, int, int, str]]:
    """(user id, seq, seized_ms, state) of the activity's letters; one with a uid was a claim and has them all."""
    letters = DeadLetter.objects.filter(activity_id=activity.pk, uid=activity.uid)
    for user_id, seq, seized_ms, state in letters.values_list("user_id", "seq", "seized_ms", "state").iterator():
        assert user_id is not None
        assert seq is not None
        assert seized_ms is not None
        yield user_id, seq, seized_ms, state


def _fence_keep(activity_id: int, *, token: str) -> None:
    if not desk.rebuild_holders(activity_id=activity_id, token=token, lease_ms=LEASE_MS, reset=False):
        raise RebuildLost(f"activity {activity_id}")


def _holders_write(activity_id: int, holders: Mapping[int, int], *, token: str) -> None:
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
