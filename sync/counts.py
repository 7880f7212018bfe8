"""Counted outcomes beyond Redis: kept in the ledger's database each minute, so that a report outlives Redis."""

import logging
from datetime import datetime

from django.db import transaction

from activities.models import Activity
from seize.counting import Bucket, Counts, counts_read
from seize.store import StoreRefused
from sync.models import SaleCounts

log = logging.getLogger(__name__)


def counts_keep(*, now: datetime) -> int:
    """Keep the counts of every watched activity; how many had new ones.

    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    kept = 0
    for activity_id, uid in Activity.objects.watched().order_by("pk").values_list("pk", "uid"):
        try:
            kept += activity_counts_keep(activity_id=activity_id, uid=uid, now=now)
        except StoreRefused as fault:  # one activity's, or one shard's
            log.warning("counts of activity %s could not be kept: %s", activity_id, fault)
    return kept


def activity_counts_keep(*, activity_id: int, uid: str, now: datetime) -> bool:
    """Keep one activity's counts: what Redis has by now, on top of what it had before it was emptied.

    :return: whether there was anything new.
    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    counts = counts_read(activity_id=activity_id, uid=uid)
    if not counts.life:
        return False
    with transaction.atomic():
        kept, _made = SaleCounts.objects.select_for_update().get_or_create(
            activity_id=activity_id, defaults={"counted_at": now}
        )
        if kept.life != counts.life:
            kept.life, kept.before = counts.life, {"totals": kept.totals, "buckets": kept.buckets}
        before = _counts_of(kept.before)
        totals = _sum(before.totals, counts.totals)
        if totals == kept.totals:
            return False
        kept.totals, kept.width_s, kept.counted_at = totals, counts.width_s, now
        kept.buckets = [list(bucket) for bucket in _buckets_sum(before.buckets, counts.buckets)]
        kept.save()
    return True


def counts_of(*, activity: Activity) -> Counts:
    """What was counted of an activity: of Redis with the lives before, or what was kept when Redis has nothing.

    :raises seize.store.StoreUnavailable: Redis is not there; :func:`counts_kept` has what was kept.
    """
    counts = counts_read(activity_id=activity.pk, uid=activity.uid)
    kept = SaleCounts.objects.filter(pk=activity.pk).first()
    if kept is None:
        return counts
    if not counts.life:
        return counts_kept(activity=activity)
    before = _counts_of(kept.before if kept.life == counts.life else {"totals": kept.totals, "buckets": kept.buckets})
    return Counts(
        totals=_sum(before.totals, counts.totals),
        seconds=counts.seconds,
        buckets=_buckets_sum(before.buckets, counts.buckets),
        width_s=counts.width_s,
        life=counts.life,
    )


def counts_kept(*, activity: Activity) -> Counts:
    """What was kept in the database; at most a minute behind."""
    kept = SaleCounts.objects.filter(pk=activity.pk).first()
    if kept is None:
        return Counts()
    return _counts_of({"totals": kept.totals, "buckets": kept.buckets}, width_s=kept.width_s)


def _counts_of(stored: dict, *, width_s: int = 0) -> Counts:
    buckets = [Bucket(*bucket) for bucket in stored.get("buckets", [])]
    return Counts(totals=stored.get("totals", {}), buckets=buckets, width_s=width_s)


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in sorted({*first, *second})}


def _buckets_sum(first: list[Bucket], second: list[Bucket]) -> list[Bucket]:
    sums: dict[int, Bucket] = {}
    for bucket in (*first, *second):
        there = sums.get(bucket.first, Bucket(bucket.first, 0, 0))
        sums[bucket.first] = Bucket(bucket.first, there.won + bucket.won, there.refused + bucket.refused)
    return [sums[key] for key in sorted(sums)]
