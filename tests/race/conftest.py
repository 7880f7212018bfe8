"""A crowd, and web servers in processes of their own that it presses against."""

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import connection
from services import PATIENCE_S, port_answers, port_pick, wait_until

BIN = Path(sys.executable).parent


def crowd(count: int, press: Callable[[int], object]) -> list[object]:
    """Let ``count`` threads press at the same instant, thread n as ``press(n)``, n from 1; what each got."""
    barrier = threading.Barrier(count)
    results: list[object] = [None] * count
    faults: list[BaseException] = []

    def run(number: int) -> None:
        try:
            barrier.wait(PATIENCE_S)
            results[number - 1] = press(number)
        except BaseException as fault:  # noqa: BLE001 - raised again below, in the test's own thread
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(1, count + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    if faults:
        raise faults[0]
    return results


def harm_seen(harm: Callable[[], int], *, over: int) -> int:
    """The harm of the first of some crowds that exceeds ``over``: that each crowd does harm is no promise."""
    seen: list[int] = []
    wait_until(lambda: seen.append(harm()) or seen[-1] > over, what=f"harm over {over}")
    return seen[-1]


def press_http(port: int, token: str, body: dict[str, object]) -> tuple[int, dict[str, object]]:
    """One real request on a connection of its own; status and body."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/market/consumer/coupon/seize",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def outcomes(results: list[object]) -> Counter:
    """How many got which (status, code)."""
    return Counter((status, body["code"]) for status, body in results)


@pytest.fixture(params=["gate", "view"])
def web_server(tmp_path, request) -> Iterator[Callable[..., int]]:
    """Start web servers of two processes on the test's database and Redis; ``web_server()`` is a port.

    Once with the gate in front, once the plain view on gunicorn.
    """
    running: list[subprocess.Popen[bytes]] = []

    def start(*command_prefix: str) -> int:
        port = port_pick()
        database = connection.settings_dict
        env = {
            **os.environ,
            "DATABASE_URL": f"mysql://root@127.0.0.1:{database['PORT']}/{database['NAME']}",
            "REDIS_URL": django_settings.REDIS_URL,
            "CELERY_BROKER_URL": django_settings.CELERY_BROKER_URL,
            "ENV_FILE": os.devnull,
            # On a busy machine a crowd waits, and nobody in it is told that Redis is at fault.
            **dict.fromkeys(("REDIS_TIMEOUT_S", "REDIS_CONNECT_TIMEOUT_S"), str(PATIENCE_S)),
        }
        commands = {
            "gate": [sys.executable, "-m", "couponsite.serve", "--port", str(port), "--workers", "2"],
            "view": [str(BIN / "gunicorn"), "couponsite.wsgi", "--bind", f"127.0.0.1:{port}",
                     "--worker-class", "gthread", "--threads", "8", "--workers", "2", "--backlog", "1024",
                     "--timeout", str(PATIENCE_S), "--no-control-socket", "--log-level", "warning"],
        }  # fmt: skip
        command = [*command_prefix, *commands[request.param]]
        log_path = tmp_path / f"web-{port}.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        running.append(process)
        wait_until(lambda: port_answers(port) or process.poll() is not None, what="the web server")
        assert process.poll() is None, log_path.read_text()
        return port

    yield start
    for process in running:
        process.terminate()
    for process in running:
        process.wait(PATIENCE_S)
