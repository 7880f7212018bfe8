"""An activity put into Redis by the product's own scripts, without a database."""

import time
from dataclasses import replace

import redis
from redis.cluster import RedisCluster

from seize import desk
from seize.keys import LIST_KEY, LIST_STAMP_KEY, seize_keys

ACTIVITY = 11
UID = "a1b2c3d4"


def rules(**changes: object) -> desk.Rules:
    """Rules of an activity that has been running for a minute and ends in an hour."""
    now_ms = int(time.time() * 1000)
    usual = desk.Rules(
        activity_id=ACTIVITY,
        uid=UID,
        epoch=1,
        version=1,
        state="open",
        starts_ms=now_ms - 60_000,
        ends_ms=now_ms + 3_600_000,
        per_user=1,
        total=5,
    )
    return replace(usual, **changes)


def load(**changes: object) -> desk.Rules:
    """Load an activity as a rebuild with nothing claimed does."""
    wanted = rules(**changes)
    assert desk.rebuild_begin(activity_id=wanted.activity_id, token="t", lease_ms=600_000) == 0
    assert desk.rebuild_holders(activity_id=wanted.activity_id, token="t", lease_ms=600_000, reset=True)
    assert desk.rebuild_finish(rules=wanted, token="t", claims=0)
    return wanted


def declare_loaded(activity_id: int = ACTIVITY) -> None:
    """Say that all rules of the activity's shard are there."""
    shard = activity_id % 10
    desk.shard_token_write(shard=shard, token="t")
    assert desk.shard_declare_loaded(shard=shard, token="t")


def dumps(raw: redis.Redis, activity_id: int = ACTIVITY) -> dict[str, object]:
    """DUMP of every key that a seize of the activity may touch, and of the lists."""
    names = [*seize_keys(activity_id), LIST_KEY, LIST_STAMP_KEY]
    plain = _undecoded(raw)
    try:
        return {name: plain.dump(name) for name in names}
    finally:
        plain.close()


def _undecoded(raw: redis.Redis):
    if isinstance(raw, RedisCluster):
        return RedisCluster(startup_nodes=raw.get_nodes())
    kwargs = raw.connection_pool.connection_kwargs
    return redis.Redis(host=kwargs["host"], port=kwargs["port"])
