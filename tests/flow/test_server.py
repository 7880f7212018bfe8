"""script/server as a newcomer meets it: from nothing to a coupon in the database, and nothing left behind."""

import json
import os
import re
import shlex
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import MySQLdb
import pytest
from services import PATIENCE_S, descendants, pid_is_alive, port_pick, processes, wait_until

ROOT = Path(__file__).resolve().parents[2]
STORED = """
from activities.models import Coupon
from django_celery_beat.models import PeriodicTask
print(Coupon.objects.count())
print(PeriodicTask.objects.get(name="sync.dispatch", enabled=True).interval)
"""


class RunningServer:
    """A script/server with a var folder of its own."""

    def __init__(self, folder: Path, **servers: str) -> None:
        self.folder = folder
        self.port, self.flower_port = port_pick(), port_pick()
        cleared = (
            "DATABASE_URL",
            "REDIS_URL",
            "CELERY_BROKER_URL",
            "CACHE_URL",
            "TEST_FOLDER",
            "DJANGO_SETTINGS_MODULE",
        )
        self.env = {
            **{name: value for name, value in os.environ.items() if name not in cleared},
            "VAR_DIR": str(folder / "var"),
            "ENV_FILE": os.devnull,
            "PORT": str(self.port),
            "FLOWER_PORT": str(self.flower_port),
            "WORKER_CONCURRENCY": "2",
            # A machine that is slow is no fault.
            **dict.fromkeys(("REDIS_TIMEOUT_S", "REDIS_CONNECT_TIMEOUT_S", "WEB_BODY_TIMEOUT_S"), str(PATIENCE_S)),
            **servers,
        }
        self.log = folder / "output.txt"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [str(ROOT / "script/server")], env=self.env, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def output(self) -> str:
        return self.log.read_text()

    def curl_arguments(self) -> list[str]:
        """The arguments of the printed seize command, with its token put in."""
        token = re.search(r"TOKEN=(\S+)", self.output())[1]
        lines = re.search(r"curl -i (.*?\n.*?)\n", self.output(), re.DOTALL)[1]
        return shlex.split(lines.replace("\\\n", " ").replace("$TOKEN", token))

    def pids(self) -> set[int]:
        """Every process that names this server's folder or descends from it."""
        named = {pid for pid, (_ppid, command) in processes().items() if str(self.folder) in command}
        return named.union(*(descendants(pid) for pid in {self.process.pid, *named}))

    def get(self, path: str, *, port: int | None = None, **headers: str) -> dict[str, object]:
        request = urllib.request.Request(f"http://127.0.0.1:{port or self.port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return json.load(response)


@pytest.fixture(scope="module")
def database_of_its_own(worker_id) -> Iterator[str]:
    """URL of an empty database on the private MariaDB."""
    port = int(os.environ["DATABASE_URL"].rpartition(":")[2].partition("/")[0])
    name = f"flow_{worker_id}"
    connection = MySQLdb.connect(host="127.0.0.1", port=port, user="root")
    connection.query(f"DROP DATABASE IF EXISTS {name}")
    connection.query(f"CREATE DATABASE {name}")
    yield f"mysql://root@127.0.0.1:{port}/{name}"
    connection.query(f"DROP DATABASE {name}")
    connection.close()


@pytest.fixture(scope="module", params=["embedded", "own servers"])
def server(request, tmp_path_factory) -> Iterator[RunningServer]:
    """script/server on its embedded parts, and on MariaDB and Redis 6.2 by DATABASE_URL and REDIS_URL."""
    servers: dict[str, str] = {}
    if request.param == "own servers":
        servers["DATABASE_URL"] = request.getfixturevalue("database_of_its_own")
        servers["REDIS_URL"] = request.getfixturevalue("redis62").url
    running = RunningServer(tmp_path_factory.mktemp("server"), **servers)
    try:
        wait_until(lambda: "Win a coupon" in running.output() or running.process.poll() is not None, what="server")
        yield running
    finally:
        pids = running.pids()
        running.process.send_signal(signal.SIGINT)
        try:
            running.process.wait(PATIENCE_S)
        finally:
            for pid in pids:
                if pid_is_alive(pid):
                    os.kill(pid, signal.SIGKILL)


def run(*command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A command at the root of the repository, to its end."""
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.flow
class TestServer:
    """In this order, on one server: each step is what a newcomer would do next."""

    def test_printed_curl_wins_a_coupon_that_is_issued_and_stored_by_what_runs_every_second(self, server):
        assert server.process.poll() is None, server.output()
        url, *rest = server.curl_arguments()
        headers = dict(re.split(r": ?", rest[i + 1], maxsplit=1) for i, word in enumerate(rest) if word == "-H")
        data = rest[rest.index("-d") + 1].encode()
        with urllib.request.urlopen(
            urllib.request.Request(url, data=data, headers=headers), timeout=PATIENCE_S
        ) as response:
            assert response.status == 201
        authorization = {"Authorization": headers["Authorization"]}
        states = []

        def issued() -> bool:
            [coupon] = server.get("/market/consumer/coupon/my", **authorization)["results"]
            states.append(coupon["state"])
            return states[-1] == "issued"

        wait_until(issued, what="the coupon to be issued")
        assert set(states) <= {"pending", "issued"}
        stored = run(".venv/bin/python", "manage.py", "shell", "-v", "0", "-c", STORED, env=server.env)
        assert stored.stdout.splitlines() == ["1", "every second"]

    def test_walk_of_the_readme_runs_as_written_from_the_button_to_the_refund_and_back(self, server):
        readme = (ROOT / "README.md").read_text().split("## The API for checkout")[1]
        walk = re.search(r"```sh\n(.*?)```", readme, re.DOTALL)[1].replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
        done = run("sh", "-eu", "-c", walk, env=server.env)
        assert done.returncode == 0, done.stderr
        won, available, redeemed, rolled_back, again = [json.loads(line) for line in done.stdout.splitlines()]
        assert (won["code"], won["seq"]) == ("SEIZED", 1)
        [usable] = available["usable"]
        assert (usable["discount"], usable["payable"]) == ("20.00", "179.00")
        assert [answer["code"] for answer in (redeemed, rolled_back, again)] == ["REDEEMED", "ROLLED_BACK", "REDEEMED"]
        assert {answer["coupon_id"] for answer in (redeemed, rolled_back, again)} == {usable["id"]}
        assert rolled_back["status"] == "unused"
        assert (redeemed["payable"], again["payable"]) == ("179.00", "179.00")
        assert redeemed["order_id"] == rolled_back["order_id"] != again["order_id"]

    def test_demo_activities_are_all_there(self, server):
        results = server.get("/market/consumer/activity/list")["results"]
        shown = {result["name"]: (result["status"], result["per_user_limit"]) for result in results}
        assert shown.pop("马上开抢 满30减5") in {("upcoming", 1), ("ongoing", 1)}  # two minutes after it was made
        assert list(shown.values()) == [("ongoing", 1), ("ongoing", 3), ("ended", 1), ("paused", 1), ("upcoming", 1)]

    def test_newcomer_finds_the_coupon_centre_at_the_root(self, server):
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=PATIENCE_S) as response:
            page = response.read().decode()
        assert "满100减20" in page
        for address in re.findall(r'(?:href|src)="(/static/[^"]+)"', page):
            assert re.search(r"\.[0-9a-f]{12}\.\w+$", address), "published under the name of its content"
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{address}", timeout=PATIENCE_S) as response:
                assert "immutable" in response.headers["Cache-Control"]

    def test_flower_shows_the_drain_with_its_result(self, server):
        authorization = {"Authorization": "Basic YWRtaW46YWRtaW4="}

        def shown() -> bool:
            tasks = server.get("/api/tasks?taskname=sync.drain_queue", port=server.flower_port, **authorization)
            return any("'inserted': 1" in (task["result"] or "") for task in tasks.values())

        wait_until(shown, what="the drain's result in Flower")

    def test_manage_py_in_another_terminal_finds_the_embedded_redis(self, server):
        env = {name: value for name, value in server.env.items() if name not in ("PORT", "FLOWER_PORT")}
        done = run(".venv/bin/python", "manage.py", "preheat", env=env)
        assert done.returncode == 0, done.stderr
        answers = json.loads(done.stdout)
        # Of the six the one that ended a day ago is settled within a minute, and not looked at any more.
        assert answers["current"] + answers.get("applied", 0) in (5, 6)

    def test_second_start_reports_the_running_one(self, server):
        again = run("script/server", env=server.env)
        assert again.returncode == 0
        assert f"already running here (pid {server.process.pid})" in again.stdout
        assert f"http://127.0.0.1:{server.port}/admin/" in again.stdout

    def test_port_in_use_is_one_line_and_exit_code_2(self, server, tmp_path):
        env = {**server.env, "VAR_DIR": str(tmp_path / "var")}
        refused = run("script/server", env=env)
        assert refused.returncode == 2
        assert refused.stderr.strip() == f"error: PORT={server.port} is in use by another program: choose another port."

    def test_worker_killed_by_sigkill_is_started_anew_at_once(self, server):
        log = server.folder / "var/log/supervisord.log"

        def told(since: int = 0) -> list[str]:
            """What supervisord says of the worker, a line each."""
            return [line for line in log.read_text()[since:].splitlines() if "worker" in line]

        worker = int(re.findall(r"spawned: 'worker' with pid (\d+)", "\n".join(told()))[-1])
        since = len(log.read_text())
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(told(since)) >= 3, what="a new worker")
        ended, started, runs = told(since)[:3]
        assert "exited: worker (terminated by SIGKILL" in ended
        assert "spawned: 'worker' with pid" in started  # at its first attempt, without a pause
        assert "worker entered RUNNING state" in runs

    def test_ctrl_c_leaves_no_process_behind(self, server):
        pids = server.pids()
        assert len(pids) >= 7
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE_S) == 0
        # Whoever was killed at last may need a moment to be gone.
        wait_until(lambda: not any(map(pid_is_alive, pids)), what="every process to end")
        assert not (server.folder / "var/run/server.json").exists()
        assert not (server.folder / "var/run/redis.url").exists()
