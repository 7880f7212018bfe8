"""The only module that talks to Redis: connections, scripts, and what their faults mean.

Every public function raises :class:`StoreUnavailable` when nothing happened and
:class:`OutcomeUnknown` when a call was sent and its answer never came.
"""

import functools
import queue as queue_module
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.commands.core import Script
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    MaxConnectionsError,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry

from seize.keys import (
    LIST_KEY,
    LIST_STAMP_KEY,
    lease_key,
    marker_key,
    queue_key,
    seize_keys,
    shard_of,
    stock_key,
)

LUA_FOLDER = Path(__file__).parent / "lua"


class StoreUnavailable(Exception):
    """Redis refused or cannot be reached and nothing happened: the same call may be made again."""


class StoreBusy(StoreUnavailable):
    """Every connection of this process is in use; nothing happened."""


class OutcomeUnknown(Exception):
    """The call was sent and no answer came: it may or may not have happened. Ask again with the same seq."""


# -- Connections ------------------------------------------------------------------------------------


class _ConnectFailed(ConnectionError):
    """No connection could be made, so no command was sent."""


def _connection_class(base: type[Any]) -> type[Any]:
    """A connection that tells "could not connect" from "lost after sending"; redis-py does not."""

    class Connection(base):
        def connect(self) -> None:
            try:
                super().connect()
            except (ConnectionError, TimeoutError) as error:
                raise _ConnectFailed(str(error)) from error

    return Connection


_SCHEMES = {
    "redis": redis.Connection,
    "rediss": redis.SSLConnection,
    "unix": redis.UnixDomainSocketConnection,
}


@functools.cache
def _client_for(url: str) -> "redis.Redis":
    scheme = url.partition("://")[0]
    if not url:
        raise StoreUnavailable("no Redis: start script/server, or set REDIS_URL")
    if scheme not in _SCHEMES:
        raise StoreUnavailable(f"REDIS_URL begins with redis://, rediss:// or unix://, not {scheme}://")
    pool = redis.BlockingConnectionPool.from_url(
        url,
        connection_class=_connection_class(_SCHEMES[scheme]),
        max_connections=settings.REDIS_POOL_SIZE,
        timeout=settings.REDIS_TIMEOUT_S,
        socket_timeout=settings.REDIS_TIMEOUT_S,
        socket_connect_timeout=settings.REDIS_CONNECT_TIMEOUT_S,
        # redis-py repeats commands by itself, even after a time-out: one script call could run twice.
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        encoding_errors="surrogateescape",  # a broken queue entry must survive the round trip to be deleted
    )
    return redis.Redis(connection_pool=pool)


def client() -> "redis.Redis":
    """The client of ``settings.REDIS_URL``; one pool per process and URL."""
    return _client_for(settings.REDIS_URL)


@contextmanager
def _faults_translated() -> Iterator[None]:
    """Turn each Redis fault into the one question that matters: can it have happened?"""
    try:
        yield
    except _ConnectFailed as error:
        raise StoreUnavailable(f"cannot connect to Redis: {error}") from error
    except BusyLoadingError as error:
        raise StoreUnavailable(f"Redis is loading: {error}") from error
    except MaxConnectionsError as error:
        raise StoreBusy(str(error)) from error
    except ConnectionError as error:
        if isinstance(error.__context__, queue_module.Empty):
            raise StoreBusy("all Redis connections are in use") from error
        raise OutcomeUnknown(f"Redis went away: {error}") from error
    except TimeoutError as error:
        raise OutcomeUnknown(f"Redis did not answer in time: {error}") from error
    except ResponseError as error:
        # OOM, MISCONF, READONLY, LOADING, CLUSTERDOWN, NOREPLICAS, WRONGTYPE …: Redis refused before it wrote.
        raise StoreUnavailable(f"Redis refused: {error}") from error
    except RedisError as error:
        raise OutcomeUnknown(str(error)) from error


@functools.cache
def _script(name: str, url: str) -> Script:
    return _client_for(url).register_script((LUA_FOLDER / f"{name}.lua").read_text())


