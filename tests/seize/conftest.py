"""Tests of scripts run on Valkey, on Redis 6.2, the oldest server they must run on, and on a cluster."""

from collections.abc import Iterator

import pytest
import redis
from services import Valkey


@pytest.fixture(params=["valkey", "redis62", "cluster"])
def server(request: pytest.FixtureRequest, settings) -> Iterator[redis.Redis]:
    """Point the product at one server after the other; a plain client of it."""
    running = request.getfixturevalue(request.param)
    settings.REDIS_URL = running.url
    if request.param == "cluster":
        client = running.client()
    else:
        client = redis.Redis.from_url(running.url, decode_responses=True)
    client.flushall()
    yield client
    client.flushall()  # tests that know nothing of it may point at it, too
    client.close()


@pytest.fixture
def own_valkey(tmp_path, valkey, settings) -> Iterator[Valkey]:
    """A Valkey that a test may kill."""
    server = Valkey(tmp_path, binary=valkey.binary)
    server.start()
    settings.REDIS_URL = server.url
    yield server
    server.stop(kill=True)
