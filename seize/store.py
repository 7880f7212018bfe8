"""The only module that talks to Redis: connections, scripts, and what their faults mean.

Every public function raises :class:`StoreUnavailable` when nothing happened and
:class:`OutcomeUnknown` when a call was sent and its answer never came.
"""

import functools
import hashlib
import queue as queue_module
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.commands.core import Script
from redis.connection import parse_url
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    MaxConnectionsError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,
)
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelManagedConnection

from seize.keys import LIST_KEY, SHARDS, SeizeKeys, lease_key, probe_key, seize_keys

LUA_FOLDER = Path(__file__).parent / "lua"


class StoreUnavailable(Exception):
    """Redis refused or cannot be reached and nothing happened: the same call may be made again."""


class StoreBusy(StoreUnavailable):
    """Every connection of this process is in use; nothing happened."""


class StoreRefused(StoreUnavailable):
    """Redis is there and said no, for example because its memory is full; nothing happened."""


class OutcomeUnknown(Exception):
    """The call was sent and no answer came: it may or may not have happened. Ask again with the same seq."""


Fault = StoreUnavailable | OutcomeUnknown


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
CLUSTER, SENTINEL = "redis+cluster", "redis+sentinel"


def _options() -> dict[str, Any]:
    """What every connection of every kind of server has in common."""
    return {
        "socket_timeout": settings.REDIS_TIMEOUT_S,
        "socket_connect_timeout": settings.REDIS_CONNECT_TIMEOUT_S,
        # redis-py repeats commands by itself, even after a time-out: one script call could run twice.
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": True,
        "encoding_errors": "surrogateescape",  # a broken queue entry must survive the round trip to be deleted
    }


@functools.cache
def _client_for(url: str) -> "redis.Redis":
    """A client by URL: one server, ``redis+cluster://[:password@]host:port,…`` or
    ``redis+sentinel://[:password@]host:port,…/service[/database]``.

    :raises StoreUnavailable: no URL, or one of another kind.
    """
    scheme = url.partition("://")[0]
    if not url:
        raise StoreUnavailable("no Redis: start script/server, or set REDIS_URL")
    if scheme == CLUSTER:
        return _cluster_client(url)
    if scheme == SENTINEL:
        return _sentinel_client(url)
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in (*_SCHEMES, CLUSTER, SENTINEL))
        raise StoreUnavailable(f"REDIS_URL begins with one of {known}; not with {scheme}://")
    pool = redis.BlockingConnectionPool.from_url(
        url,
        connection_class=_connection_class(_SCHEMES[scheme]),
        max_connections=settings.REDIS_POOL_SIZE,
        timeout=settings.REDIS_TIMEOUT_S,
        **_options(),
    )
    return redis.Redis(connection_pool=pool)


def _addresses(url: str) -> tuple[dict[str, Any], list[tuple[str, int]], list[str]]:
    """Credentials, (host, port) pairs and path parts of a URL that names several servers."""
    authority, *path = url.partition("://")[2].split("/")
    credentials, _at, hosts = authority.rpartition("@")
    user, _colon, password = (unquote(part) for part in credentials.partition(":"))
    given: dict[str, Any] = {name: value for name, value in (("username", user), ("password", password)) if value}
    pairs = [host.rpartition(":") for host in hosts.split(",")]
    try:
        return given, [(host, int(port)) for host, _colon, port in pairs], path
    except ValueError:
        raise StoreUnavailable("REDIS_URL must name host:port,host:port,…") from None


def _cluster_client(url: str) -> "redis.Redis":
    credentials, addresses, _path = _addresses(url)
    with faults_translated():
        # It speaks the same commands; that its type is another one is no concern of the callers.
        return cast(
            "redis.Redis",
            RedisCluster(
                # Only a client made from a URL takes a class for its connections.
                url=f"redis://{addresses[0][0]}:{addresses[0][1]}",
                startup_nodes=[ClusterNode(host, port) for host, port in addresses],
                connection_class=_connection_class(redis.Connection),
                max_connections=settings.REDIS_POOL_SIZE,
                **credentials,
                **_options(),
            ),
        )


def _sentinel_client(url: str) -> "redis.Redis":
    credentials, addresses, path = _addresses(url)
    service, database = [*path, "0"][:2] if path else ("", "0")
    if not service:
        raise StoreUnavailable("REDIS_URL must name Sentinel's service: redis+sentinel://host:port,…/service")
    options = _options()
    timeouts = {name: options[name] for name in ("socket_timeout", "socket_connect_timeout", "retry")}
    sentinel = Sentinel(addresses, sentinel_kwargs=timeouts)
    return sentinel.master_for(
        service,
        db=int(database),
        connection_class=_connection_class(SentinelManagedConnection),
        max_connections=settings.REDIS_POOL_SIZE,
        **credentials,
        **options,
    )


