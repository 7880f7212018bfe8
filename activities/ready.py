"""List and details as ready bytes, at most a second old, for the crowd that reloads before the start.

Each process asks Redis twice a second, however many shoppers ask it. ``server_time`` alone is made for each answer:
countdowns go by it.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
from django.conf import settings

from activities.listing import TABS, Snapshot, activities_list, snapshot_read
from seize.fronts import Answer, Headers, PlainRequest, answer_of, plain_request
from seize.requests import id_parse
from seize.responses import rfc3339

CACHE_CONTROL = "public, max-age=1"
LIST_PATH = b"/market/consumer/activity/list"
DETAIL_PREFIX = b"/market/consumer/activity/"
_HEAD = b'{"server_time":"'
_QUERIES: dict[bytes, str | None] = {b"": None, **{b"tab=" + tab.encode(): tab for tab in TABS}}


@dataclass(slots=True)
class _Taken:
    """A snapshot, when it was taken by this process' monotonic clock (s), and what was rendered of it."""

    snapshot: Snapshot
    taken_s: float
    rendered: dict[str | None, "Ready"] = field(default_factory=dict)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.taken_s

    @property
    def now_ms(self) -> int:
        """Redis' clock by now, Unix ms."""
        return self.snapshot.now_ms + int(self.age_s * 1000)

    @property
    def is_old(self) -> bool:
        """Whether it is time to read again: half of its time has gone by, or an activity starts or ends."""
        return self.age_s > settings.LIST_CACHE_S / 2 or self.now_ms >= self.snapshot.changes_ms


@dataclass(frozen=True, slots=True)
class Ready:
    """An answer without the time: ``tail`` is what follows it. The ETag is weak, since the time differs."""

    taken: _Taken
    tail: bytes
    etag: str

    def body(self) -> bytes:
        """The bytes to send now. Their time is one at which the statuses in them hold."""
        now_ms = min(self.taken.now_ms, self.taken.snapshot.changes_ms - 1)
        return _HEAD + rfc3339(now_ms).encode() + self.tail


class _Cache:
    """The process' last snapshot. One thread refreshes it, others wait for it only where there is none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: _Taken | None = None
        self._claimed: _Taken | None = None  # whose successor somebody fetches, since then
        self._claimed_s = 0.0

    def fresh(self) -> _Taken:
        """At most half of ``LIST_CACHE_S`` old, and before the next start or end; read now where it is not.

        :raises seize.store.StoreUnavailable: Redis, or the list in it, is not there.
        """
        with self._lock:
            if self._taken is None or self._taken.is_old:
                began_s = time.monotonic()
                self._taken = _Taken(snapshot_read(), began_s)
            return self._taken

    def at_once(self) -> _Taken | None:
        """At most ``LIST_CACHE_S`` old, without waiting; None when there is none, or when this caller is to fetch it.

        From half of that age on, and when an activity starts or ends, one caller gets None, goes the long way, and
        refreshes it for all; meanwhile the others get what there is.
        """
        taken, now_s = self._taken, time.monotonic()
        if taken is None or taken.age_s > settings.LIST_CACHE_S:
            return None
        if taken.is_old and (self._claimed is not taken or now_s - self._claimed_s > settings.LIST_CACHE_S / 2):
            self._claimed, self._claimed_s = taken, now_s
            return None
        return taken


_cache = _Cache()


def list_ready(*, tab: str | None) -> Ready:
    """The list's answer, from Redis if need be.

    :raises seize.store.StoreUnavailable: Redis, or the list in it, is not there.
    """
    return _list_of(_cache.fresh(), tab)


def detail_ready(*, activity_id: int) -> Ready | None:
    """An activity's answer, from Redis if need be; None when it is not in the list.

    :raises seize.store.StoreUnavailable: Redis, or the list in it, is not there.
    """
    return _detail_of(_cache.fresh(), str(activity_id))


def _list_of(taken: _Taken, tab: str | None) -> Ready:
    ready = taken.rendered.get(tab)
    if ready is None:
        results = orjson.dumps(activities_list(taken.snapshot, tab=tab))
        ready = taken.rendered[tab] = _ready(taken, b'","results":' + results + b"}")
    return ready


def _detail_of(taken: _Taken, activity_id: str) -> Ready | None:
    ready = taken.rendered.get(activity_id)
    if ready is None:
        shown = taken.snapshot.activities.get(activity_id)
        if shown is None:
            return None
        ready = taken.rendered[activity_id] = _ready(taken, b'",' + orjson.dumps(shown)[1:])
    return ready


def _ready(taken: _Taken, tail: bytes) -> Ready:
    return Ready(taken, tail, f'W/"{hashlib.blake2b(tail, digest_size=8).hexdigest()}"')


# -- In front of Django ---------------------------------------------------------------------------------


class ReadyShortcut:
    """``GET …/activity/list`` and ``GET …/activity/<id>`` as their views answer them, where the bytes are there."""

    method = b"GET"

    def close(self) -> None:
        """Nothing is held."""

    def take(self, path: bytes, query: bytes, headers: Headers, *, secure: bool) -> "ReadyTicket | None":
        """A ticket for a plain request of what is ready; the rest, and one request of each refresh, is Django's."""
        if not path.startswith(DETAIL_PREFIX):
            return None
        wanted = _wanted(path, query)
        if wanted is None:
            return None
        request = plain_request(headers, secure=secure)
        taken = _cache.at_once() if request is not None and not _has_body(request) else None
        ready = None if taken is None else wanted(taken)
        return None if request is None or ready is None else ReadyTicket(request, ready)


def _wanted(path: bytes, query: bytes) -> Callable[[_Taken], Ready | None] | None:
    """What is asked for, or None when the view is to look at it."""
    if path == LIST_PATH:
        return (lambda taken: _list_of(taken, _QUERIES[query])) if query in _QUERIES else None
    activity_id = path.removeprefix(DETAIL_PREFIX).decode("latin-1")
    return (lambda taken: _detail_of(taken, activity_id)) if not query and id_parse(activity_id) else None


def _has_body(request: PlainRequest) -> bool:
    return request.headers.get(b"content-length", b"0") != b"0"


class ReadyTicket:
    """A question whose answer is ready."""

    __slots__ = ("ready", "request")

    def __init__(self, request: PlainRequest, ready: Ready) -> None:
        self.request, self.ready = request, ready

    def start(self, body: bytes, done: Callable[[Answer], None]) -> Callable[[], None]:
        """Answer at once: the bytes, or 304 when the caller has the same."""
        same = _is_same(self.request.headers.get(b"if-none-match", b""), self.ready.etag)
        headers = [(b"cache-control", CACHE_CONTROL.encode()), (b"etag", self.ready.etag.encode())]
        if not same:
            headers.insert(0, (b"content-type", b"application/json"))
        done(
            answer_of(
                self.request,
                status=304 if same else 200,
                body=b"" if same else self.ready.body(),
                allow=b"GET, HEAD, OPTIONS",
                headers=headers,
            )
        )
        return _nothing


def _is_same(if_none_match: bytes, etag: str) -> bool:
    """Weak comparison, as RFC 9110 wants it for If-None-Match."""
    offered = [tag.strip().removeprefix("W/") for tag in if_none_match.decode("latin-1").split(",")]
    return etag.removeprefix("W/") in offered


def _nothing() -> None:
    """The answer is given: nobody waits."""