def _call(name: str, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> Any:
    """Run a script; one that Redis has forgotten is loaded again, which cannot run it twice."""
    with _faults_translated():
        return _script(name, settings.REDIS_URL)(keys=list(keys), args=list(arguments))


# -- Seizing ------------------------------------------------------------------------------------------


class SeizeReply(NamedTuple):
    """What ``seize.lua`` answered; ``entries`` are, per shopper, four fields when won and two when refused."""

    now_ms: int
    starts_ms: int
    entries: list[list[Any]]


def seize(*, activity_id: int, shoppers: Sequence[tuple[int, int]]) -> SeizeReply:
    """Run ``seize.lua`` for (user id, wanted seq or 0) pairs of one activity.

    :raises StoreUnavailable: nothing happened.
    :raises OutcomeUnknown: it may have happened.
    """
    arguments = [str(activity_id)]
    for user_id, seq in shoppers:
        arguments += (str(user_id), str(seq))
    reply = _call("seize", seize_keys(activity_id), arguments)
    return SeizeReply(now_ms=reply[0], starts_ms=reply[1], entries=reply[2:])


# -- Rules, preheat, rebuild --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rules:
    """What Redis needs to know of an activity. Times are Unix ms; ``state`` is open, paused or voided."""

    activity_id: int
    uid: str
    epoch: int
    version: int
    state: str
    starts_ms: int
    ends_ms: int
    per_user: int
    total: int
    settled: bool = False

    def arguments(self) -> list[str | int]:
        return [
            self.uid,
            self.epoch,
            self.version,
            self.state,
            self.starts_ms,
            self.ends_ms,
            self.per_user,
            self.total,
        ]


def preheat(rules: Rules) -> str:
    """Run ``preheat.lua``; returns 'applied', 'current', 'fenced' or 'rebuild'."""
    keys = seize_keys(rules.activity_id)
    arguments = [rules.activity_id, *rules.arguments(), int(rules.settled)]
    return cast(str, _call("preheat", (keys.rules, keys.stock, keys.holders), arguments))


def close(*, activity_id: int, uid: str, state: str) -> bool:
    """Run ``close.lua``; False when Redis holds no such activity."""
    return bool(_call("close", (seize_keys(activity_id).rules,), (uid, state)))


def rebuild_begin(*, activity_id: int, token: str, lease_ms: int) -> int:
    """Fence the activity; 0, or the ms for which another owner's lease still runs."""
    return int(_call("rebuild_begin", (seize_keys(activity_id).rules,), (token, lease_ms)))


def rebuild_holders(
    *, activity_id: int, token: str, lease_ms: int, reset: bool, holders: Mapping[int, int] | None = None
) -> bool:
    """Write user id → highest seq; False when the fence was lost and the rebuild must stop."""
    keys = seize_keys(activity_id)
    pairs = [value for pair in (holders or {}).items() for value in pair]
    return bool(_call("rebuild_holders", (keys.rules, keys.holders), (token, lease_ms, int(reset), *pairs)))


def rebuild_finish(*, rules: Rules, token: str, claims: int) -> bool:
    """Stamp the rebuilt activity and open it; False when the fence was lost."""
    keys = seize_keys(rules.activity_id)
    arguments = [token, rules.activity_id, *rules.arguments(), claims]
    return bool(_call("rebuild_finish", (keys.rules, keys.stock, keys.holders), arguments))


def settle(*, activity_id: int, uid: str, epoch: int) -> bool:
    """Forget the holders of an activity that is over; False when Redis' clock or rules say otherwise."""
    keys = seize_keys(activity_id)
    return bool(_call("settle", (keys.rules, keys.stock, keys.holders), (activity_id, uid, epoch)))


# -- Inspection ---------------------------------------------------------------------------------------


class ActivityState(NamedTuple):
    """What Redis holds of one activity; every field a string, '' when absent."""

    uid: str
    epoch: str
    gen: str
    version: str
    fence: str
    fence_until_ms: str
    fence_gen: str
    holders_epoch: str
    stock: str


class ShardState(NamedTuple):
    """What Redis holds of a shard: its clock, its generation, whether it is declared loaded, its activities."""

    now_ms: int
    gen: str
    loaded: bool
    activities: dict[int, ActivityState]


def shard_inspect(*, shard: int, activity_ids: Sequence[int]) -> ShardState:
    """Read many activities of one shard in one instant; callers pass at most some hundreds at a time."""
    keys = [marker_key(shard), stock_key(shard)]
    for activity_id in activity_ids:
        own = seize_keys(activity_id)
        keys += (own.rules, own.holders)
    now_ms, gen, loaded, *found = _call("shard_inspect", keys, activity_ids)
    activities = {i: ActivityState(*fields) for i, fields in zip(activity_ids, found, strict=True)}
    return ShardState(now_ms=now_ms, gen=gen, loaded=loaded == gen, activities=activities)


def shard_token_write(*, shard: int, token: str) -> None:
    """Leave a token that only survives while nobody empties Redis."""
    with _faults_translated():
        client().hset(marker_key(shard), "token", token)


def shard_declare_loaded(*, shard: int, token: str) -> bool:
    """Run ``shard_loaded.lua``; False when the token is gone."""
    return bool(_call("shard_loaded", (marker_key(shard),), (token,)))


def shard_unload(*, shard: int) -> None:
    """Withdraw the declaration: unknown ids get 503 until the shard has been compared again."""
    with _faults_translated():
        client().hdel(marker_key(shard), "loaded", "token")


def time_us() -> int:
    """Redis' clock, Unix time in µs."""
    with _faults_translated():
        seconds, micros = client().time()
    return seconds * 1_000_000 + micros


def stock_left(activity_ids: Sequence[int]) -> dict[int, int]:
    """Coupons left per activity, of those that Redis knows; one HMGET a shard in one round trip."""
    by_shard: dict[int, list[int]] = {}
    for activity_id in activity_ids:
        by_shard.setdefault(shard_of(activity_id), []).append(activity_id)
    with _faults_translated():
        pipeline = client().pipeline(transaction=False)
        for shard, ids in by_shard.items():
            pipeline.hmget(stock_key(shard), [str(i) for i in ids])
        replies = pipeline.execute()
    left: dict[int, int] = {}
    for ids, values in zip(by_shard.values(), replies, strict=True):
        left.update({i: int(value) for i, value in zip(ids, values, strict=True) if value is not None})
    return left


def list_read() -> tuple[str | None, int]:
    """The activity list's JSON text (None when absent) and Redis' clock, Unix time in ms."""
    with _faults_translated():
        pipeline = client().pipeline(transaction=False)
        pipeline.get(LIST_KEY)
        pipeline.time()
        text, (seconds, micros) = pipeline.execute()
    return text, seconds * 1000 + micros // 1000


def list_write(*, stamp_us: int, text: str) -> bool:
    """Replace the activity list; False when a later reader of the database has already written."""
    return bool(_call("list_write", (LIST_KEY, LIST_STAMP_KEY), (stamp_us, text)))


# -- Queue --------------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One waiting claim as it stands in the queue: field ``activity:user:seq``, value ``seized_ms:uid``."""

    field: str
    value: str


def queue_lengths(shards: Sequence[int]) -> list[int]:
    """Waiting claims per shard, in one round trip."""
    with _faults_translated():
        pipeline = client().pipeline(transaction=False)
        for shard in shards:
            pipeline.hlen(queue_key(shard))
        return cast("list[int]", pipeline.execute())


def queue_scan(*, shard: int, cursor: int, count: int, activity_id: int | None = None) -> tuple[int, list[Entry]]:
    """One step of HSCAN; follow the cursor until it is 0 again. Entries may repeat, none that stays is missed."""
    match = None if activity_id is None else f"{activity_id}:*"
    with _faults_translated():
        reply = client().hscan(queue_key(shard), cursor=cursor, match=match, count=count)
    next_cursor, found = cast("tuple[int, dict[str, str]]", reply)
    return int(next_cursor), [Entry(field, value) for field, value in found.items()]


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
    with _faults_translated():
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


def _entry_arguments(entries: Sequence[Entry]) -> list[bytes]:
    """Fields and values as the very bytes that were read; hiredis packs no surrogates by itself."""
    return [text.encode("utf-8", "surrogateescape") for entry in entries for text in entry]


def queue_delete(*, shard: int, entries: Sequence[Entry]) -> int:
    """Remove claims that the ledger has, each only if its value is unchanged; the number removed."""
    arguments = _entry_arguments(entries)
    return int(_call("queue_delete", (queue_key(shard),), arguments))


def drain_check(*, activity_id: int, entries: Sequence[Entry]) -> tuple[str, list[bool]]:
    """The epoch that Redis has for the activity ('' = none) and whether each claim is still waiting."""
    keys = seize_keys(activity_id)
    arguments = _entry_arguments(entries)
    epoch, *held = _call("drain_check", (keys.rules, keys.queue), arguments)
    return epoch, [flag == 1 for flag in held]


# -- Leases -------------------------------------------------------------------------------------------


class Lease:
    """A lock that one holder has for a while (S10): SET NX with expiry and token, released only by its holder.

    It saves work, it does not protect data: a holder that stalls past its lease may run beside the next one.
    """

    def __init__(self, name: str, *, lease_ms: int) -> None:
        self.key = lease_key(name)
        self.lease_ms = lease_ms
        self.token = secrets.token_hex(16)

    def acquire(self) -> bool:
        """Take the lease if nobody has it."""
        with _faults_translated():
            return bool(client().set(self.key, self.token, nx=True, px=self.lease_ms))

    def renew(self) -> bool:
        """Prolong it; False when it ran out and may be somebody else's."""
        return bool(_call("lease_renew", (self.key,), (self.token, self.lease_ms)))

    def release(self) -> bool:
        """Give it back; False when it was not ours any more."""
        return bool(_call("lease_release", (self.key,), (self.token,)))


def leases_held(names: Sequence[str]) -> list[bool]:
    """Whether somebody holds each lease, in one round trip."""
    with _faults_translated():
        pipeline = client().pipeline(transaction=False)
        for name in names:
            pipeline.exists(lease_key(name))
        return [bool(held) for held in pipeline.execute()]
