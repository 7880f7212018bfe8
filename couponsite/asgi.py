"""The ASGI application: the seize route and the list by their shortcuts, all else by Django in a fixed pool of threads.

Django under ASGI with sync views opens a database connection for each of an unbounded number of threads;
the WSGI application in a pool keeps one for each of ``WEB_THREADS``.
"""

import asyncio
import gc
import os
import sys
from collections import deque
from collections.abc import MutableMapping
from typing import Any

from a2wsgi import WSGIMiddleware
from django.conf import settings

from activities.ready import ReadyShortcut
from couponsite.requests import wsgi_application
from couponsite.stopping import stopping_on_sigterm
from couponsite.watching import WatchShortcut
from seize.addresses import address_of
from seize.batching import Desk, Lanes
from seize.fronts import Application, Front, Receive, Scope, Send, Shortcut, peer_of, refusal
from seize.gate import SeizeShortcut
from seize.limits import visit_pace
from seize.problems import Problem, pace_headers, problem_of_fault
from seize.store import StoreBusy

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")

django = wsgi_application()


SWITCH_S = 0.0005
PROBES = ("/livez", "/readyz", "/metrics")


class Bounded:
    """Django with so many requests at a time, in a thread or waiting for one; one more is shed at once.

    A thread is only taken for a request whose body is here: eight clients that never send theirs would stop Django.
    Probes have a thread of their own: a process that sells must not be restarted because Django is busy.
    """

    def __init__(self, application: Application, *, probes: Application, limit: int) -> None:
        self.application = application
        self.probes = probes
        self.limit = limit
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # WSGI cannot tell X_Forwarded_Proto from X-Forwarded-Proto, and proxies only guard the latter.
        scope = {**scope, "headers": [(name, value) for name, value in scope["headers"] if b"_" not in name]}
        if scope["path"] in PROBES:
            await _serve(self.probes, scope, receive, send)
            return
        forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for").decode("latin-1")
        pace = visit_pace(address=address_of(peer=peer_of(scope), forwarded=forwarded))
        if pace is not None:
            await _refuse(scope, send, Problem("TOO_MANY_REQUESTS", headers=pace_headers(pace)))
            return
        if self.running >= self.limit:
            await _refuse(scope, send, problem_of_fault(StoreBusy("every thread is busy")))
            return
        self.running += 1
        try:
            await _serve(self.application, scope, receive, send)
        finally:
            self.running -= 1


async def _serve(application: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """Let the application answer once the whole body is here."""
    try:
        async with asyncio.timeout(settings.WEB_BODY_TIMEOUT_S):
            messages = await _body_collect(receive)
    except TimeoutError:
        await _refuse(scope, send, Problem("REQUEST_TIMEOUT"))
        return
    if messages is None:
        await _refuse(scope, send, Problem("TOO_LARGE"))
        return

    async def replay() -> MutableMapping[str, Any]:
        return messages.popleft() if messages else await receive()

    await application(scope, replay, send)


async def _body_collect(receive: Receive) -> deque[MutableMapping[str, Any]] | None:
    """What the client sends, to the end of the body or of the connection; None when it is too much."""
    messages: deque[MutableMapping[str, Any]] = deque()
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if size > settings.WEB_BODY_MAX_BYTES:
            return None
        if message["type"] != "http.request" or not message.get("more_body", False):
            return messages


async def _refuse(scope: Scope, send: Send, problem: Problem) -> None:
    headers, body = refusal(problem, scope["headers"])
    if problem.code not in ("BUSY", "TOO_MANY_REQUESTS"):
        headers.append((b"connection", b"close"))  # the rest of the body may still come
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _started() -> None:
    """The server has its signal handlers in place: SIGTERM is taught to say so first."""
    stopping_on_sigterm()
    # What is loaded by now stays: walking it again and again cost pauses of 50 ms, one press in a hundred. A press
    # leaves no cycle behind (tested), so looking for them every 700 objects cost a crowd a quarter for nothing.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    # Python lets a thread go on for 5 ms before another gets its turn: so long the crowd's loop would wait after each
    # read and write while a thread of Django computes. A quarter of all wins went that way when 20 people watched.
    sys.setswitchinterval(SWITCH_S)


def front() -> Front:
    """A front with lanes and threads of its own."""
    shortcuts: list[Shortcut] = [ReadyShortcut(), WatchShortcut()]
    if settings.SEIZE_GATE:
        desk = Desk(threads=settings.SEIZE_GATE_THREADS)
        lanes = Lanes(call=desk, waiting_max=settings.SEIZE_GATE_WAITING_MAX)
        shortcuts.insert(0, SeizeShortcut(lanes, close=desk.close))
    threads = settings.WEB_THREADS
    wsgi: Any = django  # its stubs know no WSGI types
    pool: Any = WSGIMiddleware(wsgi, workers=threads)
    probes: Any = WSGIMiddleware(wsgi, workers=1)
    bounded = Bounded(pool, probes=probes, limit=threads + settings.WEB_WAITING_MAX)
    return Front(shortcuts, bounded, started=_started)


application = front()
