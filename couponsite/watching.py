"""The live page's fragment: made at most every two seconds a process, and given to watchers in front of Django.

A request that Django answers keeps the interpreter from the crowd, some milliseconds each: twenty watchers cost the
gate a quarter of its wins. So Django checks who watches, makes the fragment, and from then on the event loop gives out
its bytes.
"""

import hashlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

from seize.fronts import Answer, Headers, PlainRequest, answer_of, nobody_leaves, plain_request

FRAGMENT_S = 2.0  # as often as the page asks
STALE_S = 10.0  # older than that none is shown
CHECKED_S = 30.0  # so long somebody who was checked goes on watching; then Django checks the session again
CHECKED_MAX = 1000
CACHE_CONTROL = "max-age=0, no-cache, no-store, must-revalidate, private"
_PATH = re.compile(rb"/admin/activities/activity/(\d{1,19})/live/fragment")
_ALLOW = b"GET, HEAD, OPTIONS"

Key = tuple[int, str]


@dataclass(slots=True)
class Fragment:
    """A fragment as it was made, and until when (monotonic s) it is fresh."""

    until: float
    etag: str
    body: bytes


_fragments: dict[Key, Fragment] = {}
_making: dict[Key, threading.Lock] = {}
_checked: dict[tuple[str, int], float] = {}  # session key, activity id → until when (monotonic s) they may watch


def fragment_of(activity_id: int, language: str, *, make: Callable[[], bytes]) -> Fragment:
    """The part that changes. While one thread makes it anew, the others take the one before, unless that is too old:

    with a Redis that hangs it takes seconds, and watchers must not hold every thread for so long.
    """
    key = (activity_id, language)
    made, now = _fragments.get(key), time.monotonic()
    if made is not None and now < made.until:
        return made
    lock = _making.setdefault(key, threading.Lock())
    if not lock.acquire(blocking=made is None or now > made.until + STALE_S):
        assert made is not None
        return made
    try:
        made = _fragments.get(key)
        if made is None or time.monotonic() >= made.until:
            body = make()
            etag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
            made = _fragments[key] = Fragment(time.monotonic() + FRAGMENT_S, etag, body)
            for old in [name for name, other in list(_fragments.items()) if other.until + 60 < now]:
                _fragments.pop(old, None)
                _making.pop(old, None)
        return made
    finally:
        lock.release()


def watcher_checked(*, session: str, activity_id: int) -> None:
    """Note that Django has let this session see the activity."""
    now = time.monotonic()
    if len(_checked) >= CHECKED_MAX:
        for key in [key for key, until in list(_checked.items()) if until < now]:
            _checked.pop(key, None)
        if len(_checked) >= CHECKED_MAX:
            return
    _checked[(session, activity_id)] = now + CHECKED_S


def fragments_forget() -> None:
    """Make the next fragment anew, and check again who asks."""
    _fragments.clear()
    _making.clear()
    _checked.clear()


class WatchShortcut:
    """``GET …/live/fragment`` as its view answers it, for those whom the view has let in."""

    method = b"GET"

    def close(self) -> None:
        """Nothing is held."""

    def take(
        self, path: bytes, query: bytes, headers: Headers, *, secure: bool, peer: str = ""
    ) -> "WatchTicket | None":
        """A ticket while the fragment can be given; Django's turn when it is due, or the session is to be checked."""
        if not path.endswith(b"/live/fragment"):
            return None
        found = _PATH.fullmatch(path)
        request = plain_request(headers, secure=secure, peer=peer) if found and not query else None
        if found is None or request is None or request.headers.get(b"content-length", b"0") != b"0":
            return None
        activity_id, now = int(found[1]), time.monotonic()
        if _checked.get((_session_of(request), activity_id), 0.0) < now:
            return None
        key = (activity_id, request.language)
        fragment, lock = _fragments.get(key), _making.get(key)
        if fragment is None or lock is None:
            return None
        # Nothing is noted here: a request that goes to Django comes by twice, in the protocol and as ASGI.
        is_being_made = lock.locked() and now < fragment.until + STALE_S
        return WatchTicket(request, fragment) if now < fragment.until or is_being_made else None


def _session_of(request: PlainRequest) -> str:
    for part in request.headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _equals, value = part.strip().partition("=")
        if name == settings.SESSION_COOKIE_NAME:
            return value
    return ""


class WatchTicket:
    """One look at the fragment."""

    __slots__ = ("fragment", "request")

    def __init__(self, request: PlainRequest, fragment: Fragment) -> None:
        self.request, self.fragment = request, fragment

    def start(self, body: bytes, done: Callable[[Answer], None]) -> Callable[[], None]:
        """The bytes, or 304 when the watcher has them."""
        fragment = self.fragment
        same = self.request.headers.get(b"if-none-match", b"").decode("latin-1") == fragment.etag
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"etag", fragment.etag.encode()),
            (b"cache-control", CACHE_CONTROL.encode()),
            (b"vary", b"Cookie"),
        ]
        content = b"" if same else fragment.body
        done(answer_of(self.request, status=304 if same else 200, body=content, allow=_ALLOW, headers=headers))
        return nobody_leaves
