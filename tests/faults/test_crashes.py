"""Processes die; nothing that was acknowledged is lost, nothing is doubled, and all goes on by itself."""

import json
import os
import random
import signal
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from django.db import OperationalError, connection, transaction
from services import PATIENCE_S, wait_until

from activities.models import Activity, Coupon
from centre.sessions import SESSION
from seize import store
from seize.keys import lease_key, shard_of
from seize.tokens import access_token_issue, token_issue
from sync import health
from sync.models import DeadLetter
from tests.conftest import Cluster
from tests.factories import offer, shards_declare_loaded
from tests.faults.conftest import Sale, agrees, rows_of, slow_disk, stand_still

pytestmark = pytest.mark.faults

PATIENT = {"DJANGO_SETTINGS_MODULE": "tests.faults.patient_settings"}
GONE = -2  # Redis' word for the time that is left to a key which is not there


def test_r02_web_worker_and_beat_killed_at_random_points_lose_and_double_nothing(system):
    activity = offer(stock_total=500)
    system.start("web1", "view1", "worker1", "beat1")
    sale = Sale(system.web_ports(), activity, range(1, 701), threads=8, pause_s=0.01)
    dice, raw = random.Random(2), system.raw
    for name in ("worker1", "web1", "beat1", "view1", "worker1", "web1"):
        sale.wait_for(min(490, len(sale.acked) + dice.randint(20, 60)))
        system.kill(name)
        leases = {key: raw.pttl(key) for key in raw.scan_iter("LEASE:*")}
        assert all(left == GONE or 0 <= left <= 10_000 for left in leases.values()), "then others go on"
        time.sleep(dice.random() * 0.3)
        system.start(name)
    sale.join()
    # What the dead had taken comes back after a minute and a half. The dispatcher's next second does without it.
    redis.Redis.from_url(system.env["CELERY_BROKER_URL"]).delete("unacked", "unacked_index")
    system.drained(activity)
    assert len(sale.acked) == 500
    assert rows_of(activity) == sale.acked
    assert DeadLetter.objects.count() == 0
    agrees(activity)


@pytest.mark.parametrize("fsync_us", [0, 5_000])
def test_r03_redis_killed_three_times_in_a_sale_loses_no_acknowledged_coupon(system, tmp_path, fsync_us):
    """Also beside a slow disk."""
    if fsync_us:
        system.valkey.stop()
        system.valkey.preload = slow_disk(tmp_path, slow_us=fsync_us)
        system.valkey.start()
    activity = offer(stock_total=400)
    system.start("web1", "worker1", "beat1")
    sale = Sale(system.web_ports(), activity, range(1, 601), threads=8, pause_s=0.01, stop_at=110)
    for number, stop_at in ((60, 200), (150, 300), (250, None)):
        sale.wait_for(number)
        system.valkey.stop(kill=True)
        sale.go_on(stop_at=stop_at)
        sale.wait_for_code("NOT_READY")
        system.valkey.start()
    sale.join()
    system.drained(activity)
    assert len(sale.acked) == 400
    assert rows_of(activity) == sale.acked
    agrees(activity)


def test_r06_database_down_during_a_sale_stops_neither_shoppers_nor_in_the_end_the_ledger(system, own_database):
    """Killed by SIGKILL and started again on the same files."""
    activity = offer(stock_total=300)
    system.start("web1", "worker1", "beat1")
    sale = Sale(system.web_ports(), activity, range(1, 401), threads=4, pause_s=0.05, stop_at=150)
    sale.wait_for(50)
    # Beat and worker are at work: one that only starts now would die, and only a supervisor restarts it.
    wait_until(Coupon.objects.exists, what="the first row")
    connection.close()
    own_database.stop(kill=True)
    at_the_kill = len(sale.acked)
    sale.go_on()
    sale.wait_for(250)  # seizing goes on
    wait_until(lambda: "Can't connect" in log_of(system, "worker1"), what="the worker to miss the database")
    own_database.start(keep=True)
    sale.join()
    system.drained(activity)
    assert at_the_kill < 250
    assert len(sale.acked) == 300
    assert sale.codes["SEIZED"] == 300
    assert rows_of(activity) == sale.acked
    assert DeadLetter.objects.count() == 0
    agrees(activity)


def log_of(system, name: str) -> str:
    return (system.folder / f"{name}.log").read_text(errors="replace")


def row_is_locked(activity) -> bool:
    """Whether another session holds the lock on the activity's row."""
    try:
        with transaction.atomic():
            Activity.objects.select_for_update(nowait=True).get(pk=activity.pk)
    except OperationalError:
        return True
    return False


