"""Claims on their way: won in Redis, not yet in the ledger.

Faults are those of :mod:`seize.store`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from seize.keys import drained_key, queue_key, seize_keys
from seize.store import client, faults_translated, script_call


class Entry(NamedTuple):
    """One waiting claim as it stands in the queue: field ``activity:user:seq``, value ``seized_ms:uid``."""

    field: str
    value: str


def queue_lengths(shards: Sequence[int]) -> list[int]:
    """Waiting claims per shard, in one round trip."""
    with faults_translated():
        pipeline = client().pipeline(transaction=False)
        for shard in shards:
            pipeline.hlen(queue_key(shard))
        return cast("list[int]", pipeline.execute())


def queue_scan(*, shard: int, cursor: int, count: int, activity_id: int | None = None) -> tuple[int, list[Entry]]:
    """One step of HSCAN; follow the cursor until it is 0 again. Entries may repeat, none that stays is missed."""
    match = None if activity_id is None else f"{activity_id}:*"
    with faults_translated():
        reply = client().hscan(queue_key(shard), cursor=cursor, match=match, count=count)
    next_cursor, found = cast("tuple[int, dict[str, str]]", reply)
    return int(next_cursor), list(map(Entry._make, found.items()))


def queue_entries(*, shard: int, activity_id: int) -> Iterator[Entry]:
    """All waiting claims of an activity, each at least once."""
    cursor = 0
    while True:
        cursor, entries = queue_scan(shard=shard, cursor=cursor, count=1000, activity_id=activity_id)
        yield from entries
        if cursor == 0:
            return


def queue_lookup(fields_by_shard: Mapping[int, Sequence[str]]) -> list[Entry]:
    """Of the given fields, the entries that are waiting; one HMGET a shard in one round trip."""
    if not fields_by_shard:
        return []
    with faults_translated():
        pipeline = client().pipeline(transaction=False)
        for shard, fields in fields_by_shard.items():
            pipeline.hmget(queue_key(shard), list(fields))
        replies = pipeline.execute()
    return [
        Entry(field, value)
        for fields, values in zip(fields_by_shard.values(), replies, strict=True)
        for field, value in zip(fields, values, strict=True)
        if value is not None
    ]


def _entry_arguments(entries: Sequence[Entry]) -> list[str] | list[bytes]:
    """All fields, then all values, as the very bytes that were read; hiredis packs no surrogates by itself."""
    texts = [entry.field for entry in entries] + [entry.value for entry in entries]
    if "".join(texts).isascii():
        return texts
    return [text.encode("utf-8", "surrogateescape") for text in texts]


def queue_delete(*, shard: int, entries: Sequence[Entry]) -> int:
    """Remove claims that the ledger has, each only if its value is unchanged; the number removed."""
    keys = (queue_key(shard), drained_key(shard))
    return int(script_call("queue_delete", keys, _entry_arguments(entries)))


class Drained(NamedTuple):
    """Claims that left a queue: since Redis last lost its data, and a second over the last ten that are complete."""

    total: int
    per_second: float


def queue_drained(shards: Sequence[int], *, now_s: int) -> list[Drained]:
    """What left each queue, in one round trip; ``now_s`` is Redis' clock, Unix time in s."""
    with faults_translated():
        pipeline = client().pipeline(transaction=False)
        for shard in shards:
            pipeline.hmget(drained_key(shard), ["total", "at", "now", "before"])
        replies = pipeline.execute()
    current = now_s // 10
    drained = []
    for total, at, now, before in replies:
        complete = {current: before, current - 1: now}.get(int(at or 0), 0)
        drained.append(Drained(int(total or 0), int(complete or 0) / 10))
    return drained


def drain_check(*, activity_id: int, entries: Sequence[Entry]) -> tuple[str, list[bool]]:
    """The epoch that Redis has for the activity ('' = none) and whether each claim is still waiting."""
    keys = seize_keys(activity_id)
    arguments = _entry_arguments(entries)
    epoch, *held = script_call("drain_check", (keys.rules, keys.queue), arguments)
    return epoch, [flag == 1 for flag in held]
