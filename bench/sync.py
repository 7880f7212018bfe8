"""Section ``sync``: how fast claims become rows, beside the plain ways to insert the same rows.

``.venv/bin/python -m bench.sync [--quick] [--rounds N] [--only NAME]``. Every contender gets the same rows, the same
empty table with the same indexes, the same server and the same number of rows a commit, and takes turns with the
others. Only the drain reads a queue, asks Redis before each commit and deletes from the queue after it.

The lag and the backlog are those of the product as it runs: worker and beat with the command lines of
``script/server``, ten processes, one message a queue and second.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from bench import stage
from bench.options import Options, Progress

BACKLOG = 100_000
RATE = 2_000  # seizes a second while the lag is measured
TICK_S = 0.01

Row = tuple[Any, ...]


def measure(options: Options, progress: Progress) -> dict[str, Any]:
    """Medians over the rounds: rows a second of each contender, p99 of the lag in s, s until a backlog is gone."""
    names = [name for name in ("row_by_row", "multi_row", "load_data", "drain") if options.wants(name)]
    live = options.wants("lag_p99_s") or options.wants("backlog_100k_s")
    progress.expect(len(names) * options.rounds + 2 * live)
    with stage.servers() as valkey:
        from seize import store

        gc.freeze()  # as every worker process does; for all contenders alike
        store.client().flushall()  # the folder may hold what an earlier run left
        rates: dict[str, list[float]] = {name: [] for name in names}
        for number in range(options.rounds):
            for name, rate in _round(names, turn=number, quick=options.quick, progress=progress):
                rates[name].append(rate)
        result: dict[str, Any] = {name: {"rows_per_s": _median(rates[name])} for name in names}
        if live:
            with _worker_and_beat(valkey.url):
                progress.step("lag at 2,000 seizes a second")
                result["lag_p99_s"] = round(_lag_p99(seconds=10 if options.quick else 30), 3)
                progress.step("a backlog of 100,000 claims")
                result["backlog_100k_s"] = round(_backlog_s(), 2)
    return result


def _median(rates: Sequence[float]) -> float | None:
    return round(statistics.median(rates)) if rates else None


# -- Contenders ---------------------------------------------------------------------------------------


def _round(names: Sequence[str], *, turn: int, quick: bool, progress: Progress) -> Iterator[tuple[str, float]]:
    """Each contender once, another one first in each round; a contender that cannot run is left out."""
    from MySQLdb import OperationalError

    size, single = (20_000, 1_000) if quick else (100_000, 5_000)
    activity = _activity_open(stock_total=size)
    _seize_all(activity, size)
    rows = _rows_of(activity)
    contenders: dict[str, Callable[[], int]] = {
        "row_by_row": lambda: _row_by_row(rows[:single]),
        "multi_row": lambda: _multi_row(rows),
        "load_data": lambda: _load_data(rows),
        "drain": lambda: _drain(activity),
    }
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        progress.step(f"{name}, round {turn + 1}")
        began = time.perf_counter()
        try:
            inserted = contenders[name]()
        except OperationalError as fault:
            if name != "load_data":
                raise
            progress.leave_out(name, f"the server forbids it: {fault}")
            continue
        took = time.perf_counter() - began
        there = _table_empty()
        assert there == inserted, f"{name}: {there} rows, not {inserted}"
        yield name, inserted / took


def _row_by_row(rows: Sequence[Row]) -> int:
    """One INSERT and one commit a row."""
    with _raw() as (database, cursor):
        for row in rows:
            cursor.execute(_insert_sql(), row)
            database.commit()
    return len(rows)


def _multi_row(rows: Sequence[Row]) -> int:
    """The driver's ``executemany``, which makes multi-row INSERTs; one commit a batch."""
    with _raw() as (database, cursor):
        for batch in _batches(rows):
            cursor.executemany(_insert_sql(), batch)
            database.commit()
    return len(rows)


