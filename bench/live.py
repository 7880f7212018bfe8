"""Section ``live``: what watching a sale costs the gate, and what counting its outcomes does.

Twenty watchers ask for the live page's fragment every two seconds, as its script does, while everybody wins. The gate
without counting is a second server of the same code with ``SEIZE_COUNTS=false``. All take turns in each round, in an
order that turns round by round: what a machine does meanwhile hits each of them alike.
``.venv/bin/python -m bench.live [--quick] [--rounds N]``.
"""

import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack

import redis

from bench import contract, wrk
from bench.arguments import arguments_parse
from bench.contenders import Contender
from bench.http import BODY, RATE_MAX
from bench.options import Options, Progress
from bench.processes import tree_cpu_s
from bench.progress import reporter
from bench.sale import ACTIVITY_ID, STOCK, Sale, Tokens
from bench.stage import FOLDER, ROOT, database_create, folder_clear

from project import PYTHON
from services import MariaDB, Valkey, pidfile_kill, valkey_binary

SECONDS, SECONDS_QUICK, SECONDS_WARM = 8, 4, 2
WATCHERS, EVERY_S = 20, 2.0
FRAGMENT = f"/admin/activities/activity/{ACTIVITY_ID}/live/fragment"
ROWS = ("unwatched", "watched", "uncounted")


def measure(options: Options, progress: Progress) -> dict[str, dict[str, float]]:
    """Medians per row: ``{row: {rps, of_unwatched, p50_ms, p99_ms, web_cpu_us, redis_cpu_us}}``.

    ``of_unwatched`` is the median of each round's own ratio. ``watched`` also: polls answered with 200 and with 304.

    :raises bench.contract.AnswersWrongly: a watcher got something else than the fragment, or nothing was won.
    """
    program = wrk.program()
    if program is None:
        progress.leave_out("live", "wrk is missing: Debian: as root 'apt-get install wrk'; macOS: brew install wrk")
        return {}
    seconds = SECONDS_QUICK if options.quick else SECONDS
    rows = [row for row in ROWS if row == ROWS[0] or options.wants(row)]
    with ExitStack() as at_end:
        stage = _Stage(at_end, tokens=seconds * RATE_MAX, program=program, seconds=seconds)
        progress.expect(len(rows) * options.rounds)
        for row in rows:
            stage.run(row, seconds=SECONDS_WARM)
        runs: dict[str, list[dict[str, float]]] = {}
        for number in range(options.rounds):
            for row in rows[number % len(rows) :] + rows[: number % len(rows)]:
                progress.step(f"live {row}")
                runs.setdefault(row, []).append(stage.run(row, seconds=seconds))
    medians: dict[str, dict[str, float]] = {}
    for row, measured in runs.items():
        pairs = zip(measured, runs[ROWS[0]], strict=True)
        ratio = statistics.median(one["rps"] / base["rps"] for one, base in pairs)
        medians[row] = {
            "rps": round(statistics.median(run["rps"] for run in measured), 2),
            "of_unwatched": round(ratio, 3),
            **{key: round(statistics.median(run[key] for run in measured), 2) for key in measured[0] if key != "rps"},
        }
    return medians


