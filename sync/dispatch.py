"""The dispatcher: what has to be done now, handed out as messages. Messages are hints and may get lost."""

from celery import current_app
from django.conf import settings

from seize import queue, store
from seize.keys import SHARDS
from sync.comparison import ledger_compare
from sync.drain import queue_drain

HINT_EXPIRES_S = 2


def dispatch() -> dict[str, object]:
    """Compare Redis with the ledger, then send one drain for each queue that waits and is not being drained.

    The drains are sent even when the comparison fails: in a Redis that is full they are the cure.

    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    try:
        compared = ledger_compare(rebuild=rebuild_send).as_dict()
    except store.StoreRefused as fault:
        compared = {"refused": str(fault)}
    return {**compared, "drains": drains_send()}


def drains_send() -> list[int]:
    """Send a drain for every waiting queue; the shards. Nothing is sent for an empty queue."""
    lengths = queue.queue_lengths(range(SHARDS))
    waiting = [shard for shard, length in enumerate(lengths) if length]
    held = store.leases_held([f"drain:{shard}" for shard in waiting])
    idle = [shard for shard, is_held in zip(waiting, held, strict=True) if not is_held]
    for shard in idle:
        drain_send(shard)
    return idle


def drain_send(shard: int) -> None:
    """Send a drain for one queue."""
    current_app.send_task(
        "sync.drain_queue", kwargs={"shard": shard}, expires=HINT_EXPIRES_S, retry=False, ignore_result=True
    )


def drain_and_go_on(*, shard: int) -> dict[str, object]:
    """Drain a queue for a moment; when it is not empty then, send the next drain behind what else waits.

    Short turns keep busy queues from occupying every worker while the comparison waits.
    """
    result = queue_drain(
        shard=shard,
        batch_size=settings.SYNC_BATCH_SIZE,
        lease_ms=settings.SYNC_LEASE_MS,
        budget_s=settings.SYNC_DRAIN_SECONDS,
    )
    if result.more:
        drain_send(shard)
    return result.as_dict()


def rebuild_send(activity_id: int) -> None:
    """Ask a worker for a rebuild; the fence keeps repeated messages from doing it twice."""
    current_app.send_task(
        "sync.rebuild_activity",
        kwargs={"activity_id": activity_id},
        expires=HINT_EXPIRES_S,
        retry=False,
        ignore_result=True,
    )