class WireAddress(NamedTuple):
    """Where a single plain Redis listens, and the commands with which a connection to it begins."""

    host: str
    port: int
    path: str
    greeting: tuple[tuple[str, ...], ...]


def wire_address() -> WireAddress | None:
    """The address in ``settings.REDIS_URL``; None for a Cluster, a Sentinel, TLS, or whatever else a URL may ask."""
    if not settings.REDIS_URL.startswith(("redis://", "unix://")):
        return None
    given = cast("dict[str, Any]", parse_url(settings.REDIS_URL))
    if given.keys() - _PLAIN_OPTIONS:
        return None
    greeting: list[tuple[str, ...]] = []
    if given.get("password"):
        user = (given["username"],) if given.get("username") else ()
        greeting.append(("AUTH", *user, given["password"]))
    if given.get("db"):
        greeting.append(("SELECT", str(given["db"])))
    return WireAddress(given.get("host", "localhost"), given.get("port", 6379), given.get("path", ""), tuple(greeting))


_PLAIN_OPTIONS = {"host", "port", "path", "db", "username", "password", "connection_class"}


def client() -> "redis.Redis":
    """The client of ``settings.REDIS_URL``; one pool per process and URL."""
    return _client_for(settings.REDIS_URL)


def _lost_after_sending(error: BaseException) -> bool:
    """Whether a cluster's "no node is reachable" hides a command that was sent before: redis-py replaces the error."""
    while (cause := error.__context__) is not None:
        if isinstance(cause, ConnectionError | TimeoutError) and not isinstance(cause, _ConnectFailed):
            return True
        error = cause
    return False


@contextmanager
def faults_translated() -> Iterator[None]:  # noqa: C901 - one table of faults, read top to bottom
    """Turn each Redis fault into the one question that matters: can it have happened?"""
    try:
        yield
    except _ConnectFailed as error:
        raise StoreUnavailable(f"cannot connect to Redis: {error}") from error
    except (MasterNotFoundError, RedisClusterException) as error:
        if _lost_after_sending(error):
            raise OutcomeUnknown(f"Redis went away: {error}") from error
        raise StoreUnavailable(f"no Redis master: {error}") from error
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
        raise StoreRefused(f"Redis refused: {error}") from error
    except RedisError as error:
        raise OutcomeUnknown(str(error)) from error


@functools.cache
def script_source(name: str) -> tuple[str, str]:
    """A script's text, and the SHA-1 by which Redis knows it."""
    text = (LUA_FOLDER / f"{name}.lua").read_text()
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@functools.cache
def _script(name: str, url: str) -> Script:
    return _client_for(url).register_script(script_source(name)[0])


