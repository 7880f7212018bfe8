"""Settling: an activity that is over and wholly in the ledger leaves Redis, all but its small rules."""

import logging
from datetime import datetime, timedelta

from activities.models import Activity
from activities.statuses import ActivityStatus
from seize import desk, queue
from seize.keys import shard_of
from sync.counts import activity_counts_keep
from sync.models import DeadLetter

log = logging.getLogger(__name__)

GRACE = timedelta(days=1)  # so long a shopper who asks again still hears "you have it" from Redis


def activities_settle(*, now: datetime) -> int:
    """Settle every activity that ended a day ago and has nothing on its way; the number settled.

    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    over = Activity.objects.watched().filter(
        status__in=[ActivityStatus.ENDED, ActivityStatus.VOIDED], ends_at__lte=now - GRACE
    )
    return sum(activity_settle(activity=activity, now=now) for activity in over)


def activity_settle(*, activity: Activity, now: datetime) -> bool:
    """Settle one activity if no claim of it waits in a queue and the counts agree."""
    if any(True for _entry in queue.queue_entries(shard=shard_of(activity.pk), activity_id=activity.pk)):
        return False
    activity.refresh_from_db()
    letters = DeadLetter.objects.filter(activity_id=activity.pk, uid=activity.uid, state=DeadLetter.State.WAITING)
    taken = activity.issued + letters.count()
    left = desk.stock_left([activity.pk]).get(activity.pk)
    if left is None or activity.stock_total - left != taken:
        log.warning("activity %s is not settled: stock %s, taken %s", activity.pk, left, taken)
        return False
    activity_counts_keep(activity_id=activity.pk, uid=activity.uid, now=now)  # nobody looks at it again
    if not desk.settle(activity_id=activity.pk, uid=activity.uid, epoch=activity.epoch):
        return False
    Activity.objects.filter(pk=activity.pk, epoch=activity.epoch).update(settled_at=now)
    return True
