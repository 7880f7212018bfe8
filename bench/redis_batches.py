"""Section ``redis``: what a seize costs the Redis server by shoppers per script call, granted and refused.

``us`` is the time within the script (``INFO commandstats``), calls coming one after the other; batch 1 is one EVALSHA
each. ``server_us`` is all CPU of a busy server (reading, scripts, append-only file, answering): 64 shoppers, or one
batch of more, are always under way together, each call on a connection of its own as web processes call, so what
Redis shares among calls that come at the same time, above all the fsync, it shares for batch 1 too.
"""

import statistics
from typing import NamedTuple

import redis

from bench import stage
from bench.options import Options, Progress

BATCHES = (1, 8, 32, 128)
TOGETHER = 64
SHOPPERS, SHOPPERS_QUICK = 25_600, 12_800  # multiples of TOGETHER and of every batch
STOCK = {"grant": 10**9, "refuse": 0}


def measure(options: Options, progress: Progress) -> dict[str, dict[str, dict[str, float]]]:
    """``{"grant"|"refuse": {batch: {"us", "server_us"}}}``, medians."""
    kinds = [kind for kind in STOCK if options.wants(kind)]
    shoppers = SHOPPERS_QUICK if options.quick else SHOPPERS
    progress.expect(len(kinds) * options.rounds)
    costs: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with stage.servers(database=False):
        for number in range(1, options.rounds + 1):
            for kind in kinds:
                progress.step(f"round {number}, {kind}")
                for batch in BATCHES:
                    one_by_one = seizes(STOCK[kind], batch, shoppers, together=batch)
                    busy = seizes(STOCK[kind], batch, shoppers, together=max(batch, TOGETHER))
                    costs.setdefault((kind, batch), []).append((one_by_one.script_us, busy.server_us))
    result: dict[str, dict[str, dict[str, float]]] = {kind: {} for kind in kinds}
    for (kind, batch), measured in costs.items():
        us, server_us = (round(statistics.median(values), 2) for values in zip(*measured, strict=True))
        result[kind][str(batch)] = {"us": us, "server_us": server_us}
    return result


class Cost(NamedTuple):
    """µs per shopper: within the script, and of the server's CPU in all."""

    script_us: float
    server_us: float


def seizes(stock: int, batch: int, shoppers: int, *, together: int, activity_id: int = 1) -> Cost:
    """Seize for ever new shoppers of one activity, ``batch`` a call, ``together`` of them under way at a time.

    :raises RuntimeError: not everybody got the same answer, so the figures would mean nothing.
    """
    from seize import store
    from seize.keys import SeizeKeys, seize_keys

    server = store.client()
    server.flushall()
    activity_open(activity_id, stock)
    sha = server.script_load((store.LUA_FOLDER / "seize.lua").read_text())
    head = ("EVALSHA", sha, len(SeizeKeys._fields), *seize_keys(activity_id), activity_id, 0)
    port = server.connection_pool.connection_kwargs["port"]
    connections = [redis.Connection(port=port) for _ in range(together // batch)]
    for connection in connections:
        connection.connect()
    server.config_resetstat()
    before, won = cpu_s(server), 0
    for first in range(1, shoppers + 1, together):
        for connection, user in zip(connections, range(first, first + together, batch), strict=True):
            connection.send_command(*head, *(text for number in range(user, user + batch) for text in (number, 1, 0)))
        # Two numbers, then per shopper four fields when won and two when refused.
        won += sum(len(entry) == 4 for connection in connections for entry in connection.read_response()[2:])
    spent = cpu_s(server) - before
    for connection in connections:
        connection.disconnect()
    if won != (shoppers if stock else 0):
        raise RuntimeError(f"{won} of {shoppers} shoppers won of a stock of {stock}")
    script_usec = server.info("commandstats")["cmdstat_evalsha"]["usec"]
    return Cost(script_us=script_usec / shoppers, server_us=spent * 1e6 / shoppers)


def cpu_s(server: redis.Redis) -> float:
    """Seconds of CPU that the server has used, its background threads included."""
    used = server.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


def activity_open(activity_id: int, stock: int) -> None:
    """An activity on offer; ``stock`` 0 = all of its coupons are claimed."""
    from seize import desk, store

    now_ms = store.time_us() // 1000
    total = stock or 1
    rules = desk.Rules(activity_id, "bench", 1, 1, "open", now_ms - 1000, now_ms + 3_600_000, 1, total)
    desk.rebuild_begin(activity_id=activity_id, token="t", lease_ms=60_000)
    desk.rebuild_holders(activity_id=activity_id, token="t", lease_ms=60_000, reset=True)
    desk.rebuild_finish(rules=rules, token="t", claims=total - stock)
