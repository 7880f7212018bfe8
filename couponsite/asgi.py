"""The ASGI application: the seize route and the list by their shortcuts, all else by Django in a fixed pool of threads.

Django under ASGI with sync views opens a database connection for each of an unbounded number of threads;
the WSGI application in a pool keeps one for each of ``WEB_THREADS``. What needs no ledger has a pool of its own, whose
threads open none: a ledger that hangs must not take the pages along that shoppers press on.
"""

import asyncio
import gc
import os
import re
import sys
from collections import deque
from collections.abc import MutableMapping
from contextlib import nullcontext
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


# What is answered without a query (`test_what_has_threads_of_its_own_costs_no_query`). All else may wait for MySQL.
_WITHOUT_LEDGER = re.compile(
    r"/|/(?:activity|language|static)/.*|/session/token|/account|/logout"
    r"|/market/consumer/(?:activity/[^/]+(?:/challenge)?|coupon/seize)"
)


# A page without one of its modules would be a dead page, and what static files cost is bounded by the pool. A press is
# counted by its view: a winner must be told of the win, and the view knows what is asked.
_UNCOUNTED = re.compile("/static/|/market/consumer/coupon/seize$")
_OFFICE = re.compile("/(?:admin|market/docs|market/schema)(?:/|$)")


class Pool:
    """Django in some threads, for so many requests at a time, at work or waiting; one more is shed at once.

    ``at_once``: of the threads that it shares with another pool it takes so many at most.
    """

    def __init__(self, application: Application, *, limit: int, at_once: int | None = None) -> None:
        self.application = application
        self.limit = limit
        self.running = 0
        self._turns = nullcontext() if at_once is None else asyncio.Semaphore(at_once)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.running >= self.limit:
            await _refuse(scope, send, problem_of_fault(StoreBusy("every thread is busy")))
            return
        self.running += 1
        try:
            await _serve(self._in_turn, scope, receive, send)
        finally:
            self.running -= 1

    async def _in_turn(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._turns:
            await self.application(scope, receive, send)


class Bounded:
    """Django by pools of threads: for what may wait for the ledger, for what needs none, and for probes.

    Of the ledger's threads the back office takes half at most: shoppers' claims and checkout come first.

    A thread is only taken for a request whose body is here: eight clients that never send theirs would stop Django.
    Probes have a thread of their own: a process that sells must not be restarted because Django is busy.
    """

    def __init__(self, *, ledger: Pool, office: Pool, pages: Pool, probes: Application) -> None:
        self.ledger = ledger
        self.office = office
        self.pages = pages
        self.probes = probes

    @property
    def running(self) -> int:
        """Requests at work or waiting, without the probes."""
        return self.ledger.running + self.office.running + self.pages.running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # WSGI cannot tell X_Forwarded_Proto from X-Forwarded-Proto, and proxies only guard the latter.
        scope = {**scope, "headers": [(name, value) for name, value in scope["headers"] if b"_" not in name]}
        if scope["path"] in PROBES:
            await _serve(self.probes, scope, receive, send)
            return
        forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for").decode("latin-1")
        address = address_of(peer=peer_of(scope), forwarded=forwarded)
        pace = None if _UNCOUNTED.match(scope["path"]) else visit_pace(address=address)
        if pace is not None:
            await _refuse(scope, send, Problem("TOO_MANY_REQUESTS", headers=pace_headers(pace)))
        elif _WITHOUT_LEDGER.fullmatch(scope["path"]):
            await self.pages(scope, receive, send)
        elif _OFFICE.match(scope["path"]):
            await self.office(scope, receive, send)
        else:
            await self.ledger(scope, receive, send)


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


def _threads(number: int) -> Application:
    wsgi: Any = django  # its stubs know no WSGI types
    pool: Any = WSGIMiddleware(wsgi, workers=number)
    return pool


def front() -> Front:
    """A front with lanes and threads of its own."""
    shortcuts: list[Shortcut] = [ReadyShortcut(), WatchShortcut()]
    if settings.SEIZE_GATE:
        desk = Desk(threads=settings.SEIZE_GATE_THREADS)
        lanes = Lanes(call=desk, waiting_max=settings.SEIZE_GATE_WAITING_MAX)
        shortcuts.insert(0, SeizeShortcut(lanes, close=desk.close))
    threads, waiting = settings.WEB_THREADS, settings.WEB_WAITING_MAX
    ledger = _threads(threads)
    bounded = Bounded(
        ledger=Pool(ledger, limit=threads + waiting),
        office=Pool(ledger, limit=threads + waiting, at_once=max(1, threads // 2)),
        pages=Pool(_threads(threads), limit=threads + waiting),
        probes=_threads(1),
    )
    return Front(shortcuts, bounded, started=_started)


application = front()