def _load_data(rows: Sequence[Row]) -> int:
    """A file a batch and LOAD DATA LOCAL INFILE; one commit a batch."""
    path = stage.FOLDER / "rows.tsv"
    sql = f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE activities_coupon ({', '.join(_columns())})"
    with _raw(local_infile=1) as (database, cursor):
        for batch in _batches(rows):
            lines = ["\t".join("\\N" if value is None else str(value) for value in row) for row in batch]
            path.write_text("\n".join(lines) + "\n")
            cursor.execute(sql)
            database.commit()
    path.unlink()
    return len(rows)


def _drain(activity: Any) -> int:
    """The product's drain, from the full queue to the empty one, in one process."""
    from django.conf import settings

    from seize.keys import shard_of
    from sync.drain import queue_drain

    result = queue_drain(
        shard=shard_of(activity.pk),
        batch_size=settings.SYNC_BATCH_SIZE,
        lease_ms=settings.SYNC_LEASE_MS,
        budget_s=600,
    )
    assert (result.existed, result.dead, result.deferred) == (0, 0, 0)
    return result.inserted


def _batches(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    from django.conf import settings

    for first in range(0, len(rows), settings.SYNC_BATCH_SIZE):
        yield rows[first : first + settings.SYNC_BATCH_SIZE]


def _columns() -> list[str]:
    from activities.models import Coupon

    return [field.column for field in Coupon._meta.concrete_fields if not field.primary_key]


def _insert_sql() -> str:
    columns = _columns()
    return f"INSERT INTO activities_coupon ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"


def _rows_of(activity: Any) -> list[Row]:
    """The rows that the activity's waiting claims become, as the driver takes them."""
    from django.db import connection

    from activities.coupons import coupon_of
    from activities.models import Coupon
    from seize.claims import claim_parse
    from seize.keys import shard_of
    from seize.queue import queue_entries

    fields = [field for field in Coupon._meta.concrete_fields if not field.primary_key]
    entries = dict.fromkeys(queue_entries(shard=shard_of(activity.pk), activity_id=activity.pk))
    claims = [claim for claim in map(claim_parse, entries) if claim is not None]
    coupons = (coupon_of(claim, activity) for claim in claims)
    return [
        tuple(field.get_db_prep_save(getattr(coupon, field.attname), connection) for field in fields)
        for coupon in coupons
    ]


@contextmanager
def _raw(**options: Any) -> Iterator[tuple[Any, Any]]:
    """A connection of the driver with the product's session settings, and a cursor."""
    import MySQLdb
    from django.db import connection

    given = connection.get_connection_params() | options
    isolation = given.pop("isolation_level", None) or "read committed"
    database = MySQLdb.connect(**given)
    try:
        with database.cursor() as cursor:
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation.upper()}")
            database.commit()
            yield database, cursor
    finally:
        database.close()


def _table_empty() -> int:
    """Empty the coupons' table for the next contender; how many rows it had."""
    from django.db import connection

    from activities.models import Coupon

    there = Coupon.objects.count()
    with connection.cursor() as cursor:
        cursor.execute("SET foreign_key_checks = 0")
        cursor.execute("TRUNCATE TABLE activities_coupon")
        cursor.execute("SET foreign_key_checks = 1")
    return there


# -- A sale -------------------------------------------------------------------------------------------


def _activity_open(*, stock_total: int) -> Any:
    """An activity on offer, loaded in Redis."""
    from activities.models import Activity
    from sync.rebuild import activity_rebuild

    now = datetime.now(UTC)
    activity = Activity.objects.create(
        name="sync", starts_at=now - timedelta(hours=1), ends_at=now + timedelta(hours=2), stock_total=stock_total,
        amount_off=20, valid_days=7, status="ACTIVE",
    )  # fmt: skip
    activity_rebuild(activity_id=activity.pk)
    activity.refresh_from_db()
    return activity


def _shopper(number: int) -> int:
    """User ids as they come in life, in no order: the ``number``-th of 2^40."""
    return number * 2_654_435_761 % 2**40 + 1


def _seize_all(activity: Any, size: int, *, first: int = 0) -> None:
    """So many shoppers win, in full calls of the script."""
    from seize.outcomes import Won
    from seize.services import BATCH_MAX, coupons_seize

    for start in range(first, first + size, BATCH_MAX):
        shoppers = [(_shopper(number), 1) for number in range(start, min(start + BATCH_MAX, first + size))]
        outcomes = coupons_seize(activity_id=activity.pk, shoppers=shoppers)
        assert all(isinstance(outcome, Won) for outcome in outcomes), outcomes[0]


