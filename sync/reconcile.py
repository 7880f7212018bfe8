"""Reconciliation: does Redis agree with the ledger, while the sale goes on?

What is sold is read first and last, what is claimed in between (queue, dead letters, rows, in the
direction in which claims move). On a healthy sale sold_first ≤ claims ≤ sold_last; every order that
reads each side once reports differences that are not there. Counts are compared first, names only
when counts differed twice running.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from django.db import OperationalError, connection, transaction
from django.db.models import Count, Max

from activities.models import Activity, Coupon
from activities.querysets import CouponQuerySet
from activities.services import activity_pause
from activities.workflow import ActivityRefused
from seize import desk, queue
from seize.claims import claim_parse
from seize.keys import shard_of
from seize.store import StoreRefused
from sync.models import DeadLetter, Reconciliation
from sync.rebuild import RebuildLost, activity_rebuild, letters_read

log = logging.getLogger(__name__)

NAMES_MAX = 100  # differing shoppers that are written down


@dataclass(slots=True)
class _Claims:
    """The ledger's side: coupons taken, shoppers that ever took one, and, where names are asked, their highest seqs."""

    epoch: str = ""
    count: int = 0
    holders_count: int = 0
    holders: dict[int, int] = field(default_factory=dict)


def activities_reconcile(*, now: datetime) -> dict[str, int]:
    """Reconcile every watched activity; how many agree, differ, were skipped.

    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    states: dict[str, int] = {}
    for activity in Activity.objects.watched():
        try:
            state = activity_reconcile(activity_id=activity.pk, now=now).state
        except (RebuildLost, OperationalError, StoreRefused) as fault:
            # One activity's fault must not keep the others unwatched; the next minute tries it again.
            log.warning("activity %s could not be reconciled: %s", activity.pk, fault)
            state = "FAILED"
        states[state] = states.get(state, 0) + 1
    return states


def activity_reconcile(*, activity_id: int, now: datetime, names: bool = False) -> Reconciliation:
    """Reconcile one activity, store the result, and repair by a rebuild what a rebuild repairs.

    :param names: name the differences at once instead of from the second differing run on.
    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    before = Reconciliation.objects.filter(pk=activity_id).first()
    runs = before.differing_runs if before else 0
    result = Reconciliation(activity_id=activity_id, checked_at=now, state=Reconciliation.State.SKIPPED)
    result.differing_runs = runs  # a skipped run says nothing, for the better or the worse
    first = desk.sold_read(activity_id=activity_id)
    claims = _claims_read(activity_id, with_names=False)
    last = desk.sold_read(activity_id=activity_id)
    # The row's epoch is ahead from a discard, or the start of a rebuild, until that rebuild is done.
    if first is not None and last is not None and first.epoch == claims.epoch == last.epoch:
        result.claims, result.sold_first, result.sold_last = claims.count, first.sold, last.sold
        agrees = first.sold <= claims.count <= last.sold
        agrees = agrees and first.holders <= claims.holders_count <= last.holders
        result.state = Reconciliation.State.AGREES if agrees else Reconciliation.State.DIFFERS
        result.differing_runs = 0 if agrees else runs + 1
        if names or result.differing_runs > 1:
            result.differences = _differences(activity_id, first.epoch)
            if any(result.differences.values()):
                result.state = Reconciliation.State.DIFFERS
                result.differing_runs = max(result.differing_runs, 1)
    values = {f.attname: getattr(result, f.attname) for f in Reconciliation._meta.fields if not f.primary_key}
    Reconciliation.objects.update_or_create(activity_id=activity_id, defaults=values)
    if result.state == Reconciliation.State.DIFFERS:
        log.error("activity %s differs: %s", activity_id, _described(result))
        _repair(result)
    return result


def _described(result: Reconciliation) -> dict[str, object]:
    return {
        "claims": result.claims,
        "sold": [result.sold_first, result.sold_last],
        "runs": result.differing_runs,
        **result.differences,
    }


