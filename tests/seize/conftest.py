"""Tests of scripts run on Valkey and on Redis 6.2, the oldest server they must run on."""

from collections.abc import Iterator

import pytest
import redis


@pytest.fixture(params=["valkey", "redis62"])
def server(request: pytest.FixtureRequest, settings) -> Iterator[redis.Redis]:
    """Point the product at one server after the other; a plain client of it."""
    running = request.getfixturevalue(request.param)
    settings.REDIS_URL = running.url
    client = redis.Redis.from_url(running.url, decode_responses=True)
    client.flushall()
    yield client
    client.close()
