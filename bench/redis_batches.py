"""Section ``redis``: what a seize costs the Redis server by shoppers per script call, granted and refused.

``us`` is all of the server's CPU (its process's user and system time: reading, the script, the append-only file,
answering), ``script_us`` the part within the script (``INFO commandstats``). Batch 1 is one EVALSHA each. One
connection calls, so no batch profits from what other connections ask at the same time.
"""

import statistics

from bench import stage
from bench.options import Options, Progress

BATCHES = (1, 8, 32, 128)
SHOPPERS, SHOPPERS_QUICK = 12_800, 3_840  # a multiple of every batch
STOCK = {"grant": 10**9, "refuse": 0}


def measure(options: Options, progress: Progress) -> dict[str, dict[str, dict[str, float]]]:
    """``{"grant"|"refuse": {batch: {"us", "script_us"}}}``, medians."""
    kinds = [kind for kind in STOCK if options.wants(kind)]
    shoppers = SHOPPERS_QUICK if options.quick else SHOPPERS
    progress.expect(len(kinds) * options.rounds)
    costs: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with stage.servers(database=False):
        for number in range(1, options.rounds + 1):
            for kind in kinds:
                progress.step(f"round {number}, {kind}")
                for batch in BATCHES:
                    costs.setdefault((kind, batch), []).append(cost_us(STOCK[kind], batch, shoppers))
    return {
        kind: {
            str(batch): dict(
                zip(("us", "script_us"), (round(statistics.median(c), 2) for c in zip(*costs[kind, batch])))
            )
            for batch in BATCHES
        }
        for kind in kinds
    }


def cost_us(stock: int, batch: int, shoppers: int, *, activity_id: int = 1) -> tuple[float, float]:
    """CPU µs of the server per shopper, in all and within the script; ever new shoppers of one activity.

    :raises RuntimeError: not everybody got the same answer, so the figure would mean nothing.
    """
    from seize import store
    from seize.outcomes import Won
    from seize.services import coupons_seize

    redis = store.client()
    redis.flushall()
    activity_open(activity_id, stock)
    coupons_seize(activity_id=activity_id, shoppers=[(10**9, 1)])  # loads the script
    redis.config_resetstat()
    before = cpu_s(redis)
    won = 0
    for first in range(1, shoppers + 1, batch):
        answers = coupons_seize(activity_id=activity_id, shoppers=[(user, 1) for user in range(first, first + batch)])
        won += sum(isinstance(answer, Won) for answer in answers)
    spent = cpu_s(redis) - before
    if won != (shoppers if stock else 0):
        raise RuntimeError(f"{won} of {shoppers} shoppers won of a stock of {stock}")
    script = redis.info("commandstats")["cmdstat_evalsha"]["usec"]
    return spent * 1e6 / shoppers, script / shoppers


def cpu_s(redis) -> float:
    """Seconds of CPU that the server has used, its background threads included."""
    used = redis.info("cpu")
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
