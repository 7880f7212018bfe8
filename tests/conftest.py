"""Real servers for every test: a Valkey of its own per test process, the private MariaDB of script/test."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from django.conf import settings as django_settings
from django.core.cache import cache
from django.core.signals import setting_changed
from django.db import connections
from django.utils import translation
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from redis.cluster import ClusterNode, RedisCluster
from rest_framework.test import APIClient
from services import PATIENCE_S, Valkey, port_pick, wait_until

from couponsite.celery import app as celery_app
from seize import counting
from seize.limits import limits_forget
from seize.tokens import access_token_issue
from sync import rebuild

# A slow machine draws and checks slowly, which says nothing of the product.
hypothesis_settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("patient")

if "TEST_FOLDER" not in os.environ:
    pytest.exit("The tests need private servers: run them by script/test, which passes its arguments on.", returncode=2)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which kind of server the product's Redis is."""
    parser.addoption("--server", choices=["valkey", "redis62", "cluster"], default="valkey")
    parser.addoption("--soak", type=int, default=0, metavar="MINUTES", help="only the soak tests, for so long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soak tests run when they are asked for, and then alone; those of the big ledger by ``-m big``."""
    wanted = bool(config.getoption("soak"))
    chosen = [item for item in items if (item.get_closest_marker("soak") is not None) == wanted]
    if "big" not in config.getoption("markexpr"):
        chosen = [item for item in chosen if item.get_closest_marker("big") is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skip is a failure: what was not run was not tested."""
    counting.counter.forget()  # its servers are gone
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the harm that each control saw, and what a soak went through."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", []):
            if name in ("harm", "soak"):
                terminalreporter.write_line(f"{'harm seen' if name == 'harm' else 'soaked:'} {value}")


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


class Cluster:
    """Three masters on loopback; the client's words go to the node that the tests' shard 1 lies on."""

    def __init__(self, folder: Path, binary: str, *, node_timeout_ms: int = 1000 * PATIENCE_S) -> None:
        """:param node_timeout_ms: after so long a node that does not answer its neighbours is taken for dead."""
        shutil.rmtree(folder, ignore_errors=True)
        self.node_timeout_ms = node_timeout_ms
        self.nodes = [
            Valkey(
                folder / str(number),
                binary=binary,
                extra=("cluster-enabled yes", f"cluster-port {port_pick()}", "cluster-node-timeout 2000"),
            )
            for number in range(3)
        ]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def client(self, *, decode_responses: bool = True) -> "ClusterClient":
        return ClusterClient(
            startup_nodes=[ClusterNode("127.0.0.1", node.port) for node in self.nodes],
            decode_responses=decode_responses,
        )

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        clients = [redis.Redis(port=node.port, decode_responses=True) for node in self.nodes]
        for number, client in enumerate(clients):
            first, last = 5462 * number, min(5462 * number + 5461, 16383)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            for other in self.nodes:
                bus = int(next(line for line in other.extra if "cluster-port" in line).split()[1])
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, bus)
        self._wait(clients)  # nodes with little patience find each other sooner
        for client in clients:
            client.config_set("cluster-node-timeout", self.node_timeout_ms)
        self._wait(clients)
        for client in clients:
            client.close()

    @staticmethod
    def _wait(clients: list[redis.Redis]) -> None:
        """Until every node says that it is well with the cluster."""
        for client in clients:
            wait_until(lambda client=client: client.cluster("INFO")["cluster_state"] == "ok", what="the cluster")

    def stop(self) -> None:
        for node in self.nodes:
            node.stop(kill=True)


class ClusterClient(RedisCluster):
    """A cluster's client that answers what tests ask of one server for the node of shard 1."""

    def info(self, *sections: str):
        return super().info(*sections, target_nodes=self.get_node_from_key("{1}"))

    def config_resetstat(self):
        return super().config_resetstat(target_nodes=RedisCluster.PRIMARIES)

    def config_set(self, name: str, value: str):
        return super().config_set(name, value, target_nodes=RedisCluster.PRIMARIES)


@pytest.fixture(scope="session")
def cluster(worker_id: str) -> Iterator[Cluster]:
    """This process's cluster of three masters."""
    running = Cluster(Path(os.environ["TEST_FOLDER"]) / f"cluster-{worker_id}", os.environ["TEST_VALKEY_BINARY"])
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session", autouse=True)
def _point_at_valkey(valkey: Valkey, request: pytest.FixtureRequest) -> None:
    broker = valkey.url.removesuffix("/0") + "/1"
    django_settings.REDIS_URL = request.getfixturevalue(request.config.getoption("server")).url
    # A machine that is slow is no fault of Redis. Tests of what happens when it hangs set what they need.
    django_settings.REDIS_TIMEOUT_S = django_settings.REDIS_CONNECT_TIMEOUT_S = float(PATIENCE_S)
    rebuild.LEASE_MS = 1000 * PATIENCE_S  # nobody takes over from a rebuild that only stands still
    django_settings.CELERY_BROKER_URL = broker
    celery_app.conf.broker_url = broker
    celery_app.conf.broker_transport_options |= dict.fromkeys(("socket_timeout", "socket_connect_timeout"), PATIENCE_S)
    default = django_settings.CACHES["default"]
    options = default["OPTIONS"] | dict.fromkeys(("SOCKET_CONNECT_TIMEOUT", "SOCKET_TIMEOUT"), PATIENCE_S)
    cached_at = valkey.url.removesuffix("/0") + "/2"
    django_settings.CACHES = {"default": {**default, "LOCATION": cached_at, "OPTIONS": options}}
    setting_changed.send(sender=None, setting="CACHES", value=django_settings.CACHES, enter=True)
    django_settings.LIST_CACHE_S = 0.0  # tests change and look at once; those of the cache set it


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """A test's session may lie idle while a server or a browser is at work, and wait for a row as long as it takes."""
    options = connections["default"].settings_dict["OPTIONS"]
    options |= dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), PATIENCE_S)
    # Assignments hold from left to right: these win over the product's own.
    options["init_command"] += f", wait_timeout=86400, innodb_lock_wait_timeout={PATIENCE_S}"


@pytest.fixture(autouse=True)
def _own_language() -> None:
    """A request leaves its language to its thread, which here is that of the next test, too."""
    translation.deactivate()


@pytest.fixture(autouse=True)
def _empty_redis(raw: redis.Redis) -> None:
    counting.counter.forget()
    counting.counter.every_s = 0  # tests write counts when they want to look
    limits_forget()
    raw.flushall()
    cache.clear()  # which lies on another server than the one for seizing when that is a cluster


@pytest.fixture
def raw(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A plain client beside the product's, to look and to break things."""
    kind = request.config.getoption("server")
    running = request.getfixturevalue(kind)
    client = running.client() if kind == "cluster" else redis.Redis.from_url(running.url, decode_responses=True)
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
        made.credentials(HTTP_AUTHORIZATION=f"Bearer {access_token_issue(user_id=user_id, lifetime_s=86_400)}")
        return made

    return client


@pytest.fixture(scope="module")
def fronts():
    """A server for each way in which a request may be answered, by name: view, asgi, protocol."""
    from couponsite.asgi import front
    from tests.seize.servers import FRONTS, Counted, served

    with ExitStack() as stack:
        servers = {}
        for kind in FRONTS:
            made = front()
            shortcuts = [] if kind == "view" else made.shortcuts
            servers[kind] = stack.enter_context(served(Counted(shortcuts, made.django), kind=kind))
        yield servers
