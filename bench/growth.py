"""Section ``growth``: what a seize costs Redis as holders, activities or the queue grow, and what a coupon weighs.

``.venv/bin/python -m bench.growth [--quick] [--rounds N] [--only NAME]``. Each size has a server of its own; the sizes
of a kind take turns. A sample is calls of ``seize.lua`` with 32 new shoppers each, after as many that are not counted:
a server in a sale is warm, and here it has just waited for its turn. Afterwards the queue is drained and small sizes
are put back to what they were; a million grow by a few hundredths instead, since holders are never deleted one by one
in life, and holes among a million entries cost the allocator more than the seize. ``us`` is the CPU of the whole server
per granted seize (network, script and file), ``script_us`` the script's own (``INFO commandstats``).

Nothing in the script walks through anything. What shows at a million holders is that their hash is larger than the
processor's caches.

Memory: a holder is a field of a hash (user id → seq). Hashes of at most 128 entries are listpacks, a third of the
size, so buckets of users would weigh less (``compact_bytes_per_coupon``). Not done: each bucket is a key that the
script must be given, every wanted seq would be a search through a bucket, and a million coupons weigh 40 MB, only until
the activity is settled.
"""

import json
import shutil
import statistics
from contextlib import ExitStack
from typing import Any

from bench import stage
from bench.options import Options, Progress
from bench.sync import Lines, options_read

SIZES = {
    "holders": (1_000, 10_000, 100_000, 1_000_000),
    "activities": (10, 100, 1_000, 10_000),
    "queue": (0, 10_000, 100_000, 1_000_000),
}
ACTIVITY = 11
UID = "0123456789abcdef"
CALLS, BATCH = 30, 32
SAMPLES_A_ROUND = 16
GROWS = 1_000_000  # from this size on nothing is put back
PAGE = 2_000  # pairs that a script's stack holds
FIRST_NEW = 1 << 41  # shoppers of the samples: nobody who holds or waits already


def measure(options: Options, progress: Progress) -> dict[str, Any]:
    """Median µs per granted seize by kind and size, and bytes that a coupon occupies once it is a row."""
    kinds = [kind for kind in SIZES if options.wants(kind)]
    weighed = options.wants("memory_bytes_per_coupon")
    progress.expect(sum(len(SIZES[kind]) + options.rounds for kind in kinds) + weighed)
    result: dict[str, Any] = {}
    with stage.servers(database=False) as valkey:
        for kind in kinds:
            result[kind] = _kind_measure(kind, valkey.binary, options=options, progress=progress)
        if weighed:
            progress.step("bytes per coupon")
            result |= _memory_measure(valkey.binary, size=100_000 if options.quick else 1_000_000)
    return result