def script_call(name: str, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> Any:
    """Run a script; one that Redis has forgotten is loaded again, which cannot run it twice."""
    with faults_translated():
        return _script(name, settings.REDIS_URL)(keys=list(keys), args=list(arguments))


# -- Seizing ------------------------------------------------------------------------------------------


class SeizeReply(NamedTuple):
    """What ``seize.lua`` answered; ``entries`` are, per shopper, four fields when won and two when refused."""

    now_ms: int
    starts_ms: int
    entries: list[list[Any]]


Shopper = tuple[int, int] | tuple[int, int, int]


def seize(*, activity_id: int, shoppers: Sequence[Shopper], demand: int = 0) -> SeizeReply:
    """Run ``seize.lua`` for shoppers of one activity.

    :param shoppers: user id, wanted seq (0 = next, below zero = only if it is held already), and optionally what is
        known of a challenge: 0 = none was solved, -1 = not rightly, else the ms at which it was set.
    :param demand: asks per second for this activity, as far as this process sees them.

    :raises StoreUnavailable: nothing happened.
    :raises OutcomeUnknown: it may have happened.
    """
    reply = script_call("seize", *seize_arguments(activity_id, shoppers, demand=demand))
    return SeizeReply(now_ms=reply[0], starts_ms=reply[1], entries=reply[2:])


def seize_arguments(activity_id: int, shoppers: Sequence[Shopper], *, demand: int = 0) -> tuple[SeizeKeys, list[str]]:
    """KEYS and ARGV of ``seize.lua``."""
    arguments = [str(activity_id), str(demand)]
    for user_id, seq, *proof in shoppers:
        arguments += (str(user_id), str(seq), str(proof[0]) if proof else "0")
    return seize_keys(activity_id), arguments


# -- The clock -----------------------------------------------------------------------------------------


def time_us() -> int:
    """Redis' clock, Unix time in µs; in a cluster that of the master that holds the activity list."""
    _text, seconds, micros = script_call("list_read", (LIST_KEY,), ())
    return int(seconds) * 1_000_000 + int(micros)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What matters about the server: whether it may be trusted with coupons."""

    name: str
    version: str
    role: str
    aof: bool
    fsync: str
    aof_written: bool
    policy: str
    memory_bytes: int
    clock_off_s: float  # by how much its clock differs from this host's at least

    @property
    def durable(self) -> bool:
        """Whether what it acknowledges is on disk; a server that hides its configuration gets the benefit of doubt."""
        return self.aof and self.aof_written and self.fsync in ("always", "?")

    @property
    def keeps_all(self) -> bool:
        """Whether it never evicts."""
        return self.policy in ("noeviction", "?")


def server_facts() -> list[ServerFacts]:
    """Ask every master about itself; ``fsync`` and ``policy`` are '?' where CONFIG is forbidden."""
    with faults_translated():
        redis_or_cluster: Any = client()
        nodes = redis_or_cluster.get_primaries() if isinstance(redis_or_cluster, RedisCluster) else [None]
        return [_facts_of(redis_or_cluster, node) for node in nodes]


def _facts_of(server: Any, node: ClusterNode | None) -> ServerFacts:
    target = {} if node is None else {"target_nodes": node}
    info = server.info(**target)
    before = time.time()
    seconds, micros = server.time(**target)
    clock, after = seconds + micros / 1_000_000, time.time()
    try:
        config = {name: server.config_get(name, **target)[name] for name in ("appendfsync", "maxmemory-policy")}
    except ResponseError:
        config = {}
    return ServerFacts(
        name="redis" if node is None else str(node.name),
        version=str(info.get("valkey_version") or info["redis_version"]),
        role=str(info["role"]),
        aof=bool(info["aof_enabled"]),
        fsync=str(config.get("appendfsync", "?")),
        aof_written=info.get("aof_last_write_status", "ok") == "ok",
        policy=str(config.get("maxmemory-policy", info.get("maxmemory_policy", "?"))),
        memory_bytes=int(info["used_memory"]),
        clock_off_s=max(before - clock, clock - after, 0.0),  # the answer may have been long on its way
    )


# -- Leases -------------------------------------------------------------------------------------------


class Lease:
    """A lock that one holder has for a while (S10): SET NX with expiry and token, released only by its holder.

    It saves work, it does not protect data: a holder that stalls past its lease may run beside the next one.
    """

    def __init__(self, name: str, *, lease_ms: int) -> None:
        self.key = lease_key(name)
        self.lease_ms = lease_ms
        self.token = secrets.token_hex(16)
        self.taken_at = 0.0  # by this process' monotonic clock, s

    def acquire(self) -> bool:
        """Take the lease if nobody has it."""
        self.taken_at = time.monotonic()
        with faults_translated():
            return bool(client().set(self.key, self.token, nx=True, px=self.lease_ms))

    def keep(self) -> None:
        """Prolong it when a fifth of its time has gone by: each renewal is a write that Redis puts on its disk."""
        if time.monotonic() - self.taken_at > self.lease_ms / 5000:
            self.renew()

    def renew(self) -> bool:
        """Prolong it; False when it ran out and may be somebody else's."""
        self.taken_at = time.monotonic()
        return bool(script_call("lease_renew", (self.key,), (self.token, self.lease_ms)))

    def release(self) -> bool:
        """Give it back; False when it was not ours any more."""
        return bool(script_call("lease_release", (self.key,), (self.token,)))


def shards_write() -> None:
    """Write a key that expires at once in every shard, in one round trip: each master shows whether it takes writes.

    :raises StoreUnavailable: one does not.
    """
    with faults_translated():
        pipeline = client().pipeline(transaction=False)
        for shard in range(SHARDS):
            pipeline.set(probe_key(shard), "1", px=1000)
        pipeline.execute()


def leases_held(names: Sequence[str]) -> list[bool]:
    """Whether somebody holds each lease, in one round trip."""
    with faults_translated():
        pipeline = client().pipeline(transaction=False)
        for name in names:
            pipeline.exists(lease_key(name))
        return [bool(held) for held in pipeline.execute()]
