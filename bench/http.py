"""Section ``http``: one seize endpoint in six servers under the same crowd, and our own read paths.

``.venv/bin/python -m bench.http [--quick] [--rounds N] [--only NAME]``: NAME is a contender or a mix.
"""

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import redis

from bench import contract
from bench import wrk as load
from bench.arguments import CONTENDERS, arguments_parse
from bench.contenders import Contender, Missing
from bench.options import Options, Progress
from bench.processes import tree_cpu_s
from bench.progress import reporter
from bench.sale import ACTIVITY_ID, STOCK, Sale, Sold, Tokens
from bench.stage import FOLDER, ROOT

from project import PYTHON
from services import MariaDB, Valkey, pidfile_kill, valkey_binary

OURS = ("gate", "drf_view")
READ_MIXES = ("list", "my", "claim")
ROWS: dict[str, tuple[str, ...]] = {
    "win": CONTENDERS,
    "win_everysec": ("gate",),
    "sold_out": CONTENDERS,
    "repeat": CONTENDERS,
    "list": OURS,
    "my": OURS,
    "claim": OURS,
}
SECONDS, SECONDS_QUICK, SECONDS_WARM = 6, 2, 1
RATE_MAX = 40_000  # wins a second that the tokens last for
HOLDERS = 20_000  # shoppers of ``repeat``
READERS = 2_000  # shoppers of ``my`` and ``claim``
BODY = json.dumps({"id": str(ACTIVITY_ID), "seq": 1}, separators=(",", ":"))


def measure(options: Options, progress: Progress) -> dict[str, dict[str, dict[str, float]]]:
    """Medians per mix and contender: ``{mix: {contender: {rps, p50_ms, p99_ms, web_cpu_us, redis_cpu_us}}}``.

    :raises bench.contract.AnswersWrongly: a contender does not do the job, or sold another number than it said.
    """
    pairs = [(mix, name) for mix, names in ROWS.items() for name in names if options.wants(mix) or options.wants(name)]
    if not pairs:
        return {}
    wrk = load.program()
    if wrk is None:
        progress.leave_out("http", "wrk is missing: Debian: as root 'apt-get install wrk'; macOS: brew install wrk")
        return {}
    seconds = SECONDS_QUICK if options.quick else SECONDS
    samples: dict[tuple[str, str], list[dict[str, float]]] = {}
    warm: set[str] = set()  # compilers and pools have done their first work; in a quick run once a contender
    with servers_start(pairs, progress, tokens=seconds * RATE_MAX) as servers:
        pairs = [pair for pair in pairs if servers.can(*pair)]
        progress.expect(len(pairs) * options.rounds)
        for number in range(options.rounds):
            for mix, name in pairs:
                progress.step(f"http {mix} {name}")
                if number == 0 and not (options.quick and name in warm):
                    warm.add(name)
                    _measure_once(servers, mix, name, wrk=wrk, seconds=SECONDS_WARM)
                samples.setdefault((mix, name), []).append(_measure_once(servers, mix, name, wrk=wrk, seconds=seconds))
    medians: dict[str, dict[str, dict[str, float]]] = {}
    for (mix, name), runs in samples.items():
        row = {key: round(statistics.median(run[key] for run in runs), 2) for key in runs[0]}
        medians.setdefault(mix, {})[name] = row
    return medians


# -- Servers ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Servers:
    """Everything that runs while the contenders take turns."""

    valkey: Valkey
    client: redis.Redis
    sale: Sale
    tokens: Tokens
    contenders: dict[str, Contender]
    reads: bool

    def can(self, mix: str, name: str) -> bool:
        """Whether a row can be measured here."""
        return name in self.contenders and (self.reads or mix not in READ_MIXES)


@contextmanager
def servers_start(pairs: list[tuple[str, str]], progress: Progress, *, tokens: int) -> Iterator[Servers]:
    """All servers, each checked; stopped at the end, whatever happens."""
    with ExitStack() as at_end:
        # Redis rewrites its append-only file between the runs, not amid one.
        folder = FOLDER / "valkey-http"
        pidfile_kill(folder / "server.pid")  # of an earlier run that was killed
        shutil.rmtree(folder, ignore_errors=True)
        valkey = Valkey(folder, binary=valkey_binary(), extra=("auto-aof-rewrite-percentage 0",))
        at_end.callback(valkey.stop, kill=True)
        valkey.start()
        client = redis.Redis.from_url(valkey.url, decode_responses=True)
        at_end.callback(client.close)
        database_url = ""
        if any(mix in READ_MIXES for mix, _name in pairs):
            database_url = _reading_fill(at_end, progress, redis_url=valkey.url)
        servers = Servers(valkey, client, Sale(client), Tokens(tokens), {}, reads=bool(database_url))
        for name in CONTENDERS:
            if not any(name == other for _mix, other in pairs):
                continue
            try:
                contender = Contender(name, redis_url=valkey.url, database_url=database_url)
            except Missing as missing:
                progress.leave_out(name, str(missing))
                continue
            at_end.callback(contender.stop)
            contender.start()
            contract.seizing_check(name, port=contender.port, sale=servers.sale)
            if servers.reads and name in OURS:
                contract.reading_check(name, port=contender.port)
            servers.contenders[name] = contender
        yield servers