def _kind_measure(kind: str, binary: str, *, options: Options, progress: Progress) -> dict[str, dict[str, float]]:
    """µs per size; the sizes take turns."""
    with ExitStack() as stack:
        urls: dict[int, str] = {}
        for size in SIZES[kind]:
            progress.step(f"{kind}: {size:,} loaded")
            server = _server_start(stack, f"growth-{size}", binary)
            urls[size] = server.url
            _use(server.url)
            _load(kind, size)
            _settle(size=size)
        samples: dict[int, list[dict[str, float]]] = {size: [] for size in urls}
        for number in range(options.rounds):
            progress.step(f"{kind}, round {number + 1}")
            for _turn in range(SAMPLES_A_ROUND // (4 if options.quick else 1)):
                for size, url in urls.items():
                    _use(url)
                    samples[size].append(_sample(kind, size))
        return {
            str(size): {name: round(statistics.median(sample[name] for sample in taken), 3) for name in taken[0]}
            for size, taken in samples.items()
        }


def _server_start(stack: ExitStack, name: str, binary: str) -> stage.Valkey:
    """An empty server of its own until the stack ends."""
    folder = stage.FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    server = stage.Valkey(folder, binary=binary)
    server.start()
    stack.callback(server.stop, kill=True)
    return server


def _use(url: str) -> None:
    from django.conf import settings

    settings.REDIS_URL = url


# -- A server of a given size -------------------------------------------------------------------------


def _load(kind: str, size: int) -> None:
    """One open activity; then so many holders of it, activities, or claims in its queue."""
    _activity_open(ACTIVITY, holders=size if kind == "holders" else 0)
    if kind == "activities":
        for number in range(1, size):
            # A tenth of them lie in the shard that is measured, as in life.
            _activity_open(ACTIVITY + number, holders=0)
    if kind == "queue":
        _queue_fill(size)


def _activity_open(activity_id: int, *, holders: int) -> None:
    from seize import desk

    fence = {"activity_id": activity_id, "token": "t", "lease_ms": 60_000}
    desk.rebuild_begin(**fence)
    desk.rebuild_holders(**fence, reset=True)
    for first in range(0, holders, PAGE):
        page = {_shopper(number): 1 for number in range(first, min(first + PAGE, holders))}
        desk.rebuild_holders(**fence, reset=False, holders=page)
    _activity_stamp(activity_id, holders=holders)


def _activity_stamp(activity_id: int, *, holders: int) -> None:
    """Rules and stock as of this process of Redis; the holders stay."""
    from seize import desk, store

    now_ms = store.time_us() // 1000
    rules = desk.Rules(activity_id, UID, 1, 1, "open", now_ms - 1000, now_ms + 36_000_000, 1, 10**7)
    desk.rebuild_begin(activity_id=activity_id, token="t", lease_ms=60_000)
    assert desk.rebuild_finish(rules=rules, token="t", claims=holders)


def _queue_fill(size: int) -> None:
    from seize import store
    from seize.keys import queue_key, shard_of

    now_ms = store.time_us() // 1000
    for first in range(0, size, PAGE):
        page = {f"{ACTIVITY}:{_shopper(n)}:1": f"{now_ms}:{UID}" for n in range(first, min(first + PAGE, size))}
        store.client().hset(queue_key(shard_of(ACTIVITY)), mapping=page)


def _settle(*, size: int) -> None:
    """Read until no hash is amid doubling: each command on one moves a bucket. No rewrite of the file comes between."""
    from seize import store
    from seize.keys import seize_keys

    store.client().config_set("auto-aof-rewrite-percentage", "0")
    keys, fields = seize_keys(ACTIVITY), [str(number) for number in range(PAGE)]
    for _first in range(0, size, PAGE):
        store.client().hmget(keys.holders, fields)
        store.client().hmget(keys.queue, fields)


def _shopper(number: int) -> int:
    """User ids as they come in life, in no order: the ``number``-th of 2^40."""
    return number * 2_654_435_761 % 2**40 + 1


# -- Samples ------------------------------------------------------------------------------------------


def _sample(kind: str, size: int) -> dict[str, float]:
    """Redis µs per granted seize over some calls."""
    from seize import store
    from seize.keys import seize_keys

    client, keys = store.client(), seize_keys(ACTIVITY)
    half = CALLS * BATCH
    first_new = FIRST_NEW + int(client.hlen(keys.holders))
    users = range(first_new, first_new + 2 * half)
    _seize(users[:half])
    client.config_resetstat()
    before_us = _server_us()
    _seize(users[half:])
    spent_us = _server_us() - before_us
    script_us = client.info("commandstats")["cmdstat_evalsha"]["usec"]
    if size < GROWS:
        client.hdel(keys.holders, *map(str, users))
    if size < GROWS or kind != "queue":
        client.hdel(keys.queue, *(f"{ACTIVITY}:{user}:1" for user in users))
    return {"us": spent_us / half, "script_us": script_us / half}


def _seize(users: range) -> None:
    from seize.outcomes import Won
    from seize.services import coupons_seize

    for first in users[::BATCH]:
        shoppers = [(user, 1) for user in range(first, first + BATCH)]
        outcomes = coupons_seize(activity_id=ACTIVITY, shoppers=shoppers)
        assert all(isinstance(outcome, Won) and not outcome.replay for outcome in outcomes), outcomes[0]


def _server_us() -> float:
    """CPU that the server has used, µs."""
    from seize import store

    spent = store.client().info("cpu")
    return float(spent["used_cpu_user"] + spent["used_cpu_sys"]) * 1e6


# -- Memory -------------------------------------------------------------------------------------------


def _memory_measure(binary: str, *, size: int) -> dict[str, float]:
    """Win ``size`` coupons, take them out of the queue as the drain does, and see what they left behind."""
    from seize import store
    from seize.keys import shard_of
    from seize.queue import queue_delete, queue_lengths, queue_scan
    from seize.services import BATCH_MAX, coupons_seize

    with ExitStack() as stack:
        _use(_server_start(stack, "growth-memory", binary).url)
        _activity_open(ACTIVITY, holders=0)
        coupons_seize(activity_id=ACTIVITY, shoppers=[(1, 1)])  # scripts and buffers are there
        before = store.client().info("memory")["used_memory"]
        for first in range(0, size, BATCH_MAX):
            numbers = range(first, min(first + BATCH_MAX, size))
            coupons_seize(activity_id=ACTIVITY, shoppers=[(_shopper(number) + 1, 1) for number in numbers])
        shard, cursor = shard_of(ACTIVITY), 0
        while queue_lengths([shard]) != [0]:
            cursor, entries = queue_scan(shard=shard, cursor=cursor, count=1000)
            queue_delete(shard=shard, entries=entries)
        held = (store.client().info("memory")["used_memory"] - before) / size

        _use(_server_start(stack, "growth-compact", binary).url)
        before = store.client().info("memory")["used_memory"]
        for first in range(0, size, PAGE):
            pipeline = store.client().pipeline(transaction=False)
            for user in map(_shopper, range(first, first + PAGE)):
                pipeline.hset(f"COUPON:SEIZE:LIST:{{1}}:{ACTIVITY}:{user % (size // 100)}", str(user), "1")
            pipeline.execute()
        compact = (store.client().info("memory")["used_memory"] - before) / size
    return {"memory_bytes_per_coupon": round(held, 1), "compact_bytes_per_coupon": round(compact, 1)}


if __name__ == "__main__":
    print(json.dumps(measure(options_read(), Lines()), indent=2))
