"""List and details as ready bytes, at most a second old, for the crowd that reloads before the start.

Each process asks Redis twice a second, however many shoppers ask it. ``server_time`` alone is made for each answer:
countdowns go by it. For clients that take gzip all but that is compressed once.
"""

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

import orjson
from django.conf import settings

from activities.listing import TABS, Snapshot, activities_list, snapshot_for, snapshot_read
from activities.packing import packed, tail_pack, takes_gzip
from seize.fronts import Answer, Headers, PlainRequest, answer_of, nobody_leaves, plain_request, problem_answer
from seize.limits import visit_pace
from seize.problems import Problem, pace_headers, problem_of_fault
from seize.requests import id_parse
from seize.responses import rfc3339
from seize.store import Fault, OutcomeUnknown, StoreUnavailable

log = logging.getLogger(__name__)

CACHE_CONTROL, CACHE_CONTROL_PERSONAL = "public, max-age=1", "private, no-cache"
LIST_PATH = b"/market/consumer/activity/list"
DETAIL_PREFIX = b"/market/consumer/activity/"
_ALLOW = b"GET, HEAD, OPTIONS"
VARY = ("Accept-Encoding", "Authorization")
_VARY = ", ".join((*VARY, "Accept-Language")).encode()
_HEAD = b'{"server_time":"'
_QUERIES: dict[bytes, str | None] = {b"": None, **{b"tab=" + tab.encode(): tab for tab in TABS}}


@dataclass(slots=True)
class _Taken:
    """A snapshot, when its reading began by this process' monotonic clock (s), and what was rendered of it."""

    snapshot: Snapshot
    began_s: float
    rendered: dict[str | None, "Ready"] = field(default_factory=dict)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began_s

    @property
    def now_ms(self) -> int:
        """Redis' clock by now, Unix ms."""
        return self.snapshot.now_ms + int((time.monotonic() - self.snapshot.read_s) * 1000)

    @property
    def is_old(self) -> bool:
        """Whether it is time to read again: half of its time has gone by, or an activity starts or ends."""
        return self.age_s > settings.LIST_CACHE_S / 2 or self.now_ms >= self.snapshot.changes_ms

    @property
    def is_over(self) -> bool:
        return self.age_s > settings.LIST_CACHE_S


@dataclass(frozen=True, slots=True)
class Ready:
    """An answer without the time: ``tail`` is what follows it. The ETag is weak: time and encoding differ.

    ``tail_packed`` is the tail compressed, None where that gains nothing. ``is_personal``: made for one shopper.
    """

    taken: _Taken
    tail: bytes
    tail_packed: bytes | None
    etag: str
    is_personal: bool = False

    @property
    def cache_control(self) -> str:
        """Who may keep it."""
        return CACHE_CONTROL_PERSONAL if self.is_personal else CACHE_CONTROL

    def body(self) -> bytes:
        """The bytes to send now. Their time is one at which the statuses in them hold."""
        return self._head() + self.tail

    def content(self, *, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
        """The bytes to send now to a client that takes these encodings, and the headers that say so."""
        if self.tail_packed is None or not takes_gzip(accept_encoding):
            return self.body(), {}
        content = packed(head=self._head(), tail=self.tail, tail_packed=self.tail_packed)
        return content, {"Content-Encoding": "gzip"}

    def _head(self) -> bytes:
        now_ms = min(self.taken.now_ms, self.taken.snapshot.changes_ms - 1)
        return _HEAD + rfc3339(now_ms).encode()


class _Cache:
    """The process' last snapshot. One reads at a time; a fault is told to all who ask within half a second."""

    def __init__(self) -> None:
        self._reading = threading.Lock()
        self._taken: _Taken | None = None
        self._fault: tuple[Fault, float] | None = None
        self._queue = threading.Lock()  # guards the two below
        self._waiting: list[tuple[asyncio.AbstractEventLoop, Callable[[_Taken | Fault], None]]] = []
        self._is_refreshed = False
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="list")

    def fresh(self) -> _Taken:
        """At most half of ``LIST_CACHE_S`` old, and before the next start or end; read now where it is not.

        :raises seize.store.StoreUnavailable: Redis, or the list in it, is not there.
        """
        with self._reading:
            if self._taken is not None and not self._taken.is_old:
                return self._taken
            if self._fault is not None and time.monotonic() - self._fault[1] < settings.LIST_CACHE_S / 2:
                raise type(self._fault[0])(str(self._fault[0]))
            began_s = time.monotonic()
            try:
                taken = _Taken(snapshot_read(), began_s)
            except (StoreUnavailable, OutcomeUnknown) as fault:
                self._fault = (fault, time.monotonic())
                raise
            for tab in (None, *TABS):
                _list_of(taken, tab, before=self._taken)
            self._taken = taken
            return taken

    def ask(self, tell: Callable[[_Taken | Fault], None]) -> None:
        """In an event loop: what there is if it is at most ``LIST_CACHE_S`` old, else what a thread reads now.

        What is half that old, or from before a start or an end, is read again meanwhile.
        """
        taken = self._taken
        if taken is not None and not taken.is_over:
            if taken.is_old:
                self._refresh()
            tell(taken)
            return
        with self._queue:
            self._waiting.append((asyncio.get_running_loop(), tell))
        self._refresh()

    @property
    def may_be_personal(self) -> bool:
        """Whether some shoppers may see more than others."""
        return self._taken is None or self._taken.snapshot.is_personal

    def _refresh(self) -> None:
        with self._queue:
            if self._is_refreshed:
                return
            self._is_refreshed = True
        self._executor.submit(self._refresh_run)

    def _refresh_run(self) -> None:
        result: _Taken | Fault
        try:
            result = self.fresh()
        except (StoreUnavailable, OutcomeUnknown) as fault:
            result = fault
        except Exception:
            log.exception("the list cannot be read")
            result = StoreUnavailable("the list cannot be read")
        with self._queue:
            waiting, self._waiting = self._waiting, []
            self._is_refreshed = False
        for loop, tell in waiting:
            with suppress(RuntimeError):  # its server has stopped
                loop.call_soon_threadsafe(tell, result)