def _reading_fill(at_end: ExitStack, progress: Progress, *, redis_url: str) -> str:
    """Start a MariaDB and fill it and Redis for the read mixes; its URL, or '' when there is none."""
    rows = ", ".join(READ_MIXES)
    if importlib.util.find_spec("MySQLdb") is None:
        progress.leave_out(rows, "mysqlclient is missing: run script/test once, it says what to install")
        return ""
    mariadb = MariaDB(FOLDER / "mariadb-http")
    try:
        mariadb.find()
    except SystemExit:
        progress.leave_out(rows, "mariadbd is missing, see the line above")
        return ""
    pidfile_kill(mariadb.folder / "server.pid")
    at_end.callback(mariadb.stop)
    mariadb.start()
    import MySQLdb

    raw = MySQLdb.connect(host="127.0.0.1", port=mariadb.port, user="root")
    raw.query("CREATE DATABASE coupons")
    raw.close()
    environment = {"REDIS_URL": redis_url, "DATABASE_URL": mariadb.url, "ENV_FILE": os.devnull, "LOG_LEVEL": "WARNING"}
    command = [str(PYTHON), "-m", "bench.reading", str(READERS)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=True)
    return mariadb.url


# -- One run ------------------------------------------------------------------------------------------


def _measure_once(servers: Servers, mix: str, name: str, *, wrk: str, seconds: float) -> dict[str, float]:
    """Prepare, load, count, compare the count with Redis."""
    asked, expected = _MIXES[mix](servers)
    contender, before = servers.contenders[name], servers.sale.sold()
    if mix == "win_everysec":
        servers.client.config_set("appendfsync", "everysec")
    time.sleep(0.2)
    web, store = tree_cpu_s(contender.pid), tree_cpu_s(_pid(servers.valkey))
    run = load.run(wrk, asked, port=contender.port, tokens=servers.tokens, seconds=seconds)
    web, store = tree_cpu_s(contender.pid) - web, tree_cpu_s(_pid(servers.valkey)) - store
    if mix == "win_everysec":
        servers.client.config_set("appendfsync", "always")
    wrong = expected(run, before, servers.sale.settled())
    if wrong or run.broken or not run.requests:
        raise contract.AnswersWrongly(f"{name}, {mix}: {wrong or 'requests without an answer'}: {run}")
    servers.sale.close()
    return run.figures(web_s=web, redis_s=store)


def _pid(valkey: Valkey) -> int:
    assert valkey.process is not None
    return valkey.process.pid


Expected = Callable[[load.Run, Sold, Sold], str]


def _win(servers: Servers) -> tuple[load.Load, Expected]:
    servers.sale.open(stock=STOCK)
    return load.Load("POST", contract.SEIZE, BODY, 0, servers.tokens.count, "stop"), _all_won


def _all_won(run: load.Run, before: Sold, after: Sold) -> str:
    """Every answer is a coupon; those under way when the load ended may have become one too."""
    sold = after.holders - before.holders
    if run.refused or not run.requests <= sold <= run.requests + load.CONNECTIONS:
        return f"{run.requests} answers, {run.refused} refused, {sold} sold"
    return "" if after.taken == after.holders == after.queued else f"stock, holders and queue differ: {after}"


def _sold_out(servers: Servers) -> tuple[load.Load, Expected]:
    servers.sale.open(stock=0)
    return load.Load("POST", contract.SEIZE, BODY, 0, servers.tokens.count), _all_refused


def _all_refused(run: load.Run, before: Sold, after: Sold) -> str:
    if run.refused != run.requests or after != before:
        return f"{run.requests} answers, {run.refused} refused, sold {before} → {after}"
    return ""


def _repeat(servers: Servers) -> tuple[load.Load, Expected]:
    servers.sale.open(stock=STOCK)
    servers.sale.hand_out(HOLDERS)
    return load.Load("POST", contract.SEIZE, BODY, 0, HOLDERS), _unchanged


def _unchanged(run: load.Run, before: Sold, after: Sold) -> str:
    """Every answer is below 400 and nothing was sold: the same coupon again, or a page."""
    return f"{run.refused} refused, sold {before} → {after}" if run.refused or after != before else ""


def _list(servers: Servers) -> tuple[load.Load, Expected]:
    servers.sale.open(stock=STOCK)
    return load.Load("GET", contract.LIST, "", 0, READERS, "anonymous"), _unchanged


def _my(servers: Servers) -> tuple[load.Load, Expected]:
    servers.sale.open(stock=STOCK)
    return load.Load("GET", contract.MY, "", 0, READERS), _unchanged


def _claim(servers: Servers) -> tuple[load.Load, Expected]:
    servers.sale.open(stock=STOCK)
    return load.Load("GET", contract.CLAIM, "", 0, READERS), _unchanged


_MIXES: dict[str, Callable[[Servers], tuple[load.Load, Expected]]] = {
    "win": _win,
    "win_everysec": _win,
    "sold_out": _sold_out,
    "repeat": _repeat,
    "list": _list,
    "my": _my,
    "claim": _claim,
}


if __name__ == "__main__":
    chosen, _sections = arguments_parse(["http", *sys.argv[1:]])
    with reporter() as shown:
        shown.begin("http")
        figures = measure(chosen, shown)
    print(json.dumps({"http": figures, "left_out": shown.left_out}, indent=1))
