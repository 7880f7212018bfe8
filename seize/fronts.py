"""What a fast front may answer itself: plain requests, with the headers that Django would have set.

A front answers only what it is sure of. Whatever is unusual about a request (a header twice, a strange host, an
``Accept`` that asks for something, a language cookie) goes on to Django, whose answer is right by definition.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import orjson
from django.conf import settings
from django.http.request import split_domain_port, validate_host
from django.utils.translation import get_language_from_request

from seize import counting
from seize.addresses import address_of
from seize.frozen import settings_cached
from seize.problems import CONTENT_TYPE, Problem
from seize.requests import request_id

Headers = Sequence[tuple[bytes, bytes]]

_PROBLEM_TYPE = (b"content-type", CONTENT_TYPE.encode())
_UNUSUAL = (b"expect", b"transfer-encoding", b"upgrade", b"content-encoding")


class ConstantHeaders(NamedTuple):
    """Headers that many answers share, as pairs and as the lines of HTTP/1."""

    pairs: tuple[tuple[bytes, bytes], ...]
    block: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP response: its own headers, and those that many share.

    ``rest_s``: seconds for which a server may leave the connection unread afterwards.
    """

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    constant: ConstantHeaders
    body: bytes
    rest_s: float = 0


def nobody_leaves() -> None:
    """What a ticket's ``start`` returns where nobody waits who could leave."""


class Ticket(Protocol):
    """A request that a shortcut has taken: its headers were looked at, its body is awaited."""

    def start(self, body: bytes, done: Callable[[Answer], None]) -> Callable[[], None]:
        """Begin; ``done`` is called once, now or later, in the event loop. Returns what to call when nobody waits."""


class Shortcut(Protocol):
    """A route that is answered in front of Django."""

    method: bytes

    @property
    def close(self) -> Callable[[], None]:
        """Called when the process stops, in the event loop."""

    def take(self, path: bytes, query: bytes, headers: Headers, *, secure: bool, peer: str = "") -> Ticket | None:
        """A ticket, or None when Django is to answer. ``peer``: the other end of the connection."""


@dataclass(slots=True)
class PlainRequest:
    """A request about which nothing is special."""

    headers: dict[bytes, bytes]
    language: str
    secure: bool
    id: str
    peer: str = ""

    @property
    def address(self) -> str:
        """The client's."""
        return address_of(peer=self.peer, forwarded=self.headers.get(b"x-forwarded-for", b"").decode("latin-1"))

    @property
    def authorization(self) -> str:
        return self.headers.get(b"authorization", b"").decode("latin-1")


class _Site(NamedTuple):
    """What a front needs of the settings."""

    secure_only: bool
    proxy_header: bytes  # empty: no proxy is trusted
    proxy_says_secure: bytes
    language_cookie: bytes


@settings_cached
def _site() -> _Site:
    trusted: tuple[str, str] | None = settings.SECURE_PROXY_SSL_HEADER
    name, value = trusted or ("", "")
    return _Site(
        secure_only=settings.SECURE_SSL_REDIRECT,
        proxy_header=name.removeprefix("HTTP_").replace("_", "-").lower().encode(),
        proxy_says_secure=value.encode(),
        language_cookie=settings.LANGUAGE_COOKIE_NAME.encode(),
    )


def plain_request(headers: Headers, *, secure: bool, peer: str = "") -> PlainRequest | None:
    """The request, or None when something about it is for Django to judge.

    :param headers: names in lower case, as ASGI has them.
    :param secure: whether the connection itself is TLS; what a trusted proxy says is read here.
    """
    by_name = dict(headers)
    if len(by_name) != len(headers) or any(name in by_name for name in _UNUSUAL):
        return None
    site = _site()
    if site.proxy_header:
        said = by_name.get(site.proxy_header)
        secure = secure if said is None else said.partition(b",")[0].strip() == site.proxy_says_secure
    if site.secure_only and not secure:
        return None
    if site.language_cookie in by_name.get(b"cookie", b""):
        return None
    if not (_host_is_ours(by_name.get(b"host", b"")) and _wants_json(by_name.get(b"accept", b"*/*"))):
        return None
    return PlainRequest(
        headers=by_name,
        language=_language_of(by_name.get(b"accept-language", b"")),
        secure=secure,
        id=request_id(by_name.get(b"x-request-id", b"").decode("latin-1")),
        peer=peer,
    )


@functools.lru_cache(maxsize=256)
def _host_is_ours(host: bytes) -> bool:
    domain, _port = split_domain_port(host.decode("latin-1"))
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)


@functools.lru_cache(maxsize=256)
def _wants_json(accept: bytes) -> bool:
    """Whether JSON as it is will do, by what REST framework's negotiation is known to say; False = not sure."""
    parts = [part.strip().lower() for part in accept.split(b",")]
    return b"indent" not in accept and (b"application/json" in parts or b"*/*" in parts)


