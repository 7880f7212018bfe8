"""script/server: set-up, then Valkey, web, worker, beat and Flower under supervisord until Ctrl-C."""

from __future__ import annotations

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

from console import fail, say, step
from project import PYTHON, VAR, lock_take, manage, program, setting
from services import pidfile_kill, port_is_free, port_pick, valkey_binary, valkey_config
from setup import setup
from supervision import (
    LOGS,
    NAMES,
    RUN,
    LogFollower,
    supervisord_config,
    supervisord_start,
    supervisord_stop,
)

STATE = RUN / "server.json"  # the running server: pid, ports; removed when it stops
REDIS_URL_FILE = RUN / "redis.url"  # what manage.py in another terminal reads
READY_SECONDS = 120


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
        with opener.open(request, timeout=5) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, b""
    except OSError:
        return 0, b""


def is_ready(*, port: int, flower_port: int, development: bool) -> bool:
    """Whether web and Flower answer and, in development, the worker has loaded every demo activity.

    In production 127.0.0.1 need not be among the allowed hosts, and http may lead to https: any answer
    that is no fault will do.
    """
    if http_get(f"http://127.0.0.1:{flower_port}/healthcheck")[0] != 200:
        return False
    status, body = http_get(f"http://127.0.0.1:{port}/market/consumer/activity/list")
    if not development:
        return 200 <= status < 500
    if status != 200:
        return False
    results = json.loads(body)["results"]
    on_offer = [result for result in results if result["status"] in ("ongoing", "upcoming", "paused")]
    return bool(results) and all(result["stock_left"] is not None for result in on_offer)


def running_report() -> bool:
    """Say where the server is that holds the lock; False while it has not got so far."""
    try:
        state = json.loads(STATE.read_text())
    except (FileNotFoundError, ValueError):
        return False
    say(f"script/server is already running here (pid {state['pid']}):")
    addresses_print(state["port"], state["flower_port"])
    return True


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


def ready_wait(supervisord: subprocess.Popen[bytes], *, port: int, flower_port: int, development: bool) -> None:
    """Wait until everything answers.

    :raises SystemExit: code 2, when it does not in time or supervisord ends.
    """
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready(port=port, flower_port=flower_port, development=development):
        if supervisord.poll() is not None:
            fail(f"supervisord ended with code {supervisord.returncode}; see {LOGS / 'supervisord.log'}.")
        if time.monotonic() > deadline:
            fail(f"not everything answers after {READY_SECONDS} s; see the lines above and {LOGS}.")
        time.sleep(0.3)


def servers_check(env: dict[str, str]) -> None:
    """Say what about Redis and the database is not fit for coupons.

    :raises SystemExit: code 2, in production.
    """
    checked = manage("check", "--deploy", "--tag", "servers", "--fail-level", "ERROR", env=env)
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
    lock = lock_take(RUN / "lock")
    if lock is None:
        if not running_report():
            say("script/server is being started or stopped here by another process.")
        return 0
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
        STATE.write_text(json.dumps({"pid": os.getpid(), "port": port, "flower_port": flower_port}))
        follower.start()
        if development and (seeded := manage("seed_demo", env=env)).returncode != 0:
            say(f"seed_demo: {(seeded.stderr or seeded.stdout).strip()}")
        ready_wait(supervisord, port=port, flower_port=flower_port, development=development)
        servers_check(env)
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
        if supervisord is not None:
            supervisord_stop(supervisord)
        follower.ended.set()
        follower.print_new()
        STATE.unlink(missing_ok=True)
        REDIS_URL_FILE.unlink(missing_ok=True)
        lock.close()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
