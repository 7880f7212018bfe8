"""The dispatcher: what has to be done now, handed out as messages. Messages are hints and may get lost."""

from celery import current_app

from seize import queue, store
from seize.keys import SHARDS
from sync.comparison import ledger_compare

HINT_EXPIRES_S = 2


def dispatch() -> dict[str, object]:
    """Compare Redis with the ledger, then send one drain for each queue that waits and is not being drained.

    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    result = ledger_compare(rebuild=rebuild_send)
    return {**result.as_dict(), "drains": drains_send()}


def drains_send() -> list[int]:
    """Send a drain for every waiting queue; the shards. Nothing is sent for an empty queue."""
    lengths = queue.queue_lengths(range(SHARDS))
    waiting = [shard for shard, length in enumerate(lengths) if length]
    held = store.leases_held([f"drain:{shard}" for shard in waiting])
    idle = [shard for shard, is_held in zip(waiting, held, strict=True) if not is_held]
    for shard in idle:
        current_app.send_task(
            "sync.drain_queue", kwargs={"shard": shard}, expires=HINT_EXPIRES_S, retry=False, ignore_result=True
        )
    return idle


def rebuild_send(activity_id: int) -> None:
    """Ask a worker for a rebuild; the fence keeps repeated messages from doing it twice."""
    current_app.send_task(
        "sync.rebuild_activity",
        kwargs={"activity_id": activity_id},
        expires=HINT_EXPIRES_S,
        retry=False,
        ignore_result=True,
    )
