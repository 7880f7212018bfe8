"""Celery's entry points: each one call into the domain. Every task may run twice, at once, or late."""

from celery import shared_task
from django.utils import timezone

from activities import services
from activities.expiry import coupons_expire
from seize.services import server_time
from sync import comparison, counts, days, dispatch, reconcile, settling


@shared_task(name="sync.dispatch")
def dispatch_second() -> dict[str, object]:
    """Compare and mend, and one drain per waiting queue. Repeating finds less to do."""
    return dispatch.dispatch()


@shared_task(name="sync.sweep")
def sweep() -> dict[str, object]:
    """The same once a minute, never expiring: the safety net when hosts' clocks differ. Repeating finds less to do."""
    return dispatch.dispatch()


@shared_task(name="sync.drain_queue", acks_late=True)
def drain_queue(*, shard: int) -> dict[str, object]:
    """Move one queue's claims to the ledger. A claim that is a row already is left alone."""
    return dispatch.drain_and_go_on(shard=shard)


@shared_task(name="sync.rebuild_activity", acks_late=True)
def rebuild_activity(*, activity_id: int) -> dict[str, object]:
    """Make an activity in Redis anew from the ledger, if it still needs it. A second owner meets the fence."""
    return comparison.activity_mend(activity_id=activity_id)


@shared_task(name="sync.preheat")
def preheat() -> dict[str, object]:
    """Rules and list of all activities. Absolute values, so repeating changes nothing."""
    return comparison.preheat_all()


@shared_task(name="sync.refresh_statuses")
def refresh_statuses() -> dict[str, int]:
    """Stored statuses follow Redis' clock, and what is long over is settled. Conditional updates only."""
    now = server_time()
    return {**services.statuses_refresh(now=now), "settled": settling.activities_settle(now=now)}


@shared_task(name="sync.reconcile")
def reconcile_all() -> dict[str, int]:
    """Hold Redis against the ledger by counts and names. Reads, and repairs by a rebuild, which may repeat."""
    return reconcile.activities_reconcile(now=timezone.now())


@shared_task(name="sync.expire_coupons")
def expire_coupons() -> dict[str, int]:
    """Overdue coupons expire, those of voided activities become void. Conditional updates only."""
    return coupons_expire(now=server_time())


@shared_task(name="sync.keep_counts")
def keep_counts() -> dict[str, int]:
    """What Redis counted is kept, and what the ledger entered is counted by the day. Repeating finds nothing new."""
    return {"days": days.days_count(), "kept": counts.counts_keep(now=timezone.now())}
