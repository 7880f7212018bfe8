"""What operators ask: is everything there, what waits, how old is it, who is late?"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import DatabaseError, InterfaceError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Count
from django_celery_beat.models import PeriodicTask

from activities.admission import STORE_FAULTS
from activities.models import Activity
from seize import desk, queue, store
from seize.claims import claim_parse
from seize.keys import SHARDS
from sync.models import DeadLetter, Reconciliation

log = logging.getLogger(__name__)

PING_TIMEOUT_S = 1
OLDEST_SCAN_MAX = 5_000  # entries of a queue that are looked at for the oldest; a longer queue is late anyway


@dataclass(frozen=True, slots=True)
class Check:
    """One answer of ``/readyz``: its name, whether it holds, and why not."""

    name: str
    ok: bool
    detail: str = ""
    is_fault: bool = False  # the detail is an error's text, which may name hosts and users: for staff and the log

    @property
    def public_detail(self) -> str:
        return "cannot be reached, see the log" if self.is_fault else self.detail


def readiness() -> list[Check]:
    """Everything that a web process needs to seize coupons and to show them.

    A server that hangs costs its time-out of a second once, so that probes do not pile up in the web's threads.
    """
    redis = _checked("redis", _redis_writes)
    unknown = Check("shards", ok=False, detail="unknown without Redis")
    shards = _checked("shards", _shards_loaded) if redis.ok else unknown
    return [redis, shards, _checked("database", _database_answers)]


def _checked(name: str, look: Callable[[], str]) -> Check:
    try:
        detail = look()
    except (*STORE_FAULTS, DatabaseError, InterfaceError) as fault:
        log.warning("not ready, %s: %s", name, fault)
        return Check(name, ok=False, detail=str(fault)[:200], is_fault=True)
    return Check(name, ok=not detail, detail=detail)


def _redis_writes() -> str:
    """A lease is taken and given back, which needs scripts; and the master of every shard takes a write."""
    store.shards_write()
    lease = store.Lease("readyz", lease_ms=1000)
    lease.acquire()
    lease.release()
    return ""


def _shards_loaded() -> str:
    missing = [shard for shard in range(SHARDS) if not desk.shard_inspect(shard=shard, activity_ids=[]).loaded]
    return f"shards not loaded yet: {', '.join(map(str, missing))}" if missing else ""


def _database_pinged() -> None:
    """Ask on a connection of its own: the product's may wait for half a minute on a server that hangs."""
    if connection.vendor != "mysql":
        connection.ensure_connection()
        return
    limits = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), PING_TIMEOUT_S)
    mysql: Any = connection
    with connection.wrap_database_errors:
        raw = mysql.Database.connect(**{**connection.get_connection_params(), **limits})
        try:
            raw.ping()
        finally:
            raw.close()


_migrated = threading.Event()  # once seen complete it stays so for this process: reading all migrations costs 0.1 s


def _database_answers() -> str:
    _database_pinged()
    if _migrated.is_set():
        return ""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if not plan:
        _migrated.set()
    return f"{len(plan)} migrations are missing: run manage.py migrate" if plan else ""


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue: claims that wait, the age of the oldest that was seen (None = nothing waits), and the drain's pace."""

    shard: int
    waiting: int
    oldest_s: float | None
    drained_total: int
    drained_per_second: float


def queue_states() -> list[QueueState]:
    """Every queue, by Redis' clock.

    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    now_ms = store.time_us() // 1000
    lengths = queue.queue_lengths(range(SHARDS))
    drained = queue.queue_drained(range(SHARDS), now_s=now_ms // 1000)
    return [
        QueueState(shard, waiting, _oldest_s(shard, now_ms) if waiting else None, pace.total, pace.per_second)
        for shard, (waiting, pace) in enumerate(zip(lengths, drained, strict=True))
    ]


def _oldest_s(shard: int, now_ms: int) -> float | None:
    oldest_ms, seen, cursor = None, 0, 0
    while True:
        cursor, entries = queue.queue_scan(shard=shard, cursor=cursor, count=1000)
        seized = [claim.seized_ms for claim in map(claim_parse, entries) if claim is not None]
        oldest_ms = min([*seized, *([oldest_ms] if oldest_ms is not None else [])], default=None)
        seen += len(entries)
        if cursor == 0 or seen >= OLDEST_SCAN_MAX:
            return None if oldest_ms is None else max(0.0, (now_ms - oldest_ms) / 1000)


def letters_waiting() -> dict[str, int]:
    """Dead letters that wait for a decision, per reason."""
    waiting = DeadLetter.objects.filter(state=DeadLetter.State.WAITING)
    counted = dict(waiting.order_by().values_list("reason").annotate(number=Count("id")))
    return {reason: counted.get(reason, 0) for reason in DeadLetter.Reason.values}


def beat_ages(*, now: datetime) -> dict[str, float | None]:
    """Seconds since each enabled beat entry was last sent; None = never."""
    entries = PeriodicTask.objects.filter(enabled=True, name__startswith="sync.").order_by("name")
    runs = entries.values_list("name", "last_run_at")
    return {name: None if run_at is None else (now - run_at).total_seconds() for name, run_at in runs}


def differing() -> list[Reconciliation]:
    """Activities whose last reconciliation found a difference."""
    return list(
        Reconciliation.objects.filter(differing_runs__gt=0, activity__settled_at=None).select_related("activity")
    )


def reconciled_age_s(*, now: datetime) -> float | None:
    """Age in seconds of the oldest last reconciliation of a watched activity; None = there is none."""
    watched = Activity.objects.watched().values("pk")
    oldest = Reconciliation.objects.filter(activity__in=watched).order_by("checked_at").first()
    return None if oldest is None else (now - oldest.checked_at).total_seconds()


def health_report() -> dict[str, object]:
    """Everything above, for the page; what cannot be asked is missing, and ``checks`` say why."""
    now = datetime.now(UTC)
    report: dict[str, object] = {"checks": readiness(), "now": now}
    for name, look in (
        ("queues", queue_states),
        ("redis", store.server_facts),
        ("letters", letters_waiting),
        ("differing", differing),
        ("last_reconciliation", lambda: Reconciliation.objects.order_by("-checked_at").first()),
        ("beats", lambda: beat_ages(now=now)),
        ("watched", lambda: Activity.objects.watched().count()),
    ):
        try:
            report[name] = look()
        except (*STORE_FAULTS, DatabaseError, InterfaceError):
            continue
    return report