@contextmanager
def _worker_and_beat(redis_url: str) -> Iterator[None]:
    """The product's worker and beat, until they have turned a claim into a row; stopped at the end."""
    from django.core.management import call_command
    from server import programs
    from services import tree_stop
    from supervision import OWN_ENVIRONMENT

    call_command("schedule", verbosity=0)
    commands = programs(port=0, flower_port=0, valkey_conf=None)
    started = []
    try:
        for name in ("worker", "beat"):
            env = {**os.environ, **OWN_ENVIRONMENT.get(name, {}), "REDIS_URL": redis_url}
            with (stage.FOLDER / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    commands[name], cwd=stage.ROOT, env=env, stdout=log, stderr=log, start_new_session=True
                )
            started.append(process)
        activity = _activity_open(stock_total=1)
        _seize_all(activity, 1)
        _until(lambda: _rows_count(activity) == 1, seconds=60, what="worker and beat")
        yield
    finally:
        for process in reversed(started):
            tree_stop(process.pid)
            process.wait()


def _rows_count(activity: Any) -> int:
    from activities.models import Coupon

    return Coupon.objects.filter(activity=activity).count()


def _until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(TICK_S)


def _lag_p99(*, seconds: int) -> float:
    """Seize at ``RATE`` and look every 20 ms for new rows; s from a claim's seizing until its row was seen."""
    from activities.models import Coupon

    batch = round(RATE * TICK_S)
    ticks = round(seconds / TICK_S)
    activity = _activity_open(stock_total=batch * ticks)
    lags: list[float] = []
    last_id = 0

    def look() -> None:
        nonlocal last_id
        # One activity's rows are committed in the order of their ids: each batch holds the activity's row.
        found = list(Coupon.objects.filter(activity=activity, id__gt=last_id).values_list("id", "seized_at"))
        now = datetime.now(UTC)
        last_id = max([last_id, *(row_id for row_id, _at in found)])
        lags.extend((now - at).total_seconds() for _id, at in found)

    began = time.monotonic()
    for tick in range(ticks):
        time.sleep(max(0.0, began + tick * TICK_S - time.monotonic()))
        _seize_all(activity, batch, first=tick * batch)
        if tick % 2:
            look()
    took = time.monotonic() - began
    assert took < seconds * 1.05, f"{RATE} a second were not reached: {batch * ticks} took {took:.1f} s"

    def all_seen() -> bool:
        look()
        return len(lags) == batch * ticks

    _until(all_seen, seconds=30, what="the last rows")
    return statistics.quantiles(lags, n=100)[98]


def _backlog_s() -> float:
    """100,000 claims of one activity wait while nobody may drain; s from then until all are rows and none waits."""
    from seize import store
    from seize.keys import shard_of
    from seize.queue import queue_lengths

    activity = _activity_open(stock_total=BACKLOG)
    shard = shard_of(activity.pk)
    lease = store.Lease(f"drain:{shard}", lease_ms=120_000)
    _until(lease.acquire, seconds=10, what="the drain's lease")
    _seize_all(activity, BACKLOG)
    assert queue_lengths([shard]) == [BACKLOG]
    began = time.monotonic()
    lease.release()
    _until(lambda: queue_lengths([shard]) == [0], seconds=120, what="the backlog")
    took = time.monotonic() - began
    assert _rows_count(activity) == BACKLOG
    return took


# -- Alone --------------------------------------------------------------------------------------------


class Lines:
    """Progress as lines."""

    def expect(self, steps: int) -> None:
        print(f"{steps} steps")

    def step(self, what: str) -> None:
        print(f"  {what}", flush=True)

    def leave_out(self, what: str, why: str) -> None:
        print(f"  left out: {what}: {why}", flush=True)


def options_read() -> Options:
    """The options of a section that runs alone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only")
    given = parser.parse_args()
    return Options(quick=given.quick, rounds=given.rounds, only=given.only)


if __name__ == "__main__":
    print(json.dumps(measure(options_read(), Lines()), indent=2))
