"""A whole system of real processes that a test may kill, and shoppers who write down every acknowledgement."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import MySQLdb
import pytest
import redis
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from services import PATIENCE_S, MariaDB, Valkey, port_answers, port_pick, wait_until

from activities.admission import STORE_FAULTS
from activities.models import Activity, Coupon
from seize.keys import shard_of
from seize.queue import queue_lengths
from seize.tokens import access_token_issue
from sync.reconcile import activity_reconcile
from sync.schedule import schedule_create

BIN = Path(sys.executable).parent

Claim = tuple[int, int, int]  # activity, user, seq


class Sale:
    """Shoppers in threads; each asks with seq 1 until the answer is definite, as a page would.

    ``acked`` is the client's own record of what was promised; ``codes`` counts every answer. Whoever has not asked yet
    waits from ``stop_at`` coupons on for ``go_on``: a test that is slower than its shoppers still finds a sale.
    """

    def __init__(
        self,
        ports: list[int],
        activity: Activity,
        users: range,
        *,
        threads: int,
        pause_s: float = 0,
        stop_at: int | None = None,
    ) -> None:
        self.ports, self.activity, self.pause_s, self.stop_at = ports, activity, pause_s, stop_at
        self.acked: set[Claim] = set()
        self.codes: Counter[str] = Counter()
        self.faults: list[BaseException] = []
        self._users = iter(users)
        self._lock = threading.Condition()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def go_on(self, *, stop_at: int | None = None) -> None:
        """Let the shoppers go on, to the next stop if there is one."""
        with self._lock:
            self.stop_at = stop_at
            self._lock.notify_all()

    def join(self) -> None:
        """Until every shopper has a definite answer, or one has lost patience."""
        for thread in self._threads:
            thread.join()
        if self.faults:
            raise self.faults[0]

    @property
    def running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def wait_for(self, number: int) -> None:
        """Until so many coupons were acknowledged."""
        wait_until(lambda: len(self.acked) >= number or bool(self.faults), what=f"{number} coupons")

    def wait_for_code(self, code: str) -> None:
        """Until one more shopper got this answer."""
        before = self.codes[code]
        wait_until(lambda: self.codes[code] > before or bool(self.faults), what=f"a shopper to be told {code}")

    def _run(self, number: int) -> None:
        try:
            while (user := self._next()) is not None:
                self._ask(user, self.ports[(number + user) % len(self.ports)])
                time.sleep(self.pause_s)
        except BaseException as fault:  # noqa: BLE001 - raised again by join
            self.faults.append(fault)

    def _next(self) -> int | None:
        with self._lock:
            self._lock.wait_for(lambda: self.stop_at is None or len(self.acked) < self.stop_at)
            return next(self._users, None)

    def _ask(self, user: int, port: int) -> None:
        body = json.dumps({"id": str(self.activity.pk), "seq": 1})
        headers = {
            "Authorization": f"Bearer {access_token_issue(user_id=user, lifetime_s=86_400)}",
            "Content-Type": "application/json",
        }
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            code = self._once(port, body, headers)
            with self._lock:
                self.codes[code] += 1
                if code == "SEIZED":
                    self.acked.add((self.activity.pk, user, 1))
            if code not in ("NOT_READY", "BUSY", "OUTCOME_UNKNOWN", "no answer"):
                return
            time.sleep(0.05)
        raise AssertionError(f"shopper {user} never got a definite answer; {self.codes}")

    @staticmethod
    def _once(port: int, body: str, headers: dict[str, str]) -> str:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        try:
            client.request("POST", "/market/consumer/coupon/seize", body, headers)
            response = client.getresponse()
            answer = json.loads(response.read())
            if response.status >= 500 and response.status != 503:
                raise AssertionError(f"{response.status}: {answer}")
            return answer["code"]
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return "no answer"
        finally:
            client.close()


class System:
    """Web servers, workers, beats and a Valkey of its own, on the test's database."""

    def __init__(self, folder: Path, binary: str) -> None:
        self.folder = folder
        self.extra_env: dict[str, str] = {}
        self.valkey = Valkey(folder / "valkey", binary=binary)
        self.redis_url = ""  # another Redis than the Valkey above, which is then only the broker
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        self._over = threading.Event()
        self._changing = threading.Lock()  # whoever starts or kills holds it, so that nothing is started twice
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()

    def _supervise(self) -> None:
        """Restart what ends by itself, as supervisord does in production: Celery ends on some broken connections."""
        while not self._over.wait(0.5):
            with self._changing:
                for name, process in list(self.processes.items()):
                    if process.poll() is not None:
                        self.processes[name] = self._spawn(name)

    @property
    def env(self) -> dict[str, str]:
        database = connection.settings_dict
        return {
            **os.environ,
            "DATABASE_URL": f"mysql://root@127.0.0.1:{database['PORT']}/{database['NAME']}",
            "REDIS_URL": self.redis_url or self.valkey.url,
            "CELERY_BROKER_URL": self.valkey.url.removesuffix("/0") + "/1",
            "CACHE_URL": self.valkey.url.removesuffix("/0") + "/2",
            "ENV_FILE": os.devnull,
            # A machine that is slow is no fault. Tests of what hangs set the product's own time-outs.
            **dict.fromkeys(("REDIS_TIMEOUT_S", "REDIS_CONNECT_TIMEOUT_S", "WEB_BODY_TIMEOUT_S"), str(PATIENCE_S)),
            **self.extra_env,
        }

    @property
    def raw(self) -> redis.Redis:
        return redis.Redis.from_url(self.valkey.url, decode_responses=True)

    def start(self, *names: str) -> None:
        """Start web… (with the gate), view… (gunicorn), worker… or beat… by name; a web server keeps its port."""
        with self._changing:
            for name in names:
                self.processes[name] = self._spawn(name)
        for name in names:
            if name in self.ports:
                wait_until(lambda port=self.ports[name]: port_answers(port), what=name)

    def _spawn(self, name: str) -> subprocess.Popen[bytes]:
        celery = [str(BIN / "celery"), "-q", "-A", "couponsite"]
        if name.startswith("web"):
            port = self.ports.setdefault(name, port_pick())
            command = [sys.executable, "-m", "couponsite.serve", "--port", str(port), "--workers", "1"]
        elif name.startswith("view"):
            port = self.ports.setdefault(name, port_pick())
            command = [str(BIN / "gunicorn"), "couponsite.wsgi", "--bind", f"127.0.0.1:{port}", "--threads", "8",
                       "--worker-class", "gthread", "--no-control-socket", "--log-level", "error",
                       "--timeout", str(PATIENCE_S), "--graceful-timeout", str(PATIENCE_S)]  # fmt: skip
        elif name.startswith("worker"):
            command = [*celery, "worker", "--concurrency", "2", "--loglevel", "ERROR", "-n", f"{name}@%h",
                       "--without-gossip", "--without-mingle", "--without-heartbeat"]  # fmt: skip
        else:
            command = [*celery, "beat", "--loglevel", "ERROR", "--pidfile="]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, env=self.env, stdout=log, stderr=log, start_new_session=True)

    def kill(self, name: str) -> None:
        """SIGKILL a process and its children, all at once."""
        process = self.let_go(name)
        with contextlib.suppress(ProcessLookupError):  # it ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)

    def let_go(self, name: str) -> subprocess.Popen[bytes]:
        """A process that nobody restarts from now on."""
        with self._changing:
            return self.processes.pop(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        os.killpg(self.processes[name].pid, number)

    def stop(self) -> None:
        self._over.set()
        self._supervisor.join()
        for name in list(self.processes):
            self.kill(name)
        self.valkey.stop(kill=True)

    def drained(self, activity: Activity) -> None:
        """Until the workers have emptied the activity's queue."""

        def is_empty() -> bool:
            try:
                return queue_lengths([shard_of(activity.pk)]) == [0]
            except STORE_FAULTS:  # of a cluster whose nodes do not see each other yet
                return False

        wait_until(is_empty, what="the drain")

    def web_ports(self) -> list[int]:
        return [self.ports[name] for name in self.processes if name in self.ports]


@pytest.fixture
def system(tmp_path, valkey, settings, transactional_db) -> Iterator[System]:
    """Valkey is running; web, worker and beat are for the test to start. The test's own calls go to this Valkey."""
    running = System(tmp_path, valkey.binary)
    running.valkey.start()
    settings.REDIS_URL = running.valkey.url
    schedule_create()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def own_database(system, tmp_path) -> Iterator[MariaDB]:
    """A MariaDB that the test may kill, with the product's tables; this process and the system are on it."""
    database = MariaDB(tmp_path / "mariadb")
    database.start()
    connection.close()
    shared_port = connection.settings_dict["PORT"]
    connection.settings_dict["PORT"] = database.port
    try:
        with contextlib.closing(MySQLdb.connect(host="127.0.0.1", port=database.port, user="root")) as raw:
            raw.query(f"CREATE DATABASE {connection.settings_dict['NAME']}")
        call_command("migrate", verbosity=0, interactive=False)
        call_command("schedule", verbosity=0)
        yield database
    finally:
        system.stop()
        connection.close()
        connection.settings_dict["PORT"] = shared_port
        database.stop()


SLOW_FDATASYNC = """
#include <unistd.h>
int fdatasync(int fd) { usleep(SLOW_US); (void)fd; return 0; }
int fsync(int fd) { return fdatasync(fd); }
"""


def slow_disk(folder: Path, *, slow_us: int) -> str:
    """A library for LD_PRELOAD under which every fsync takes so long and does nothing; its path."""
    source, library = folder / f"slow{slow_us}.c", folder / f"slow{slow_us}.so"
    source.write_text(SLOW_FDATASYNC.replace("SLOW_US", str(slow_us)))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return str(library)


def stand_still(pid: int) -> None:
    """SIGSTOP a process, and wait until each of its threads has obeyed."""
    os.kill(pid, signal.SIGSTOP)

    def stands(stat: Path) -> bool:
        try:
            return ") T " in stat.read_text()
        except OSError:
            return True  # this thread has ended

    wait_until(lambda: all(map(stands, Path(f"/proc/{pid}/task").glob("*/stat"))), what="the process to stand still")


@pytest.fixture
def minutes(pytestconfig) -> int:
    """How long a soak lasts."""
    return pytestconfig.getoption("soak")


def rows_of(activity: Activity) -> set[Claim]:
    """The ledger's word."""
    return {
        (activity.pk, user, seq) for user, seq in Coupon.objects.filter(activity=activity).values_list("user_id", "seq")
    }


def agrees(activity: Activity) -> None:
    """Redis and the ledger say the same to the last coupon, as soon as no rebuild is under way."""
    results = []

    def reconciled() -> bool:
        with contextlib.suppress(*STORE_FAULTS):
            results.append(activity_reconcile(activity_id=activity.pk, now=timezone.now(), names=True))
        # During a rebuild nothing can be said: it is skipped, or, when the rebuild begins only then, names are missing.
        return bool(results) and results[-1].state != "SKIPPED" and bool(results[-1].differences)

    wait_until(reconciled, what="a reconciliation between two rebuilds")
    assert (results[-1].state, results[-1].differences) == ("AGREES", {"not_held": [], "held_only": []})
    activity.refresh_from_db()
    assert activity.issued == Coupon.objects.filter(activity=activity).count() <= activity.stock_total