_cache = _Cache()


def list_ready(*, tab: str | None, user_id: int | None = None) -> Ready:
    """The list's answer, from Redis if need be.

    :param user_id: for whom, where some shoppers see more than others; None for everybody.
    :raises seize.store.StoreUnavailable: Redis, or the list in it, is not there.
    """
    taken = _cache.fresh()
    if user_id is None or not taken.snapshot.is_personal:
        return _list_of(taken, tab)
    results = orjson.dumps(activities_list(snapshot_for(taken.snapshot, user_id=user_id), tab=tab))
    return replace(_ready(taken, _list_tail(taken, results)), is_personal=True)


def detail_ready(*, activity_id: int, user_id: int | None = None) -> Ready | None:
    """An activity's answer, from Redis if need be; None when it is not in the list.

    :param user_id: as in :func:`list_ready`.
    :raises seize.store.StoreUnavailable: Redis, or the list in it, is not there.
    """
    taken = _cache.fresh()
    if user_id is None or not taken.snapshot.is_personal:
        return _detail_of(taken, str(activity_id))
    shown = snapshot_for(taken.snapshot, user_id=user_id).activities.get(str(activity_id))
    return None if shown is None else replace(_ready(taken, b'",' + orjson.dumps(shown)[1:]), is_personal=True)


def snapshot_ready() -> Snapshot:
    """The list as it is now, for whoever shows it otherwise; the same object until it is read again.

    :raises seize.store.StoreUnavailable: Redis, or the list in it, is not there.
    """
    return _cache.fresh().snapshot


def _list_of(taken: _Taken, tab: str | None, *, before: _Taken | None = None) -> Ready:
    """:param before: an older snapshot, whose bytes need not be compressed again where they are the same."""
    ready = taken.rendered.get(tab)
    if ready is None:
        results = orjson.dumps(activities_list(taken.snapshot, tab=tab))
        same = None if before is None else before.rendered.get(tab)
        ready = taken.rendered[tab] = _ready(taken, _list_tail(taken, results), same=same)
    return ready


def _list_tail(taken: _Taken, results: bytes) -> bytes:
    return b'","personal":%b,"results":%b}' % (b"true" if taken.snapshot.is_personal else b"false", results)


def _detail_of(taken: _Taken, activity_id: str) -> Ready | None:
    ready = taken.rendered.get(activity_id)
    if ready is None:
        shown = taken.snapshot.activities.get(activity_id)
        if shown is None:
            return None
        ready = taken.rendered[activity_id] = _ready(taken, b'",' + orjson.dumps(shown)[1:])
    return ready


