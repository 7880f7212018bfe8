"""script/server: set-up, then Valkey, web, worker, beat and Flower under supervisord until Ctrl-C."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO
from urllib.parse import urlsplit

from console import duration, fail, moving, say, step
from project import PYTHON, VAR, lock_take, manage, program, setting
from services import pid_is_alive, pidfile_kill, port_is_free, port_pick, redis_answers, valkey_binary, valkey_config
from setup import manage_or_fail, setup
from supervision import (
    LOGS,
    NAMES,
    RUN,
    LogFollower,
    ProgramEnds,
    supervisord_config,
    supervisord_start,
    supervisord_stop,
)

STATE = RUN / "server.json"  # of the server that holds the lock: pid, phase and, once it is ready, ports
REDIS_URL_FILE = RUN / "redis.url"  # what manage.py in another terminal reads
STANDSTILL_S = 600  # after so long without anything more that answers, waiting is over
ONCE = {
    "REDIS_TIMEOUT_S": "60",
    "REDIS_CONNECT_TIMEOUT_S": "60",
}  # for a command that is run once
ENDS_MAX = 5  # a program that ends so often before everything answers will not come


def port_choose(name: str, default: int) -> int:
    """The port of a setting, or the next free one from its default.

    :raises SystemExit: code 2, when the port that was asked for is not a port or is taken.
    """
    asked = setting(name)
    if asked:
        if not asked.isdigit() or not 1 <= int(asked) <= 65535:
            fail(f"{name} must be a port from 1 to 65535, not {asked!r}.")
        if not port_is_free(int(asked)):
            fail(f"{name}={asked} is in use by another program: choose another port.")
        return int(asked)
    for port in range(default, default + 50):
        if port_is_free(port):
            if port != default:
                say(f"note: port {default} is in use, taking {port} (set {name} to choose).")
            return port
    return fail(f"no free port from {default} to {default + 49}: set {name}.")


def redis_embedded() -> tuple[str, str]:
    """Configuration path and URL of the embedded Valkey; port and password stay as long as they can."""
    folder = VAR / "valkey"
    kept = folder / "secret.json"
    folder.mkdir(parents=True, exist_ok=True)
    state = json.loads(kept.read_text()) if kept.exists() else {"password": secrets.token_urlsafe(24), "port": 0}
    if not state["port"] or not port_is_free(state["port"]):
        state["port"] = port_pick()
    kept.touch(mode=0o600)
    kept.write_text(json.dumps(state))
    config = valkey_config(folder, port=state["port"], password=state["password"])
    return str(config), f"redis://:{state['password']}@127.0.0.1:{state['port']}/0"


def programs(*, port: int, flower_port: int, valkey_conf: str | None) -> dict[str, list[str]]:
    """Command line of each program."""
    celery = [program("celery"), "-q", "-A", "couponsite"]
    commands = {
        "web": [str(PYTHON), "-m", "couponsite.serve", "--port", str(port), "--workers", setting("WEB_WORKERS", "2")],
        # S20: core 1, max 10, discard when busy → ten processes, and one drain a queue at a time.
        "worker": [*celery, "worker", "--concurrency", setting("WORKER_CONCURRENCY", "10"), "-E",
                   "--loglevel", "WARNING", "--without-gossip", "--without-mingle"],
        "beat": [*celery, "beat", "--loglevel", "WARNING", "--pidfile="],
        "flower": [*celery, "flower", "--address=127.0.0.1", f"--port={flower_port}", "--max_tasks=10000",
                   "--logging=error", "--tasks-columns=name,state,kwargs,result,received,runtime,worker"],
    }  # fmt: skip
    if valkey_conf:
        commands["valkey"] = [valkey_binary(), valkey_conf]
    return commands


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: object) -> None:
        return None


def http_get(url: str) -> tuple[int, bytes]:
    """Status and body of a loopback URL, redirects not followed; (0, b"") when nobody answers."""
    request = urllib.request.Request(url, headers={"Accept": "application/json, text/html;q=0.9, */*;q=0.8"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
    try:
        with opener.open(request, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, b""
    except (OSError, http.client.HTTPException):
        return 0, b""


def parts_missing(*, port: int, flower_port: int, development: bool) -> list[str]:
    """What does not answer yet: web, Flower, and in development the worker, which loads the demo's activities.

    In production 127.0.0.1 need not be among the allowed hosts, and http may lead to https: any answer
    that is no fault will do.
    """
    missing = []
    worker = "worker and beat (the demo's activities are not loaded)"
    status, body = http_get(f"http://127.0.0.1:{port}/market/consumer/activity/list")
    if not (status == 200 if development else 200 <= status < 500):
        missing += ["web", worker] if development else ["web"]
    elif development and not _demo_loaded(body):
        missing.append(worker)
    if http_get(f"http://127.0.0.1:{flower_port}/healthcheck")[0] != 200:
        missing.append("flower")
    return missing


def _demo_loaded(body: bytes) -> bool:
    results = json.loads(body)["results"]
    on_offer = [result for result in results if result["status"] in ("ongoing", "upcoming", "paused")]
    return bool(results) and all(result["stock_left"] is not None for result in on_offer)


def state_write(phase: str, **facts: object) -> None:
    """Tell a second start what this one is at: ``starting``, ``ready`` or ``stopping``."""
    partial = STATE.with_suffix(".new")
    partial.write_text(json.dumps({"pid": os.getpid(), "phase": phase, **facts}))
    partial.replace(STATE)


def state_read() -> dict[str, Any]:
    """What the server that holds the lock is at; ``starting`` while it has said nothing yet."""
    try:
        state = dict(json.loads(STATE.read_text()))
    except (FileNotFoundError, ValueError):
        return {"phase": "starting"}
    return state if pid_is_alive(state["pid"]) else {"phase": "starting"}  # else it was left by one that was killed


def lock_wait() -> TextIO | None:
    """The lock of the running server; None when another one has it and is ready, whose addresses are printed then.

    One that is starting or stopping is waited for, however long it takes: the lock ends with its process.
    """
    doing = ""
    with moving(lambda: f"waiting for the other script/server, which is {doing}"):
        while (lock := lock_take(RUN / "lock")) is None:
            state = state_read()
            if state["phase"] == "ready":
                say(f"script/server is already running here (pid {state['pid']}):")
                addresses_print(state["port"], state["flower_port"])
                return None
            if state["phase"] != doing:
                doing = state["phase"]
                say(f"note: another script/server is {doing} here, waiting for it")
            time.sleep(0.3)
    return lock


def addresses_print(port: int, flower_port: int) -> None:
    """The URLs, and how to log in."""
    development = setting("ENVIRONMENT", "development") == "development"
    login = "   log in as admin / admin (development only)" if development else ""
    door = "; enter as any of them (development only)" if development else ""
    say(f"  centre   http://127.0.0.1:{port}/   for shoppers{door}")
    say(f"  admin    http://127.0.0.1:{port}/admin/{login}")
    say(f"  API      http://127.0.0.1:{port}/market/consumer/activity/list")
    say(f"  Flower   http://127.0.0.1:{flower_port}/{login}")


def curl_print(port: int, env: dict[str, str]) -> None:
    """A line to paste that wins a coupon: a shopper who has none yet, the first running activity."""
    _status, body = http_get(f"http://127.0.0.1:{port}/market/consumer/activity/list?tab=ongoing")
    open_now = [result for result in json.loads(body or b'{"results": []}')["results"] if result["stock_left"]]
    token = manage("shopper_tokens", "--count", "1", "--start", str(int(time.time())), env=env).stdout.strip()
    if not open_now or not token:
        return
    say("\nWin a coupon, then look at it:\n")
    say(f"  TOKEN={token}")
    say(f'  curl -i http://127.0.0.1:{port}/market/consumer/coupon/seize -H "Authorization: Bearer $TOKEN" \\')
    say(f'       -H \'Content-Type: application/json\' -d \'{{"id": "{open_now[0]["id"]}", "seq": 1}}\'')
    say(f'  curl http://127.0.0.1:{port}/market/consumer/coupon/my -H "Authorization: Bearer $TOKEN"\n')


def redis_choose() -> tuple[str | None, str]:
    """Configuration path (None for a server of one's own) and URL of Redis; leaves the embedded one's for others."""
    if asked := setting("REDIS_URL"):
        REDIS_URL_FILE.unlink(missing_ok=True)
        return None, asked
    config, url = redis_embedded()
    REDIS_URL_FILE.touch(mode=0o600)
    REDIS_URL_FILE.write_text(url)
    return config, url


def parts_wait(supervisord: subprocess.Popen[bytes], missing: Callable[[], list[str]]) -> None:
    """Wait until nothing is missing any more, as long as the processes live and one part after the other comes.

    :param missing: names the parts that do not answer yet.
    :raises SystemExit: code 2, when supervisord ends, a program ends again and again, or nothing moves any more.
    """
    ends = ProgramEnds()
    left, moved_at = missing(), time.monotonic()
    fewest = len(left)
    with moving(lambda: f"waiting for {', '.join(left)}"):
        while left:
            if supervisord.poll() is not None:
                fail(f"supervisord ended with code {supervisord.returncode}; see {LOGS / 'supervisord.log'}.")
            for name, number in ends.counted().items():
                if number >= ENDS_MAX:
                    fail(f"{name} ended {number} times; see the lines above and {LOGS / (name + '.log')}.")
            if time.monotonic() - moved_at > STANDSTILL_S:
                gone = duration(STANDSTILL_S)
                fail(
                    f"nothing more has answered for {gone}, missing: {', '.join(left)}; see the lines above and {LOGS}."
                )
            time.sleep(0.3)
            left = missing()
            if len(left) < fewest:  # one that comes and goes is no progress
                fewest, moved_at = len(left), time.monotonic()


def servers_check(env: dict[str, str]) -> None:
    """Say what about Redis and the database is not fit for coupons.

    :raises SystemExit: code 2, in production.
    """
    checked = manage("check", "--deploy", "--tag", "servers", "--fail-level", "ERROR", env={**env, **ONCE})
    if "WARNINGS" in checked.stderr or "ERRORS" in checked.stderr:
        say(checked.stderr.strip())
    if checked.returncode != 0:
        fail("the servers are not fit for production, see the lines above.")


def signals_set(handler: Callable[..., object] | signal.Handlers) -> None:
    """Ctrl-C, a closed terminal and kill all end the server alike, also where a shell had them ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def main(arguments: list[str]) -> int:
    """Run everything until Ctrl-C; 0 when it was stopped, 2 when it could not be started."""
    if arguments:
        fail("script/server takes no arguments; ports are set by PORT and FLOWER_PORT.")
    RUN.mkdir(parents=True, exist_ok=True)
    lock = None
    try:
        lock = lock_wait()
        if lock is None:
            return 0
        state_write("starting")
        return run()
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        if lock is not None:
            STATE.unlink(missing_ok=True)
            lock.close()


def run() -> int:
    """Set up, start, wait until everything answers, and go on until Ctrl-C."""
    development = setting("ENVIRONMENT", "development") == "development"
    if not development and not setting("FLOWER_BASIC_AUTH"):
        fail("FLOWER_BASIC_AUTH=user:password must be set in production: Flower can end tasks.")
    setup()
    LOGS.mkdir(parents=True, exist_ok=True)
    pidfile_kill(RUN / "supervisord.pid")  # what a killed script/server left behind
    pidfile_kill(VAR / "valkey" / "server.pid")
    port, flower_port = port_choose("PORT", 8000), port_choose("FLOWER_PORT", 5555)
    valkey_conf, redis_url = redis_choose()
    env = {"PYTHONUNBUFFERED": "1", "VAR_DIR": str(VAR), "REDIS_URL": redis_url}
    commands = programs(port=port, flower_port=flower_port, valkey_conf=valkey_conf)

    step(f"Starting {', '.join(sorted(commands, key=NAMES.index))}")
    follower = LogFollower(list(commands))
    config = supervisord_config(commands, environment=env)
    signals_set(signal.default_int_handler)
    supervisord = None
    try:
        supervisord = supervisord_start(config)
        follower.start()
        if valkey_conf:
            valkey_port = urlsplit(redis_url).port
            parts_wait(supervisord, lambda: [] if redis_answers(valkey_port) else ["valkey"])
        if development:
            manage_or_fail("the demo", "seed_demo", env=env | ONCE)
        parts_wait(supervisord, lambda: parts_missing(port=port, flower_port=flower_port, development=development))
        servers_check(env)
        state_write("ready", port=port, flower_port=flower_port)
        say("\nReady. Ctrl-C stops everything.\n")
        addresses_print(port, flower_port)
        if development:
            curl_print(port, env)
        return supervisord.wait()
    except KeyboardInterrupt:
        say("\nStopping")
        return 0
    finally:
        signals_set(signal.SIG_IGN)
        with suppress(OSError):  # a full disk keeps nobody from stopping
            state_write("stopping")
        if supervisord is not None:
            supervisord_stop(supervisord)
        follower.ended.set()
        follower.print_new()
        REDIS_URL_FILE.unlink(missing_ok=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
