"""What the tests of the drain do to an activity and ask of it."""

import threading

from django.db import connection

from activities.models import Activity, Coupon
from seize import queue, store
from seize.keys import queue_key, shard_of
from seize.requests import SeizeRequest
from seize.services import coupon_seize


def press(activity: Activity, user_id: int, seq: int = 0):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=seq), user_id=user_id)


def rows(activity: Activity) -> set[tuple[int, int]]:
    return set(Coupon.objects.filter(activity=activity).values_list("user_id", "seq"))


def waiting(activity: Activity) -> list[queue.Entry]:
    return list(queue.queue_entries(shard=shard_of(activity.pk), activity_id=activity.pk))


def issued(activity: Activity) -> int:
    activity.refresh_from_db()
    return activity.issued


def thread_start(work, faults: list[BaseException]) -> threading.Thread:
    """Run ``work`` in a thread with a database connection of its own; what it raises goes into ``faults``."""

    def guarded() -> None:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 - the test looks at them
            faults.append(fault)
        finally:
            connection.close()

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread


def claims_add(raw, activity: Activity, count: int, *, first: int = 1) -> None:
    """Put claims into the queue and the holders as that many seizes would."""
    key, now_ms = queue_key(shard_of(activity.pk)), store.time_us() // 1000
    fields = {f"{activity.pk}:{user_id}:1": f"{now_ms}:{activity.uid}" for user_id in range(first, first + count)}
    raw.hset(key, mapping=fields)
