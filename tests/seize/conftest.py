"""Tests of scripts run on Valkey, on Redis 6.2, the oldest server they must run on, and on a cluster."""

from collections.abc import Iterator

import pytest
import redis


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
    client.close()