def test_r11_worker_stopped_while_it_holds_a_queue_and_the_row_delays_and_doubles_nothing(system):
    """SIGSTOP in the worst place: with the queue's lease, and the lock on the activity's row."""
    # The drain still waits for the row when it is stopped, and then the server ends its silent session before long.
    system.extra_env = {"DATABASE_LOCK_WAIT_S": "30", "DATABASE_WAIT_TIMEOUT_S": "5"}
    activity = offer(stock_total=400)
    system.start("web1", "worker1", "beat1")
    sale = Sale(system.web_ports(), activity, range(1, 501), threads=4, pause_s=0.05, stop_at=100)
    wait_until(Coupon.objects.exists, what="the first row")
    lease, raw = lease_key(f"drain:{shard_of(activity.pk)}"), system.raw
    with transaction.atomic():
        Activity.objects.select_for_update().get(pk=activity.pk)
        sale.go_on()
        wait_until(lambda: sessions_waiting() and raw.exists(lease), what="a drain to wait for the row")
        system.signal("worker1", signal.SIGSTOP)
        stopped = sessions_waiting()
        assert stopped
    # The server gives the lock to a session of the worker that stands still.
    assert row_is_locked(activity) or not stopped <= sessions(), "or has ended it already"
    system.start("worker2")
    sale.join()
    system.drained(activity)
    system.signal("worker1", signal.SIGCONT)
    time.sleep(1)
    assert len(sale.acked) == 400
    assert rows_of(activity) == sale.acked
    assert Coupon.objects.count() == 400
    assert DeadLetter.objects.count() == 0
    agrees(activity)


def sessions_waiting() -> set[int]:
    """Other sessions whose locking read of this database has been running for 50 ms: they wait.

    InnoDB's own table of waiting transactions is not refreshed for whoever asks more often than ten times a second.
    """
    return sessions("AND command = 'Query' AND info LIKE %s AND time_ms > 50", "%FOR UPDATE%")


def sessions(which: str = "", *parameters: str) -> set[int]:
    """Numbers of the other sessions on this database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID() " + which,
            parameters,
        )
        return {number for (number,) in cursor.fetchall()}


def test_r11_forgotten_scripts_purged_broker_two_beats_and_a_stopped_worker_cost_nothing(system):
    system.extra_env = {"DATABASE_WAIT_TIMEOUT_S": "5"}
    activity = offer(stock_total=300)
    system.start("web1", "worker1", "worker2", "beat1", "beat2")
    sale = Sale(system.web_ports(), activity, range(1, 401), threads=8, pause_s=0.02)
    sale.wait_for(40)
    system.raw.script_flush()
    sale.wait_for(80)
    redis.Redis.from_url(system.env["CELERY_BROKER_URL"]).flushdb()
    sale.wait_for(120)
    system.signal("worker1", signal.SIGSTOP)  # perhaps with a row locked and a queue's lease
    sale.join()
    system.drained(activity)
    system.signal("worker1", signal.SIGCONT)
    time.sleep(1)
    assert len(sale.acked) == 300
    assert rows_of(activity) == sale.acked
    assert Coupon.objects.count() == 300
    assert DeadLetter.objects.count() == 0
    agrees(activity)


def test_r10_one_shopper_wins_two_activities_of_one_shard_over_http(system):
    first, second = offer(id=31), offer(id=41)
    assert shard_of(first.pk) == shard_of(second.pk)
    system.start("web1", "worker1", "beat1")
    for activity in (first, second):
        sale = Sale(system.web_ports(), activity, range(7, 8), threads=1)
        sale.join()
        assert sale.acked == {(activity.pk, 7, 1)}
    system.drained(first)
    assert rows_of(first) | rows_of(second) == {(31, 7, 1), (41, 7, 1)}


def test_r12_sale_on_three_masters_one_of_which_is_killed_loses_and_doubles_nothing(system, settings):
    cluster = Cluster(system.folder / "cluster", system.valkey.binary, node_timeout_ms=2000)
    cluster.start()
    system.redis_url = settings.REDIS_URL = cluster.url
    try:
        activities = [offer(id=activity_id, stock_total=100) for activity_id in (11, 12, 13)]
        system.start("web1", "worker1", "beat1")
        sales = [Sale(system.web_ports(), activity, range(1, 151), threads=3, pause_s=0.02) for activity in activities]
        sales[0].wait_for(30)
        for node in cluster.nodes:
            node.stop(kill=True)
            time.sleep(0.3)
            node.start()
        for sale, activity in zip(sales, activities, strict=True):
            sale.join()
            system.drained(activity)
            assert len(sale.acked) == 100
            assert rows_of(activity) == sale.acked
            agrees(activity)
    finally:
        for name in list(system.processes):
            system.kill(name)
        cluster.stop()


def readyz(system, name: str = "web1") -> int:
    """Its status on a connection of its own; 0 when nobody answers."""
    return readyz_read(system, name)[0]


def readyz_read(system, name: str = "web1") -> tuple[int, dict[str, str]]:
    """The same with what is wrong with each part."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{system.ports[name]}/readyz", timeout=PATIENCE_S) as response:
            return response.status, {}
    except urllib.error.HTTPError as error:
        with error:
            return error.code, {check["name"]: check["detail"] for check in json.load(error)["checks"]}
    except OSError:
        return 0, {}


