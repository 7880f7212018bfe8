"""Section ``open_loop``: requests at a constant rate, whether or not the answers come.

A closed loop such as wrk asks again only when it was answered, so a server that stalls is asked less and its worst
latencies are never seen. Here every request has a moment at which it is due, and its latency counts from that moment,
however late it could be sent. ``.venv/bin/python -m bench.openloop [--quick]``.
"""

import json
import math
import multiprocessing
import re
import resource
import select
import socket
import sys
import time
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from bench import contract, wrk
from bench.arguments import arguments_parse
from bench.http import BODY, Servers, servers_start
from bench.options import Options, Progress
from bench.progress import reporter
from bench.sale import STOCK, Tokens

SECONDS, SECONDS_QUICK = 15, 4
HALF, OVERLOAD = 0.5, 10
CONNECTIONS_HALF, CONNECTIONS_OVERLOAD = 256, 8192  # in overload more than the gate lets wait
SENDABLE = 60_000  # requests a second that the tokens of an overload last for
PATIENCE_S = 0.1  # a request that finds no connection for so long is not sent
TAIL_S = 3.0  # for the last answers
TICK_S = 0.0005

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_RETRY = re.compile(rb"\r\nretry-after: *\d+\r\n", re.IGNORECASE)
_CODE = re.compile(rb'"code": ?"([A-Z_]+)"')


def measure(options: Options, progress: Progress, *, peak_rps: float | None = None) -> dict[str, dict[str, Any]]:
    """The gate at half of its peak rate, and at ten times of it.

    :param peak_rps: requests a second that the gate reaches in the mix ``win``; None = measured first.
    :return: ``half_peak``: rate, p50_ms, p99_ms, answers by code, unsent, generator_cpu; ``overload`` also: sent_rps
        (what the generator managed of ``rate``), accepted_rps and its share of the peak, untyped (503 without code
        or Retry-After). ``unsent`` found no free connection in time. ``generator_cpu`` is in cores: 1.0 = one core
        all the time.
    :raises bench.contract.AnswersWrongly: Redis sold another number than was answered.
    """
    files_raise()
    seconds = SECONDS_QUICK if options.quick else SECONDS
    with servers_start([("win", "gate")], progress, tokens=seconds * SENDABLE) as servers:
        if "gate" not in servers.contenders:
            return {}
        progress.expect(3)
        progress.step("the peak, by wrk")
        peak = peak_rps or _peak_find(servers, seconds=seconds)
        progress.step(f"half of the peak, {peak * HALF:,.0f} a second")
        half = _half_peak(servers, rate=peak * HALF, seconds=seconds)
        progress.step(f"overload, {peak * OVERLOAD:,.0f} a second asked")
        return {"half_peak": half, "overload": _overload(servers, peak=peak, seconds=seconds)}


def _peak_find(servers: Servers, *, seconds: float) -> float:
    program = wrk.program()
    assert program is not None, "wrk is missing: give --peak"
    servers.sale.open(stock=STOCK)
    asked = wrk.Load("POST", contract.SEIZE, BODY, 0, servers.tokens.count, "stop")
    return wrk.run(program, asked, port=servers.contenders["gate"].port, tokens=servers.tokens, seconds=seconds).rps


def _half_peak(servers: Servers, *, rate: float, seconds: float) -> dict[str, Any]:
    result = _run(servers, rate=rate, seconds=seconds, connections=CONNECTIONS_HALF, processes=1)
    return {
        "rate": round(result.sent / seconds),
        "p50_ms": result.percentile_ms(50),
        "p99_ms": result.percentile_ms(99),
        "answers": result.answers,
        "unsent": result.unsent,
        "generator_cpu": round(result.cpu_s / seconds, 2),
    }


def _overload(servers: Servers, *, peak: float, seconds: float) -> dict[str, Any]:
    result = _run(servers, rate=peak * OVERLOAD, seconds=seconds, connections=CONNECTIONS_OVERLOAD, processes=2)
    accepted = result.accepted / seconds
    return {
        "rate": round(peak * OVERLOAD),
        "sent_rps": round(result.sent / seconds),
        "accepted_rps": round(accepted),
        "accepted_of_peak": round(accepted / peak, 2),
        "answers": result.answers,
        "untyped": result.untyped,
        "unsent": result.unsent,
        "p50_ms": result.percentile_ms(50),
        "p99_ms": result.percentile_ms(99),
        "generator_cpu": round(result.cpu_s / seconds, 2),
    }