def _claims_read(activity_id: int, *, with_names: bool) -> _Claims:
    """Distinct (user, seq) of queue, letters not discarded, and rows; as holders, the discarded ones too.

    Letters and rows are read from one snapshot, taken after the queue. Counting leaves the rows where they
    are; only what is not a row yet, and the rows of the same shoppers, come here.
    """
    others: set[tuple[int, int]] = set()
    discarded: set[tuple[int, int]] = set()
    waiting = [claim_parse(e) for e in queue.queue_entries(shard=shard_of(activity_id), activity_id=activity_id)]
    found = _Claims()
    with _snapshot():
        activity = Activity.objects.get(pk=activity_id)
        found.epoch = str(activity.epoch)
        given_up: set[tuple[int, int, int]] = set()
        for user_id, seq, seized_ms, state in letters_read(activity):
            if state == DeadLetter.State.DISCARDED:
                discarded.add((user_id, seq))
                given_up.add((user_id, seq, seized_ms))
            else:
                others.add((user_id, seq))
        for claim in waiting:
            if claim is not None and claim.uid == activity.uid:
                is_given_up = (claim.user_id, claim.seq, claim.seized_ms) in given_up
                (discarded if is_given_up else others).add((claim.user_id, claim.seq))
        rows = Coupon.objects.filter(activity=activity).order_by()
        users = {user_id for user_id, _seq in others | discarded}
        there = _rows_of(rows, users)
        totals = rows.aggregate(coupons=Count("id"), users=Count("user_id", distinct=True))
        found.count = totals["coupons"] + len(others - there)
        found.holders_count = totals["users"] + len(users - {user_id for user_id, _seq in there})
        if with_names:
            found.holders = dict(rows.values_list("user_id").annotate(highest=Max("seq")))
    if with_names:
        for user_id, seq in others | discarded:
            found.holders[user_id] = max(seq, found.holders.get(user_id, 0))
    return found


def _rows_of(rows: CouponQuerySet, users: set[int]) -> set[tuple[int, int]]:
    """(user, seq) of the rows of these users, a thousand users a query."""
    ordered = sorted(users)
    found: set[tuple[int, int]] = set()
    for start in range(0, len(ordered), 1000):
        found.update(rows.filter(user_id__in=ordered[start : start + 1000]).values_list("user_id", "seq"))
    return found


def _snapshot() -> transaction.Atomic:
    """A transaction whose reads all see one instant."""
    if connection.vendor == "mysql" and not connection.in_atomic_block:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    return transaction.atomic()


def _differences(activity_id: int, epoch: str) -> dict[str, list[list[int]]]:
    """[user, seq] pairs: claimed but not held in Redis (a rebuild repairs it), and held but claimed nowhere."""
    first = desk.holders_read(activity_id=activity_id)
    claims = _claims_read(activity_id, with_names=True)
    last = desk.holders_read(activity_id=activity_id)
    now = desk.sold_read(activity_id=activity_id)
    if now is None or now.epoch != epoch:
        return {}
    missing = [[user, seq] for user, seq in claims.holders.items() if last.get(user, 0) < seq]
    surplus = [[user, seq] for user, seq in first.items() if claims.holders.get(user, 0) < seq]
    return {"not_held": sorted(missing)[:NAMES_MAX], "held_only": sorted(surplus)[:NAMES_MAX]}


def _repair(result: Reconciliation) -> None:
    """Rebuild where Redis would sell too much. What only Redis holds is reported and left: the ledger may be wrong.

    Both at once: a rebuild would forget what only Redis holds, and selling on would promise what is not there.
    So the activity is paused, and staff decide.
    """
    sells_too_much = result.claims > result.sold_last or bool(result.differences.get("not_held"))
    if result.differing_runs <= 1 or not sells_too_much:
        return
    if result.differences.get("held_only"):
        log.critical("activity %s sells too much, and only Redis holds some of it: paused", result.activity_id)
        with suppress(ActivityRefused):  # paused already, or over
            activity_pause(activity_id=result.activity_id, now=result.checked_at)
    else:
        log.error("activity %s is rebuilt: %s", result.activity_id, activity_rebuild(activity_id=result.activity_id))
