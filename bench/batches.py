"""What fsync costs: wins a second by one client, ``always`` beside ``everysec``, 1, 32 and 128 shoppers a call.

``.venv/bin/python -m bench.batches [ROUNDS]`` (default 5). Contenders take turns in each round; medians are printed.
"""

import statistics
import sys
import time

from bench import stage

BATCHES = (1, 32, 128)
SECONDS = 1.0


def main(rounds: int) -> None:
    """Measure and print."""
    with stage.servers(database=False) as always:
        everysec = stage.Valkey(stage.FOLDER / "valkey-everysec", binary=always.binary, fsync="everysec")
        everysec.start()
        try:
            measured: dict[tuple[str, int], list[float]] = {}
            for number in range(rounds):
                for kind, server in (("always", always), ("everysec", everysec)):
                    for batch in BATCHES:
                        rate = wins_a_second(server.url, batch, activity_id=1 + number * 10)
                        measured.setdefault((kind, batch), []).append(rate)
            print(f"{'batch':>6} {'always':>10} {'everysec':>10}   ratio (wins a second, medians of {rounds})")
            for batch in BATCHES:
                one, other = (statistics.median(measured[kind, batch]) for kind in ("always", "everysec"))
                print(f"{batch:>6} {one:>10,.0f} {other:>10,.0f}   {one / other:.2f}")
        finally:
            everysec.stop(kill=True)


def wins_a_second(url: str, batch: int, *, activity_id: int) -> float:
    """Seize for ``SECONDS`` with ever new shoppers on one connection."""
    from django.conf import settings

    from seize import desk, store
    from seize.services import coupons_seize

    settings.REDIS_URL = url
    store.client().flushall()
    now_ms = store.time_us() // 1000
    rules = desk.Rules(activity_id, "bench", 1, 1, "open", now_ms - 1000, now_ms + 3_600_000, 1, 10**9)
    desk.rebuild_begin(activity_id=activity_id, token="t", lease_ms=60_000)
    desk.rebuild_holders(activity_id=activity_id, token="t", lease_ms=60_000, reset=True)
    desk.rebuild_finish(rules=rules, token="t", claims=0)
    user, began = 1, time.monotonic()
    while (passed := time.monotonic() - began) < SECONDS:
        coupons_seize(activity_id=activity_id, shoppers=[(number, 1) for number in range(user, user + batch)])
        user += batch
    return (user - 1) / passed


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 5)