def test_readyz_flips_and_recovers_when_redis_stops_and_starts(system):
    """The first probe after the fault says so, and waits for a server that hangs once, not for each of its parts."""
    system.extra_env = {"REDIS_TIMEOUT_S": "1", "REDIS_CONNECT_TIMEOUT_S": "1"}
    offer()
    system.start("web1", "worker1", "beat1")
    wait_until(lambda: readyz(system) == 200, what="ready")
    system.valkey.stop(kill=True)
    assert readyz(system) == 503
    system.valkey.start()
    wait_until(lambda: readyz(system) == 200, what="ready again")
    assert store.time_us() > 0
    stand_still(system.valkey.process.pid)  # it hangs instead
    status, missing = readyz_read(system)
    assert (status, missing["shards"]) == (503, "unknown without Redis")
    os.kill(system.valkey.process.pid, signal.SIGCONT)
    wait_until(lambda: readyz(system) == 200, what="ready once more")


@pytest.mark.parametrize("name", ["web1", "view1"])
def test_readyz_says_503_on_new_connections_for_the_grace_after_sigterm_while_seizing_goes_on(system, name):
    system.extra_env = PATIENT
    activity = offer(stock_total=1000)
    system.start(name, "worker1", "beat1")
    wait_until(lambda: readyz(system, name) == 200, what="ready")
    os.kill(system.processes[name].pid, signal.SIGTERM)
    wait_until(lambda: readyz(system, name) == 503, what="not ready while stopping")
    sale = Sale([system.ports[name]], activity, range(1, 11), threads=1)
    sale.join()
    assert len(sale.acked) == 10
    assert set(sale.codes) == {"SEIZED"}
    assert readyz(system, name) == 503


@pytest.mark.parametrize("name", ["web1", "view1"])
def test_web_server_ends_by_itself_when_the_grace_after_sigterm_is_over(system, name):
    system.extra_env = {"STOP_GRACE_S": "0.5"}
    offer()
    system.start(name)
    wait_until(lambda: readyz(system, name) == 503, what="an answer: no worker has loaded the shards")
    process = system.let_go(name)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE_S) in (0, -signal.SIGTERM)
    assert readyz(system, name) == 0


def test_readyz_flips_and_recovers_when_the_database_hangs_stops_and_starts(own_database, client):
    """In this process; the shards are loaded, so that only the database decides. The first probe says so."""
    shards_declare_loaded()

    def status() -> int:
        return client.get("/readyz").status_code

    wait_until(lambda: status() == 200, what="ready")
    stand_still(own_database.process.pid)
    began = time.monotonic()
    assert status() == 503
    assert health.PING_TIMEOUT_S == 1  # so long it waits for a database that hangs
    assert time.monotonic() - began < PATIENCE_S / 2  # and not for as long as this test's own connection would
    os.kill(own_database.process.pid, signal.SIGCONT)
    wait_until(lambda: status() == 200, what="ready again")
    connection.close()
    own_database.stop(kill=True)
    assert status() == 503
    own_database.start(keep=True)
    wait_until(lambda: status() == 200, what="ready once more")


def test_r06_pages_and_pressing_stay_quick_while_the_database_hangs(system, own_database, settings):
    """Every thread that may ask the ledger waits for it, and as many who ask again and again; nothing else does."""
    system.extra_env = PATIENT
    activity = offer(stock_total=10)
    system.start("web1")
    [port] = system.web_ports()
    token = access_token_issue(user_id=7, lifetime_s=86_400)
    session = token_issue(kind=SESSION, user_id=7, lifetime_s=86_400)

    def ask(path: str, *, body: bytes | None = None, **headers: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    def mine() -> int:
        return ask("/market/consumer/coupon/my", Authorization=f"Bearer {token}")

    with ThreadPoolExecutor(24) as shoppers, connection.cursor() as cursor:
        assert {answer.result() for answer in [shoppers.submit(mine) for _ in range(24)]} == {200}
        # While the table is locked, the server says who waits for it.
        cursor.execute(f"LOCK TABLES {Coupon._meta.db_table} WRITE")
        try:
            waiting = [shoppers.submit(mine) for _ in range(24)]
            wait_until(
                lambda: len(sessions("AND state LIKE %s", "Waiting for table%")) == settings.WEB_THREADS,
                what="every thread to wait for the ledger",
            )
            stand_still(own_database.process.pid)
            for _round in range(3):
                assert ask("/", Cookie=f"shopper={session}") == 200
                assert ask(f"/activity/{activity.pk}") == 200
                assert ask("/static/favicon.svg") == 200
                assert ask("/session/token", body=b"", Cookie=f"shopper={session}") == 200
                wish = f'{{"id": "{activity.pk}", "seq": 1}}'.encode()
                wished = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                assert ask("/market/consumer/coupon/seize", body=wish, **wished) in (200, 201)
            assert not any(answer.done() for answer in waiting), "the database hangs"
        finally:
            os.kill(own_database.process.pid, signal.SIGCONT)
            cursor.execute("UNLOCK TABLES")
        assert {answer.result() for answer in waiting} == {200}