@functools.lru_cache(maxsize=256)
def _language_of(accept_language: bytes) -> str:
    """What Django's LocaleMiddleware would choose."""
    text = accept_language.decode("latin-1")
    request: Any = SimpleNamespace(COOKIES={}, META={"HTTP_ACCEPT_LANGUAGE": text})  # all that it reads
    return get_language_from_request(request)


@functools.lru_cache(maxsize=64)
def _constant_headers(language: str, allow: bytes, vary: bytes, *, secure: bool) -> ConstantHeaders:
    headers = [
        (b"allow", allow),
        (b"x-frame-options", settings.X_FRAME_OPTIONS.encode()),
        (b"vary", vary),
        (b"content-language", language.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", settings.SECURE_REFERRER_POLICY.encode()),
        (b"cross-origin-opener-policy", settings.SECURE_CROSS_ORIGIN_OPENER_POLICY.encode()),
    ]
    if secure and settings.SECURE_HSTS_SECONDS:
        headers.append((b"strict-transport-security", f"max-age={settings.SECURE_HSTS_SECONDS}".encode()))
    return ConstantHeaders(tuple(headers), b"".join(b"%b: %b\r\n" % pair for pair in headers))


def answer_of(
    request: PlainRequest,
    *,
    status: int,
    body: bytes,
    allow: bytes,
    headers: Sequence[tuple[bytes, bytes]],
    vary: bytes = b"Accept-Language",
) -> Answer:
    """A response with Django's headers around the route's own."""
    return Answer(
        status,
        (*headers, (b"x-request-id", request.id.encode()), (b"content-length", b"%d" % len(body))),
        _constant_headers(request.language, allow, vary, secure=request.secure),
        body,
    )


def problem_headers(problem: Problem) -> list[tuple[bytes, bytes]]:
    """A problem's type and its own headers, as ASGI wants them."""
    return [_PROBLEM_TYPE, *((name.lower().encode(), value.encode()) for name, value in problem.headers.items())]


def problem_answer(request: PlainRequest, problem: Problem, *, allow: bytes) -> Answer:
    """A problem in the request's language."""
    body = problem.body(instance=request.id, language=request.language)
    return answer_of(
        request, status=problem.status, body=orjson.dumps(body), allow=allow, headers=problem_headers(problem)
    )


def refusal(problem: Problem, headers: Headers = ()) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of a problem for a request that gets no further: too many, too slow, too long, or not HTTP.

    :param headers: the request's, as far as they are known.
    """
    by_name = dict(headers)
    language = _language_of(by_name.get(b"accept-language", b""))
    instance = request_id(by_name.get(b"x-request-id", b"").decode("latin-1"))
    body = orjson.dumps(problem.body(instance=instance, language=language))
    own = [
        (b"x-request-id", instance.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"content-language", language.encode()),
        (b"vary", b"Accept-Language"),
        (b"x-content-type-options", b"nosniff"),
    ]
    return [*problem_headers(problem), *own], body


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def peer_of(scope: Scope) -> str:
    """The other end of a request's connection; '' for a Unix socket."""
    client = scope.get("client")
    return client[0] if client else ""


class Front:
    """ASGI: what a shortcut takes is answered here, everything else by Django."""

    def __init__(
        self, shortcuts: Sequence[Shortcut], django: Application, *, started: Callable[[], None] = lambda: None
    ) -> None:
        """:param started: called when the server has started, with its signal handlers in place."""
        self.shortcuts = shortcuts
        self.django = django
        self.started = started

    def close(self) -> None:
        """Let go of everything, in the event loop: the server has stopped."""
        for shortcut in self.shortcuts:
            shortcut.close()
        counting.flush()  # a server that ends by a signal runs no atexit

    def take(
        self, method: bytes, path: bytes, query: bytes, headers: Headers, *, secure: bool, peer: str = ""
    ) -> Ticket | None:
        """The ticket of the first shortcut that is sure of the request, or None."""
        for shortcut in self.shortcuts:
            if shortcut.method == method:
                ticket = shortcut.take(path, query, headers, secure=secure, peer=peer)
                if ticket is not None:
                    return ticket
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ticket = None
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] == "http":
            ticket = self.take(
                scope["method"].encode(),
                scope["path"].encode(),
                scope["query_string"],
                scope["headers"],
                secure=scope["scheme"] == "https",
                peer=peer_of(scope),
            )
        if ticket is None:
            await self.django(scope, receive, send)
            return
        body = await _body_read(receive)
        if body is None:
            return
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        leave = ticket.start(body, lambda answer: None if answered.done() else answered.set_result(answer))
        try:
            answer = await answered
        except asyncio.CancelledError:
            leave()
            raise
        headers = [*answer.headers, *answer.constant.pairs]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            ends = message["type"] == "lifespan.shutdown"
            (self.close if ends else self.started)()
            await send({"type": f"{message['type']}.complete"})
            if ends:
                return


async def _body_read(receive: Receive) -> bytes | None:
    """The whole body, whose length the headers have told; None when the client went away."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)
