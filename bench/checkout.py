"""Section ``checkout``: a shopper's coupons and an order's, with a million coupons in the ledger and with ten thousand.

``.venv/bin/python -m bench.checkout [--quick] [--rounds N] [--only NAME]``. Each size has a MariaDB, a Valkey and a web
server of its own (``python -m couponsite.serve``), so that none has the other's rows in its buffers; they take turns.
A run is so many requests, one at a time on each of eight connections, each about another shopper or coupon. What one
run redeems the next one gives back, so that every round finds the same coupons, with two more entries each.

``web_cpu_us`` and ``database_cpu_us`` are CPU per request, which says more than the rate where others use the cores.
"""

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench import stage
from bench.arguments import arguments_parse
from bench.contenders import Contender
from bench.contract import MY, AnswersWrongly
from bench.options import Options, Progress
from bench.processes import tree_cpu_s
from bench.progress import reporter
from bench.sale import token_sign

from project import PYTHON
from services import pidfile_kill, valkey_binary

SMALL, BIG, BIG_QUICK = 10_000, 1_000_000, 100_000
REQUESTS, REQUESTS_QUICK = 800, 300
CONNECTIONS = 8
MIXES = ("my", "available", "redeem", "roll_back")
INNER = "/market/inner/coupon"
AMOUNT = "199.00"

Row = dict[str, float]


def measure(options: Options, progress: Progress) -> dict[str, Any]:
    """Medians over the rounds per mix and size, and ``ratio``: the large ledger's figures over the small one's.

    ``{mix: {coupons: {rps, p50_ms, p99_ms, web_cpu_us, database_cpu_us}}, "ratio": {mix: {rps_ratio, …}}}``

    :raises bench.contract.AnswersWrongly: an answer was not the one that this mix must get.
    """
    wanted = [mix for mix in MIXES if options.wants(mix)]
    # Nothing can be given back that was not redeemed, and redeemed again that was not given back.
    mixes = MIXES if {"redeem", "roll_back"} & set(wanted) else wanted
    requests = REQUESTS_QUICK if options.quick else REQUESTS
    sizes = (SMALL, BIG_QUICK if options.quick else BIG)
    progress.expect(len(sizes) + len(mixes) * len(sizes) * options.rounds)
    samples: dict[str, dict[int, list[Row]]] = {mix: {size: [] for size in sizes} for mix in mixes}
    with ExitStack() as at_end:
        shops = []
        for size in sizes:
            progress.step(f"{size:,} coupons are laid out")
            shops.append(Shop(size, requests=requests, at_end=at_end))
        for shop in shops:
            for mix in mixes:
                shop.run(mix, turn=0)  # not counted: code, plans and buffers are warm afterwards
        for number in range(options.rounds):
            for mix in mixes:
                for shop in shops if number % 2 == 0 else reversed(shops):
                    progress.step(f"{mix}, {shop.size:,} coupons, round {number + 1}")
                    samples[mix][shop.size].append(shop.run(mix, turn=number + 1))
    return summary({mix: samples[mix] for mix in wanted})


def summary(samples: dict[str, dict[int, list[Row]]]) -> dict[str, Any]:
    """Medians of each figure, and the ratios of those of the larger size to those of the smaller one."""
    result: dict[str, Any] = {}
    ratios: dict[str, Row] = {}
    for mix, by_size in samples.items():
        medians = {
            size: {name: round(statistics.median(row[name] for row in rows), 2) for name in rows[0]}
            for size, rows in by_size.items()
        }
        small, big = medians[min(medians)], medians[max(medians)]
        result[mix] = {f"{size:,}": medians[size] for size in sorted(medians)}
        ratios[mix] = {f"{name}_ratio": round(big[name] / small[name], 3) for name in small if small[name]}
    return {**result, "ratio": ratios}


# -- One ledger and its servers -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it goes over the wire, and the status that its answer must have."""

    wire: bytes
    status: int