def _run(servers: Servers, *, rate: float, seconds: float, connections: int, processes: int) -> "Result":
    """Load the gate and compare with Redis: what was answered with 201 was sold, and nothing else was."""
    sale, port = servers.sale, servers.contenders["gate"].port
    sale.open(stock=STOCK)
    before = sale.sold()
    result = load(
        port=port, tokens=servers.tokens, rate=rate, seconds=seconds, connections=connections, processes=processes
    )
    after = sale.settled()
    won, sold = result.codes.get("201", 0), after.holders - before.holders
    # A client that did not wait any longer may have won; who heard OUTCOME_UNKNOWN may, too.
    silent = result.unanswered + result.codes.get("503 OUTCOME_UNKNOWN", 0)
    if not won <= sold <= won + silent or not after.taken == after.holders == after.queued:
        raise contract.AnswersWrongly(f"gate, open loop: {won} heard 201, {silent} heard nothing, sold {after}")
    return result


# -- The generator ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Result:
    """What one or more generators saw. ``accepted``: won within the time of sending, not after it."""

    sent: int = 0
    accepted: int = 0
    unsent: int = 0
    unanswered: int = 0
    untyped: int = 0
    cpu_s: float = 0.0
    codes: Counter[str] = field(default_factory=Counter)
    latencies_s: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, other: "Result") -> None:
        """Count another generator's result in."""
        for name in ("sent", "accepted", "unsent", "unanswered", "untyped", "cpu_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.codes.update(other.codes)
        self.latencies_s.extend(other.latencies_s)

    @property
    def answers(self) -> str:
        """How many of each code, the most frequent first; one text, so that a table can show it."""
        return ", ".join(f"{code}: {count:,}" for code, count in self.codes.most_common())

    def percentile_ms(self, percent: float) -> float:
        """The latency that ``percent`` of the answers did not exceed."""
        ordered = sorted(self.latencies_s)
        assert ordered, "nothing was answered"
        return round(ordered[min(len(ordered) - 1, math.ceil(len(ordered) * percent / 100) - 1)] * 1000, 2)


def load(*, port: int, tokens: Tokens, rate: float, seconds: float, connections: int, processes: int) -> Result:
    """Ask for coupons at ``rate`` a second for a while, every time as another shopper.

    :raises RuntimeError: a generator ended without a result.
    """
    share = tokens.count // processes
    generators = [
        Generator(port=port, tokens=tokens, first=number * share, count=share, rate=rate / processes, seconds=seconds)
        for number in range(processes)
    ]
    total = Result()
    for result in generators_run([(one, connections // processes) for one in generators], seconds=seconds):
        total.add(result)
    return total


def generators_run(generators: "Sequence[tuple[Generator, int]]", *, seconds: float) -> list[Result]:
    """Let generators, each with its number of connections, begin at the same moment, each in a process of its own.

    :raises RuntimeError: one ended without a result.
    """
    context = multiprocessing.get_context("fork")
    starting, started = context.Barrier(len(generators)), []
    for generator, connections in generators:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_generate, args=(generator, connections, starting, theirs))
        process.start()
        theirs.close()
        started.append((process, ours))
    results: list[Result] = []
    try:
        for _process, ours in started:
            if not ours.poll(seconds + TAIL_S + 60):
                raise RuntimeError("a load generator does not end")
            try:
                results.append(ours.recv())
            except EOFError:
                raise RuntimeError("a load generator failed, see the lines above") from None
    finally:
        for process, _ours in started:
            process.join(timeout=1)
            if process.is_alive():
                process.kill()
    return results


def _generate(generator: "Generator", connections: int, starting: Any, answer_to: Connection) -> None:
    with closing(answer_to):
        try:
            generator.connect(connections)
            starting.wait(timeout=60)
        except BaseException:
            starting.abort()
            raise
        answer_to.send(generator.run())


class Generator:
    """One process's share: plain non-blocking sockets, one request at a time on each."""

    def __init__(self, *, port: int, tokens: Tokens, first: int, count: int, rate: float, seconds: float) -> None:
        self.port, self.tokens, self.first, self.count = port, tokens, first, count
        self.rate, self.seconds = rate, seconds
        self.head = f"POST {contract.SEIZE} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer ".encode()
        self.tail = f"\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}".encode()
        self.result = Result()
        self.sockets: dict[int, socket.socket] = {}
        self.due_of: dict[int, float] = {}  # by file descriptor: when its request was due
        self.parts: dict[int, bytes] = {}  # answers that came in several pieces
        self.epoll: select.epoll

    def connect(self, connections: int) -> None:
        """Open all connections before the clock starts."""
        self.epoll = select.epoll()  # before the sockets: select() takes only small file descriptors
        for _number in range(connections):
            one = socket.create_connection(("127.0.0.1", self.port), timeout=30)
            one.settimeout(0)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets[one.fileno()] = one
            self.epoll.register(one.fileno(), select.EPOLLIN)
        self.idle = deque(self.sockets)

    def run(self) -> Result:
        """Send on time, read what comes."""
        result, records = self.result, self._records()
        number = 0  # of requests that were due so far, sent or not
        cpu_before, began = time.process_time(), time.perf_counter()
        self.ends = began + self.seconds
        while (now := time.perf_counter()) < self.ends:
            due = int((now - began) * self.rate) + 1
            hopeless = due - int(PATIENCE_S * self.rate)
            if number < hopeless:
                result.unsent += hopeless - number
                number = hopeless
            while number < due and self.idle:
                token = next(records, None)
                if token is None:
                    result.unsent += due - number  # faster than foreseen: the rest of the time nothing is sent
                    number = due
                    break
                self._send(token, began + number / self.rate)
                number += 1
            # Wake at the next due moment, but not for each single one: they go out by the half millisecond.
            self._receive(max(TICK_S, began + number / self.rate - time.perf_counter()))
        result.unsent += max(0, int(self.seconds * self.rate) - number)
        result.cpu_s = time.process_time() - cpu_before
        while self.due_of and time.perf_counter() < self.ends + TAIL_S:
            self._receive(0.05)
        result.unanswered += len(self.due_of)
        for one in self.sockets.values():
            one.close()
        return result

    def _records(self) -> Any:
        width = self.tokens.width
        with self.tokens.path.open("rb", buffering=1 << 20) as file:
            file.seek(self.first * width)
            for _number in range(self.count):
                yield file.read(width)

    def _send(self, token: bytes, due: float) -> None:
        fd = self.idle.popleft()
        self.due_of[fd] = due
        self.result.sent += 1
        try:
            self.sockets[fd].send(self.head + token + self.tail)  # far below what a socket takes at once
        except OSError as error:
            self._lost(fd, type(error).__name__)

    def _receive(self, timeout_s: float) -> None:
        # epoll itself waits in whole milliseconds; select on its descriptor in microseconds.
        if not select.select([self.epoll], [], [], timeout_s)[0]:
            return
        for fd, _event in self.epoll.poll(0, 1024):
            try:
                data = self.sockets[fd].recv(65536)
            except BlockingIOError:
                continue
            except OSError as error:
                self._lost(fd, type(error).__name__)
                continue
            if not data:
                self._lost(fd, "closed")
                continue
            if fd in self.parts:
                data = self.parts.pop(fd) + data
            end = data.find(b"\r\n\r\n") + 4
            length = _LENGTH.search(data, 0, end) if end > 3 else None
            if length is None or len(data) < end + int(length[1]):
                self.parts[fd] = data
                continue
            self._answered(fd, data, end)

    def _answered(self, fd: int, data: bytes, end: int) -> None:
        result, now = self.result, time.perf_counter()
        result.latencies_s.append(now - self.due_of.pop(fd))
        self.idle.append(fd)
        status = data[9:12].decode()
        if status == "201":
            result.codes["201"] += 1
            result.accepted += now <= self.ends
            return
        code = _CODE.search(data, end)
        result.codes[f"{status} {code[1].decode() if code else '?'}"] += 1
        if status == "503" and not (code and _RETRY.search(data, 0, end)):
            result.untyped += 1

    def _lost(self, fd: int, why: str) -> None:
        """The server hung up: nobody knows what became of a request under way."""
        self.epoll.unregister(fd)
        self.sockets.pop(fd).close()
        self.parts.pop(fd, None)
        if self.due_of.pop(fd, None) is None:
            self.idle.remove(fd)
        else:
            self.result.unanswered += 1
            self.result.codes[why] += 1


def files_raise() -> None:
    """Let this process and the servers that it starts open as many files as may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_OVERLOAD + 512
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    chosen, _sections = arguments_parse(["openloop", *sys.argv[1:]])
    with reporter() as shown:
        shown.begin("openloop")
        figures = measure(chosen, shown)
    print(json.dumps({"openloop": figures, "left_out": shown.left_out}, indent=1))
