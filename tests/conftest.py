"""Real servers for every test: a Valkey of its own per test process, the private MariaDB of script/test."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from django.conf import settings as django_settings
from rest_framework.test import APIClient
from services import Valkey

from couponsite.celery import app as celery_app
from seize.tokens import access_token_issue

if "TEST_FOLDER" not in os.environ:
    pytest.exit("The tests need private servers: run them by script/test, which passes its arguments on.", returncode=2)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skip is a failure: what was not run was not tested."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the harm that each control saw."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", []):
            if name == "harm":
                terminalreporter.write_line(f"harm seen {value}")


def _server(kind: str, worker_id: str) -> Valkey:
    folder = Path(os.environ["TEST_FOLDER"]) / f"{kind}-{worker_id}"
    shutil.rmtree(folder, ignore_errors=True)
    return Valkey(folder, binary=os.environ[f"TEST_{kind.upper()}_BINARY"])


@pytest.fixture(scope="session")
def valkey(worker_id: str) -> Iterator[Valkey]:
    """This process's Valkey."""
    server = _server("valkey", worker_id)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis62(worker_id: str) -> Iterator[Valkey]:
    """This process's Redis 6.2, the oldest server that the scripts must run on."""
    server = _server("redis", worker_id)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session", autouse=True)
def _point_at_valkey(valkey: Valkey) -> None:
    broker = valkey.url.removesuffix("/0") + "/1"
    django_settings.REDIS_URL = valkey.url
    django_settings.CELERY_BROKER_URL = broker
    celery_app.conf.broker_url = broker


@pytest.fixture(autouse=True)
def _empty_redis(raw: redis.Redis) -> None:
    raw.flushall()


@pytest.fixture
def raw(valkey: Valkey) -> Iterator[redis.Redis]:
    """A plain client beside the product's, to look and to break things."""
    client = redis.Redis.from_url(valkey.url, decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def broker(valkey: Valkey) -> Iterator[redis.Redis]:
    """A plain client of the broker's database."""
    client = redis.Redis.from_url(valkey.url.removesuffix("/0") + "/1", decode_responses=True)
    yield client
    client.close()


@pytest.fixture
def api() -> APIClient:
    """A client without a token."""
    return APIClient()


@pytest.fixture
def shopper_api():
    """A client per shopper: ``shopper_api(7)``."""

    def client(user_id: int) -> APIClient:
        made = APIClient()
        made.credentials(HTTP_AUTHORIZATION=f"Bearer {access_token_issue(user_id=user_id, lifetime_s=600)}")
        return made

    return client