class Shop:
    """A ledger of a size, behind the product's own web server; everything is stopped by ``at_end``."""

    def __init__(self, size: int, *, requests: int, at_end: ExitStack) -> None:
        self.size = size
        folders = [stage.FOLDER / f"{server}-checkout-{size}" for server in ("valkey", "mariadb")]
        for folder in folders:
            pidfile_kill(folder / "server.pid")  # of an earlier run that was killed
        shutil.rmtree(folders[0], ignore_errors=True)
        valkey, self.mariadb = stage.Valkey(folders[0], binary=valkey_binary()), stage.MariaDB(folders[1])
        at_end.callback(valkey.stop, kill=True)
        valkey.start()
        self.mariadb.find()
        at_end.callback(shutil.rmtree, folders[1], ignore_errors=True)  # half a gigabyte that nobody reads again
        at_end.callback(self.mariadb.stop)
        self.mariadb.start()
        stage.database_create(self.mariadb.port)
        environment = {"REDIS_URL": valkey.url, "DATABASE_URL": self.mariadb.url, "ENV_FILE": os.devnull}
        command = [str(PYTHON), "-m", "bench.ledger", str(size), str(requests)]
        filled = subprocess.run(
            command, cwd=stage.ROOT, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE
        )
        self.about = json.loads(filled.stdout)
        self.tokens = {
            user_id: token_sign(user_id, expires_s=int(time.time()) + 86_400) for user_id in self.about["shoppers"]
        }
        self.web = Contender("gate", redis_url=valkey.url, database_url=self.mariadb.url)
        at_end.callback(self.web.stop)
        self.web.start()

    def run(self, mix: str, *, turn: int) -> Row:
        """A run of a mix; of the same ``turn`` are the orders that are redeemed and then given back.

        :raises bench.contract.AnswersWrongly: an answer has another status than it must have.
        """
        requests = list(getattr(self, f"_{mix}")(turn))
        assert self.mariadb.process is not None
        web, database = tree_cpu_s(self.web.pid), tree_cpu_s(self.mariadb.process.pid)
        began = time.perf_counter()
        latencies_s = load(requests, port=self.web.port, connections=CONNECTIONS)
        took = time.perf_counter() - began
        web, database = tree_cpu_s(self.web.pid) - web, tree_cpu_s(self.mariadb.process.pid) - database
        return {
            "rps": len(requests) / took,
            "p50_ms": percentile(latencies_s, 50) * 1000,
            "p99_ms": percentile(latencies_s, 99) * 1000,
            "web_cpu_us": web / len(requests) * 1e6,
            "database_cpu_us": database / len(requests) * 1e6,
        }

    def _my(self, turn: int) -> Iterator[Request]:
        for user_id in self.about["shoppers"]:
            yield Request(wire("GET", MY, f"Bearer {self.tokens[user_id]}"), 200)

    def _available(self, turn: int) -> Iterator[Request]:
        for user_id in self.about["shoppers"]:
            path = f"{INNER}/available?user_id={user_id}&amount={AMOUNT}"
            yield Request(wire("GET", path, f"Api-Key {self.about['key']}"), 200)

    def _redeem(self, turn: int) -> Iterator[Request]:
        for coupon_id, user_id in self.about["coupons"]:
            yield self._write("redeem", coupon_id, turn, {"user_id": str(user_id), "order_amount": AMOUNT})

    def _roll_back(self, turn: int) -> Iterator[Request]:
        for coupon_id, _user_id in self.about["coupons"]:
            yield self._write("roll-back", coupon_id, turn, {"reason": "bench"})

    def _write(self, route: str, coupon_id: int, turn: int, body: dict[str, str]) -> Request:
        """201: entered now. 200 would be an order that was known."""
        body = {"coupon_id": str(coupon_id), "order_id": f"{turn}-{coupon_id}", **body}
        return Request(wire("POST", f"{INNER}/{route}", f"Api-Key {self.about['key']}", body), 201)


# -- The load -----------------------------------------------------------------------------------------


def wire(method: str, path: str, authorization: str, body: dict[str, str] | None = None) -> bytes:
    """A request's bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: {authorization}"]
    content = b""
    if body is not None:
        content = json.dumps(body).encode()
        lines += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    return "\r\n".join((*lines, "", "")).encode() + content


def load(requests: Sequence[Request], *, port: int, connections: int) -> list[float]:
    """Send all requests over new connections, one at a time on each; the latencies in s.

    :raises bench.contract.AnswersWrongly: an answer has another status than it must have, or never came.
    """
    latencies_s: list[float] = []
    faults: list[Exception] = []
    waiting = iter(requests)
    lock = threading.Lock()

    def send() -> None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as one:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while not faults:
                    with lock:
                        request = next(waiting, None)
                    if request is None:
                        return
                    began = time.perf_counter()
                    one.sendall(request.wire)
                    status, answer = _answer(one.recv)
                    latencies_s.append(time.perf_counter() - began)
                    if status != request.status:
                        asked = request.wire.partition(b" HTTP")[0].decode()
                        raise AnswersWrongly(f"{asked}: {status} instead of {request.status}: {answer[:300]!r}")
        except Exception as fault:  # noqa: BLE001 - raised again by the thread that waits for this one
            faults.append(fault)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0] if isinstance(faults[0], AnswersWrongly) else AnswersWrongly(str(faults[0])) from faults[0]
    return latencies_s


def _answer(receive: Callable[[int], bytes]) -> tuple[int, bytes]:
    """Status and body of one answer whose length its head tells."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _more(receive)
    head = data[:end].lower()
    length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
    while len(data) < end + 4 + length:
        data += _more(receive)
    return int(head.split(b" ", 2)[1]), data[end + 4 :]


def _more(receive: Callable[[int], bytes]) -> bytes:
    if not (data := receive(65536)):
        raise AnswersWrongly("the server hung up")
    return data


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that ``percent`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


if __name__ == "__main__":
    chosen, _sections = arguments_parse(["checkout", *sys.argv[1:]])
    with reporter() as shown:
        shown.begin("checkout")
        figures = measure(chosen, shown)
    print(json.dumps({"checkout": figures, "left_out": shown.left_out}, indent=1))
