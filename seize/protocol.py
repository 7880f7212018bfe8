"""uvicorn's HTTP protocol with the shortcuts taken before an ASGI scope, a task and their messages are made.

Half of what a seize costs in a process is that layer. Everything about connections stays uvicorn's: parsing, limits,
keep-alive, pipelining, flow control, graceful stop. Whatever no shortcut takes goes its usual way.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from seize.fronts import Answer, Front, Ticket, refusal
from seize.problems import Problem

if TYPE_CHECKING:
    from uvicorn.protocols.http.flow_control import FlowControl


class _Event:
    """Stands for the event on which a task would wait for the body; nobody waits here."""

    def set(self) -> None:
        """Nothing."""


_EVENT = _Event()


class ShortCycle:
    """A request that a shortcut has taken; for uvicorn it looks like one of its own cycles."""

    message_event = _EVENT

    def __init__(self, protocol: "ShortcutProtocol", ticket: Ticket, *, keep_alive: bool) -> None:
        self._protocol: ShortcutProtocol | None = protocol
        self._ticket: Ticket | None = ticket
        self._leave: Callable[[], None] | None = None
        self.keep_alive = keep_alive
        self.body = bytearray()
        self.more_body = True
        self.response_complete = False
        self.disconnected = False

    def start(self) -> None:
        """The body is complete."""
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            leave = ticket.start(bytes(self.body), self.answered)
            self._leave = None if self.response_complete else leave

    def leave(self) -> None:
        """The client went away: take it out of the lane, if it was not asked yet, and let go of everything."""
        leave, self._leave, self._protocol, self._ticket = self._leave, None, None, None
        if leave is not None:
            leave()

    def answered(self, answer: Answer) -> None:
        """Write the whole answer at once, and let uvicorn go on with the connection."""
        # Letting go of each other leaves no cycle for the collector, which comes seldom.
        protocol, self._protocol, self._leave = self._protocol, None, None
        self.response_complete = True
        if protocol is None or protocol.transport.is_closing():
            return
        parts = [STATUS_LINE[answer.status]]
        for name, value in (*protocol.server_state.default_headers, *answer.headers):
            parts += (name, b": ", value, b"\r\n")
        parts.append(answer.constant.block)
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        parts += (b"\r\n", answer.body)
        protocol.transport.write(b"".join(parts))
        if not self.keep_alive:
            protocol.transport.close()
        protocol.short = None
        protocol.on_response_complete()
        if answer.rest_s:
            protocol.rest(answer.rest_s)


class ShortcutProtocol(HttpToolsProtocol):
    """For an application that is a :class:`seize.fronts.Front`; any other is served as uvicorn does."""

    flow: "FlowControl"
    _idle_since: float | None = None  # by the loop's clock; None = a request is under way
    short: ShortCycle | None = None  # the one under way, which need not be the newest: another may wait behind it

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever hangs up is not asked for any more."""
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        short, self.short = self.short, None
        if short is not None:
            short.leave()

    # One keep-alive timer a connection, that looks when the last answer was, instead of one an answer: making and
    # cancelling it costs a twentieth of a press.

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or longer than a request may be, is told so as everything else is: by a problem."""
        headers, body = refusal(Problem("INVALID_REQUEST", detail=msg))
        lines = [b"%b: %b\r\n" % pair for pair in (*self.server_state.default_headers, *headers)]
        self.transport.write(b"".join((STATUS_LINE[400], *lines, b"connection: close\r\n\r\n", body)))
        self.transport.close()

    def on_response_complete(self) -> None:
        """As uvicorn does, but for the timer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._keep_alive_look_in(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def _keep_alive_look_in(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Close what has been idle for as long as it may be."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return  # at work; the next answer sets the timer
        left_s = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._keep_alive_look_in(left_s)
        else:
            super().timeout_keep_alive_handler()

    def on_headers_complete(self) -> None:
        """Take the request if a shortcut does and nothing about the connection is out of the ordinary."""
        ticket = self._take()
        if ticket is None:
            super().on_headers_complete()
            return
        self.short = ShortCycle(self, ticket, keep_alive=self.parser.should_keep_alive())
        self.cycle = cast("Any", self.short)

    def on_message_complete(self) -> None:
        """Begin what was taken: its body is complete."""
        super().on_message_complete()
        short = self.short
        if short is not None and short is cast("Any", self.cycle) and not short.more_body:
            short.start()

    def rest(self, seconds: float) -> None:
        """Read nothing from this connection for a while: its client was told to come back later."""
        if not self.transport.is_closing():
            self.flow.pause_reading()
            self.loop.call_later(seconds, self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

    def _take(self) -> Ticket | None:
        front = self.app
        if not isinstance(front, Front):
            return None
        if self.cycle is not None and not self.cycle.response_complete:
            return None  # pipelined behind another one
        if self.access_log or self.flow.write_paused or self.root_path or self.parser.get_http_version() != "1.1":
            return None
        if self.limit_concurrency is not None and (
            len(self.connections) >= self.limit_concurrency or len(self.tasks) >= self.limit_concurrency
        ):
            return None
        path, _, query = self.url.partition(b"?")
        return front.take(
            self.parser.get_method(),
            path,
            query,
            self.headers,
            secure=self.scheme == "https",
            peer=self.client[0] if self.client else "",
        )