class _Stage:
    """Valkey with a sale, a MariaDB with its activity and somebody logged in, and the two servers."""

    def __init__(self, at_end: ExitStack, *, tokens: int, program: str, seconds: float) -> None:
        self.program = program
        self.valkey = Valkey(
            folder_clear("valkey-live"), binary=valkey_binary(), extra=("auto-aof-rewrite-percentage 0",)
        )
        at_end.callback(self.valkey.stop, kill=True)
        self.valkey.start()
        client = redis.Redis.from_url(self.valkey.url, decode_responses=True)
        at_end.callback(client.close)
        mariadb = MariaDB(FOLDER / "mariadb-live")
        mariadb.find()
        pidfile_kill(mariadb.folder / "server.pid")
        at_end.callback(mariadb.stop)
        mariadb.start()
        database_create(mariadb.port)
        self.sale, self.tokens = Sale(client), Tokens(tokens)
        self.sale.open(stock=STOCK)
        environment = {**os.environ, "REDIS_URL": self.valkey.url, "DATABASE_URL": mariadb.url, "ENV_FILE": os.devnull}
        filled = subprocess.run(
            [str(PYTHON), "-m", "bench.live", "--fill"],
            cwd=ROOT,
            env={**environment, "LOG_LEVEL": "WARNING"},
            check=True,
            capture_output=True,
            text=True,
        )
        self.session = filled.stdout.strip().splitlines()[-1]
        self.servers: dict[str, Contender] = {}
        for name, counts in (("counted", "true"), ("uncounted", "false")):
            server = Contender("gate", redis_url=self.valkey.url, database_url=mariadb.url)
            server.environment["SEIZE_COUNTS"] = counts
            at_end.callback(server.stop)
            server.start()
            contract.seizing_check(name, port=server.port, sale=self.sale)
            self.servers[name] = server

    def run(self, row: str, *, seconds: float) -> dict[str, float]:
        """One load, with or without watchers."""
        server = self.servers["uncounted" if row == "uncounted" else "counted"]
        self.sale.open(stock=STOCK)
        time.sleep(0.5)
        asked = wrk.Load("POST", contract.SEIZE, BODY, 0, self.tokens.count, "stop")
        assert self.valkey.process is not None
        watching = _Watchers(server.port, self.session, WATCHERS if row == "watched" else 0)
        with watching:
            web, store = tree_cpu_s(server.pid), tree_cpu_s(self.valkey.process.pid)
            run = wrk.run(self.program, asked, port=server.port, tokens=self.tokens, seconds=seconds)
            web, store = tree_cpu_s(server.pid) - web, tree_cpu_s(self.valkey.process.pid) - store
        sold = self.sale.settled()
        if run.refused or run.broken or not run.requests <= sold.taken <= run.requests + wrk.CONNECTIONS:
            raise contract.AnswersWrongly(f"live {row}: {run}, sold {sold}")
        if set(watching.answers) - {200, 304}:
            raise contract.AnswersWrongly(f"live {row}: watchers were answered {dict(watching.answers)}")
        self.sale.close()
        return {
            **run.figures(web_s=web, redis_s=store),
            "polls_200": watching.answers[200],
            "polls_304": watching.answers[304],
        }


class _Watchers:
    """People with the live page open: each asks every two seconds, on a connection of its own."""

    def __init__(self, port: int, session: str, number: int) -> None:
        self.port, self.session, self.number = port, session, number
        self.answers: Counter[int] = Counter()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> None:
        for place in range(self.number):
            thread = threading.Thread(target=self._watch, args=(place * EVERY_S / self.number,))
            thread.start()
            self._threads.append(thread)
        if self.number:
            time.sleep(1.5 * EVERY_S)  # each has been let in: what is measured is watching, not opening the page
            self.answers.clear()

    def __exit__(self, *_fault: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, first_s: float) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        etag, wait_s = "", first_s
        while not self._ended.wait(wait_s):
            wait_s = EVERY_S
            headers = {"Cookie": f"sessionid={self.session}", "If-None-Match": etag, "Accept-Language": "en"}
            connection.request("GET", FRAGMENT, headers=headers)
            response = connection.getresponse()
            response.read()
            etag = response.headers.get("ETag", "")
            self.answers[response.status] += 1
        connection.close()


def fill() -> None:
    """The sale's activity in the ledger, and somebody who is logged in; prints the session's key."""
    from datetime import timedelta

    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")
    django.setup()
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.contrib.sessions.backends.db import SessionStore
    from django.core.management import call_command
    from django.utils import timezone

    from activities.models import Activity

    call_command("migrate", verbosity=0, interactive=False)
    now = timezone.now()
    Activity.objects.create(
        id=ACTIVITY_ID, uid="bench", name="Sale", starts_at=now - timedelta(minutes=1),
        ends_at=now + timedelta(hours=2), stock_total=STOCK, min_spend=100, amount_off=20, valid_days=7,
        status="ACTIVE", epoch=1,
    )  # fmt: skip
    user = get_user_model().objects.create_superuser("watcher", password="watcher")
    session = SessionStore()
    session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session.create()
    print(session.session_key)


if __name__ == "__main__":
    if sys.argv[1:] == ["--fill"]:
        fill()
        raise SystemExit
    chosen, _sections = arguments_parse(["live", *sys.argv[1:]])
    with reporter() as shown:
        shown.begin("live")
        figures = measure(chosen, shown)
    print(json.dumps({"live": figures, "left_out": shown.left_out}, indent=1))