def _ready(taken: _Taken, tail: bytes, *, same: Ready | None = None) -> Ready:
    if same is not None and same.tail == tail:
        return replace(same, taken=taken)
    etag = f'W/"{hashlib.blake2b(tail, digest_size=8).hexdigest()}"'
    return Ready(taken, tail, tail_pack(tail), etag)


# -- In front of Django ---------------------------------------------------------------------------------


class ReadyShortcut:
    """``GET …/activity/list`` and ``GET …/activity/<id>`` as their views answer them."""

    method = b"GET"

    def close(self) -> None:
        """Nothing is held."""

    def take(
        self, path: bytes, query: bytes, headers: Headers, *, secure: bool, peer: str = ""
    ) -> "ReadyTicket | None":
        """A ticket for a plain request without a body and without conditions that only Django judges."""
        if not path.startswith(DETAIL_PREFIX):
            return None
        wanted = _wanted(path, query)
        if wanted is None:
            return None
        request = plain_request(headers, secure=secure, peer=peer)
        if request is None or not _is_plain_get(request):
            return None
        if b"authorization" in request.headers and _cache.may_be_personal:
            return None
        return ReadyTicket(request, wanted)


def _wanted(path: bytes, query: bytes) -> Callable[[_Taken], Ready | None] | None:
    """What is asked for, or None when the view is to look at it."""
    if path == LIST_PATH:
        return (lambda taken: _list_of(taken, _QUERIES[query])) if query in _QUERIES else None
    activity_id = path.removeprefix(DETAIL_PREFIX).decode("latin-1")
    return (lambda taken: _detail_of(taken, activity_id)) if not query and id_parse(activity_id) else None


def _is_plain_get(request: PlainRequest) -> bool:
    given = request.headers
    if given.get(b"content-length", b"0") != b"0" or b"*" in given.get(b"if-none-match", b""):
        return False
    return b"if-match" not in given and b"if-unmodified-since" not in given


class ReadyTicket:
    """A question to the cache."""

    __slots__ = ("_done", "_wanted", "request")

    def __init__(self, request: PlainRequest, wanted: Callable[[_Taken], Ready | None]) -> None:
        self.request, self._wanted = request, wanted

    def start(self, body: bytes, done: Callable[[Answer], None]) -> Callable[[], None]:
        """Answer at once where the bytes are there, else as soon as they are."""
        pace = visit_pace(address=self.request.address)
        if pace is not None:
            done(problem_answer(self.request, Problem("TOO_MANY_REQUESTS", headers=pace_headers(pace)), allow=_ALLOW))
            return nobody_leaves
        self._done: Callable[[Answer], None] | None = done
        _cache.ask(self._told)
        return nobody_leaves

    def _told(self, taken: _Taken | Fault) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self._answer(taken))

    def _answer(self, taken: _Taken | Fault) -> Answer:
        """The bytes; 304 when the caller has the same; 404; 503."""
        if not isinstance(taken, _Taken):
            return problem_answer(self.request, problem_of_fault(taken), allow=_ALLOW)
        ready = self._wanted(taken)
        if ready is None:
            return problem_answer(self.request, Problem("NOT_FOUND"), allow=_ALLOW)
        same = _is_same(self.request.headers.get(b"if-none-match", b""), ready.etag)
        headers = [(b"cache-control", CACHE_CONTROL.encode()), (b"etag", ready.etag.encode())]
        body = b""
        if not same:
            body, encoded = ready.content(
                accept_encoding=self.request.headers.get(b"accept-encoding", b"").decode("latin-1")
            )
            headers.insert(0, (b"content-type", b"application/json"))
            headers += [(name.lower().encode(), value.encode()) for name, value in encoded.items()]
        return answer_of(
            self.request, status=304 if same else 200, body=body, allow=_ALLOW, headers=headers, vary=_VARY
        )


def _is_same(if_none_match: bytes, etag: str) -> bool:
    """Weak comparison, as RFC 9110 wants it for If-None-Match."""
    offered = [tag.strip().removeprefix("W/") for tag in if_none_match.decode("latin-1").split(",")]
    return etag.removeprefix("W/") in offered
