"""The ASGI application: the seize route and the list by their shortcuts, all else by Django in a fixed pool of threads.

Django under ASGI with sync views opens a database connection for each of an unbounded number of threads;
the WSGI application in a pool keeps one for each of ``WEB_THREADS``.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from a2wsgi import WSGIMiddleware
from django.conf import settings
from django.core.wsgi import get_wsgi_application

from activities.ready import ReadyShortcut
from couponsite.stopping import stopping_on_sigterm
from seize.batching import Lanes
from seize.fronts import Application, Front, Receive, Scope, Send, Shortcut
from seize.gate import SeizeShortcut
from seize.problems import CONTENT_TYPE, problem_of_fault
from seize.requests import request_id
from seize.store import StoreBusy

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")

django = get_wsgi_application()


class Bounded:
    """Django with so many requests at a time, in a thread or waiting for one; one more is shed at once.

    When the server starts it has its signal handlers in place: then SIGTERM is taught to say so first.
    """

    def __init__(self, application: Application, *, limit: int) -> None:
        self.application = application
        self.limit = limit
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
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


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            stopping_on_sigterm()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


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
        executor = ThreadPoolExecutor(settings.SEIZE_GATE_THREADS, thread_name_prefix="seize")
        lanes = Lanes(executor=executor, waiting_max=settings.SEIZE_GATE_WAITING_MAX)
        shortcuts.insert(0, SeizeShortcut(lanes))
    threads = settings.WEB_THREADS
    wsgi: Any = django  # its stubs know no WSGI types
    pool: Any = WSGIMiddleware(wsgi, workers=threads)
    return Front(shortcuts, Bounded(pool, limit=threads + settings.WEB_WAITING_MAX))


application = front()
