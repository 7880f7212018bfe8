"""The ASGI application: the seize route and the list by their shortcuts, all else by Django in a fixed pool of threads.

Django under ASGI with sync views opens a database connection for each of an unbounded number of threads;
the WSGI application in a pool keeps one for each of ``WEB_THREADS``.
"""

import gc
import os
from typing import Any

import orjson
from a2wsgi import WSGIMiddleware
from django.conf import settings
from django.core.wsgi import get_wsgi_application

from activities.ready import ReadyShortcut
from couponsite.stopping import stopping_on_sigterm
from seize.batching import Desk, Lanes
from seize.fronts import Application, Front, Receive, Scope, Send, Shortcut
from seize.gate import SeizeShortcut
from seize.problems import CONTENT_TYPE, problem_of_fault
from seize.requests import request_id
from seize.store import StoreBusy

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")

django = get_wsgi_application()


class Bounded:
    """Django with so many requests at a time, in a thread or waiting for one; one more is shed at once."""

    def __init__(self, application: Application, *, limit: int) -> None:
        self.application = application
        self.limit = limit
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.running >= self.limit:
            await _shed(send)
            return
        # WSGI cannot tell X_Forwarded_Proto from X-Forwarded-Proto, and proxies only guard the latter.
        headers = [(name, value) for name, value in scope["headers"] if b"_" not in name]
        self.running += 1
        try:
            await self.application({**scope, "headers": headers}, receive, send)
        finally:
            self.running -= 1


def _started() -> None:
    """The server has its signal handlers in place: SIGTERM is taught to say so first."""
    stopping_on_sigterm()
    # What is loaded by now stays: walking it again and again cost pauses of 50 ms, one press in a hundred. And a press
    # leaves no cycles behind: looking for them every 700 objects cost a crowd of 8,000 connections a quarter.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


async def _shed(send: Send) -> None:
    problem = problem_of_fault(StoreBusy("every thread is busy"))
    body = orjson.dumps(problem.body(instance=request_id(""), language=settings.LANGUAGE_CODE))
    headers = [(b"content-type", CONTENT_TYPE.encode()), (b"content-length", b"%d" % len(body))]
    headers += [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def front() -> Front:
    """A front with lanes and threads of its own."""
    shortcuts: list[Shortcut] = [ReadyShortcut()]
    if settings.SEIZE_GATE:
        desk = Desk(threads=settings.SEIZE_GATE_THREADS)
        lanes = Lanes(call=desk, waiting_max=settings.SEIZE_GATE_WAITING_MAX)
        shortcuts.insert(0, SeizeShortcut(lanes, close=desk.close))
    threads = settings.WEB_THREADS
    wsgi: Any = django  # its stubs know no WSGI types
    pool: Any = WSGIMiddleware(wsgi, workers=threads)
    return Front(shortcuts, Bounded(pool, limit=threads + settings.WEB_WAITING_MAX), started=_started)


application = front()
