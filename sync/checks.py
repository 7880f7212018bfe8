"""Checks of the servers that the promise rests on: ``manage.py check --deploy --tag servers``.

Warnings in development, errors in production. They ask Redis and the database, so they run only
where ``--deploy`` asks for them, and when script/server starts.
"""

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import DatabaseError, InterfaceError, connection

from activities.admission import STORE_FAULTS
from seize import store

CLOCK_DIFFERENCE_S = 1.0


@register("servers", deploy=True)
def servers_check(**_arguments: Any) -> list[CheckMessage]:
    """Redis persists, never evicts, is new enough and has the time; the database isolates and flushes."""
    kind = Warning if settings.DEVELOPMENT else Error
    messages: list[CheckMessage] = []
    try:
        for facts in store.server_facts():
            messages += [kind(text, hint=hint, id=code) for code, text, hint in _redis_faults(facts)]
    except STORE_FAULTS as fault:
        messages.append(kind(f"Redis cannot be asked: {fault}", id="coupons.E100"))
    try:
        messages += [kind(text, hint=hint, id=code) for code, text, hint in _database_faults()]
    except (DatabaseError, InterfaceError) as fault:
        messages.append(kind(f"the database cannot be asked: {fault}", id="coupons.E200"))
    return messages


def _redis_faults(facts: store.ServerFacts) -> Iterator[tuple[str, str, str]]:
    if tuple(int(part) for part in facts.version.split(".")[:2]) < (6, 2):
        yield "coupons.E101", f"Redis is {facts.version}, and 6.2 is the oldest that works.", "Upgrade it."
    if not facts.durable:
        state = f"appendonly {'yes' if facts.aof else 'no'}, appendfsync {facts.fsync}"
        state += "" if facts.aof_written else ", and its last write to disk failed"
        yield (
            "coupons.E102",
            f"Redis may lose acknowledged coupons: {state}.",
            "Set appendonly yes and appendfsync always.",
        )
    if not facts.keeps_all:
        yield "coupons.E103", f"Redis may evict stock and queue: maxmemory-policy {facts.policy}.", "Set noeviction."
    if facts.role != "master":
        yield "coupons.E104", f"Redis is a {facts.role}: it cannot be written.", "Point REDIS_URL at the master."
    if facts.clock_off_s > CLOCK_DIFFERENCE_S:
        yield (
            "coupons.E105",
            f"this host's clock and Redis' differ by {facts.clock_off_s:.1f} s.",
            "Run an NTP client on both.",
        )


def _database_faults() -> Iterator[tuple[str, str, str]]:
    if connection.vendor != "mysql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')")
        isolation = {value for _name, value in cursor.fetchall()}
        cursor.execute("SHOW GLOBAL VARIABLES LIKE 'innodb_flush_log_at_trx_commit'")
        [(_name, flush)] = cursor.fetchall()
    if isolation != {"READ-COMMITTED"}:
        found = ", ".join(sorted(isolation))
        yield "coupons.E201", f"sessions run at {found}, not READ COMMITTED.", "Leave isolation_level to the settings."
    if flush != "1":
        yield (
            "coupons.E202",
            f"innodb_flush_log_at_trx_commit is {flush}: a crash may lose drained coupons.",
            "Set it to 1.",
        )
