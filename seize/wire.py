"""One pipelined connection to a single Redis in the event loop: the gate's short way to ``seize.lua``.

redis-py in a thread costs a script call 130 µs of CPU beside what it carries, this a third. Commands go out as they
come and answers come back in the same order. A Cluster, a Sentinel and TLS stay with :mod:`seize.store`, and what a
fault means is the same here as there: nothing happened (:class:`StoreUnavailable`), or nobody knows
(:class:`OutcomeUnknown`).
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

import hiredis
from django.conf import settings

from seize.store import (
    OutcomeUnknown,
    SeizeReply,
    Shopper,
    StoreRefused,
    StoreUnavailable,
    WireAddress,
    script_source,
    seize_arguments,
)

UNREAD_S = 0.02  # for reading what has come while this process was busy
Answer = Any  # what hiredis makes of a reply; an error is a hiredis.ReplyError


class _Connection(asyncio.Protocol):
    """Sends what it is given, and hands each reply to the call that has waited longest."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(encoding="utf-8", errors="surrogateescape")
        self._waiting: deque[asyncio.Future[Answer]] = deque()
        self._transport: asyncio.Transport | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:  # False: not complete; the script never answers with it
            if not self._waiting:
                self.close("an answer that nobody waits for")  # it would be taken for the next one's
                return
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(OutcomeUnknown(f"Redis went away: {exc}"))

    async def command(self, *words: str | bytes) -> Answer:
        """Send a command and wait for its reply.

        :raises StoreUnavailable: the connection is gone, and nothing was sent.
        :raises OutcomeUnknown: it was sent, and no answer came in ``REDIS_TIMEOUT_S``, or ever.
        """
        if self.lost or self._transport is None:
            raise StoreUnavailable("the connection to Redis is gone")
        loop = asyncio.get_running_loop()
        packed = hiredis.pack_command(cast("Any", words))
        waiting: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append(waiting)
        self._transport.write(packed)
        timer = loop.call_later(settings.REDIS_TIMEOUT_S, self._due, waiting)
        try:
            return await waiting
        finally:
            timer.cancel()

    def _due(self, waiting: asyncio.Future[Answer]) -> None:
        """Time is over. After a pause of this process the answer may lie here unread: sockets come after timers."""
        asyncio.get_running_loop().call_later(UNREAD_S, self._late, waiting)

    def _late(self, waiting: asyncio.Future[Answer]) -> None:
        """The answer is overdue: those behind it would be taken for it, so this connection is over."""
        if not waiting.done():
            self.close("no answer in time")

    def close(self, why: str) -> None:
        """Tell everybody who waits, and hang up."""
        self.connection_lost(TimeoutError(why))
        if self._transport is not None:
            self._transport.abort()


class Wire:
    """An event loop's connection to the Redis at an address, made when it is needed, and again when it was lost."""

    def __init__(self, address: WireAddress) -> None:
        self._address = address
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None

    async def seize(self, *, activity_id: int, shoppers: Sequence[Shopper], demand: int = 0) -> SeizeReply:
        """Run ``seize.lua`` as :func:`seize.store.seize` does.

        :raises StoreUnavailable: nothing happened.
        :raises OutcomeUnknown: it may have happened.
        """
        keys, arguments = seize_arguments(activity_id, shoppers, demand=demand)
        source, digest = script_source("seize")
        connection = await self._connected()
        words = (str(len(keys)), *keys, *arguments)
        reply = await connection.command("EVALSHA", digest, *words)
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT"):
            # It did not run, so running it now does not run it twice.
            reply = await connection.command("EVAL", source, *words)
        if isinstance(reply, hiredis.ReplyError):
            raise _refusal(reply)
        return SeizeReply(now_ms=reply[0], starts_ms=reply[1], entries=reply[2:])

    def close(self) -> None:
        """Hang up; whoever still waits is told."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None and not self._connection.lost:
            self._connection.close("this process stops")

    async def _connected(self) -> _Connection:
        if self._connection is not None and not self._connection.lost:
            return self._connection
        if self._connecting is None:  # whoever comes meanwhile waits for the same attempt
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled():
                raise StoreUnavailable("this process stops") from None
            raise
        finally:
            if self._connecting is connecting and connecting.done():
                self._connecting = None

    async def _connect(self) -> _Connection:
        address, loop = self._address, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(settings.REDIS_CONNECT_TIMEOUT_S):
                if address.path:
                    _transport, connection = await loop.create_unix_connection(_Connection, address.path)
                else:
                    _transport, connection = await loop.create_connection(_Connection, address.host, address.port)
        except (OSError, TimeoutError) as error:
            raise StoreUnavailable(f"cannot connect to Redis: {error}") from error
        try:
            for words in address.greeting:
                reply = await connection.command(*words)
                if isinstance(reply, hiredis.ReplyError):
                    connection.close("not welcome")
                    raise StoreUnavailable(f"cannot connect to Redis: {reply}")
        except OutcomeUnknown as error:
            raise StoreUnavailable(f"cannot connect to Redis: {error}") from error
        self._connection = connection
        return connection


def _refusal(error: hiredis.ReplyError) -> StoreUnavailable:
    """Redis answered with an error before it wrote, whatever its reason: see :func:`seize.store.faults_translated`."""
    if str(error).startswith("LOADING"):
        return StoreUnavailable(f"Redis is loading: {error}")
    return StoreRefused(f"Redis refused: {error}")
