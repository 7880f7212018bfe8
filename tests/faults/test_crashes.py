"""Processes die; nothing that was acknowledged is lost, nothing is doubled, and all goes on by itself."""

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
from services import wait_until

from activities.models import Activity, Coupon
from centre.sessions import SESSION
from seize import store
from seize.keys import lease_key, shard_of
from seize.tokens import access_token_issue, token_issue
from sync.models import DeadLetter
from tests.conftest import Cluster
from tests.factories import offer, shards_declare_loaded
from tests.faults.conftest import Sale, agrees, rows_of, slow_disk

pytestmark = pytest.mark.faults


def test_r02_web_worker_and_beat_killed_at_random_points_lose_and_double_nothing(system):
    activity = offer(stock_total=500)
    system.start("web1", "view1", "worker1", "beat1")
    sale = Sale(system.web_ports(), activity, range(1, 701), threads=8, pause_s=0.01)
    dice = random.Random(2)
    for name in ("worker1", "web1", "beat1", "view1", "worker1", "web1"):
        sale.wait_for(min(490, len(sale.acked) + dice.randint(20, 60)))
        system.kill(name)
        time.sleep(dice.random() * 0.3)
        system.start(name)
    sale.join()
    began = time.monotonic()
    system.drained(activity)
    assert time.monotonic() - began < 10
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
    sale = Sale(system.web_ports(), activity, range(1, 601), threads=8, pause_s=0.01)
    for number in (60, 150, 250):
        sale.wait_for(number)
        system.valkey.stop(kill=True)
        time.sleep(0.2)
        system.valkey.start()
    sale.join()
    system.drained(activity)
    assert sale.codes["NOT_READY"] > 0
    assert len(sale.acked) == 400
    assert rows_of(activity) == sale.acked
    agrees(activity)


def test_r06_database_down_during_a_sale_stops_neither_shoppers_nor_in_the_end_the_ledger(system, own_database):
    """Killed by SIGKILL and started again on the same files."""
    activity = offer(stock_total=300)
    system.start("web1", "worker1", "beat1")
    sale = Sale(system.web_ports(), activity, range(1, 401), threads=4, pause_s=0.05)
    sale.wait_for(50)
    # Beat and worker are at work: one that only starts now would die, and only a supervisor restarts it.
    wait_until(Coupon.objects.exists, seconds=30, what="the first row")
    connection.close()
    own_database.stop(kill=True)
    at_the_kill = len(sale.acked)
    sale.wait_for(250)  # seizing goes on
    time.sleep(3)
    own_database.start(keep=True)
    sale.join()
    system.drained(activity, seconds=60)
    assert at_the_kill < 250
    assert len(sale.acked) == 300
    assert sale.codes["SEIZED"] == 300
    assert rows_of(activity) == sale.acked
    assert DeadLetter.objects.count() == 0
    agrees(activity)


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
    activity = offer(stock_total=400)
    system.start("web1", "worker1", "beat1")
    sale = Sale(system.web_ports(), activity, range(1, 501), threads=4, pause_s=0.05)
    wait_until(Coupon.objects.exists, seconds=30, what="the first row")
    lease = lease_key(f"drain:{shard_of(activity.pk)}")
    with transaction.atomic():
        Activity.objects.select_for_update().get(pk=activity.pk)
        wait_until(lambda: statements_waiting() > 0, seconds=10, what="the drain to wait for the row")
        assert system.raw.exists(lease)
        system.signal("worker1", signal.SIGSTOP)
    # The server gives the lock to the session of the worker that stands still.
    assert row_is_locked(activity)
    system.start("worker2")
    sale.join()
    system.drained(activity, seconds=40)
    system.signal("worker1", signal.SIGCONT)
    time.sleep(1)
    assert len(sale.acked) == 400
    assert rows_of(activity) == sale.acked
    assert Coupon.objects.count() == 400
    assert DeadLetter.objects.count() == 0
    agrees(activity)


def statements_waiting() -> int:
    """Other sessions' locking reads of this database that have been running for 50 ms: they wait.

    InnoDB's own table of waiting transactions is not refreshed for whoever asks more often than ten times a second.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Query' AND db = DATABASE() "
            "AND id <> CONNECTION_ID() AND info LIKE %s AND time_ms > 50",
            ["%FOR UPDATE%"],
        )
        return cursor.fetchone()[0]


def test_r11_forgotten_scripts_purged_broker_two_beats_and_a_stopped_worker_cost_nothing(system):
    activity = offer(stock_total=300)
    system.start("web1", "worker1", "worker2", "beat1", "beat2")
    sale = Sale(system.web_ports(), activity, range(1, 401), threads=8, pause_s=0.02)
    sale.wait_for(40)
    system.raw.script_flush()
    sale.wait_for(80)
    store_broker = system.valkey.url.removesuffix("/0") + "/1"
    redis.Redis.from_url(store_broker).flushdb()
    sale.wait_for(120)
    system.signal("worker1", signal.SIGSTOP)  # perhaps with a row locked and a queue's lease
    sale.join()
    system.drained(activity, seconds=40)
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
    cluster = Cluster(system.folder / "cluster", system.valkey.binary)
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
            system.drained(activity, seconds=60)
            assert len(sale.acked) == 100
            assert rows_of(activity) == sale.acked
            agrees(activity)
    finally:
        for name in list(system.processes):
            system.kill(name)
        cluster.stop()


def readyz(system, name: str = "web1") -> int:
    """Its status on a connection of its own; 0 when nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{system.ports[name]}/readyz", timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_readyz_flips_and_recovers_when_redis_stops_and_starts(system):
    offer()
    system.start("web1", "worker1", "beat1")
    wait_until(lambda: readyz(system) == 200, seconds=20, what="ready")
    system.valkey.stop(kill=True)
    wait_until(lambda: readyz(system) == 503, seconds=2, what="not ready without Redis")
    system.valkey.start()
    wait_until(lambda: readyz(system) == 200, seconds=5, what="ready again")
    assert store.time_us() > 0
    os.kill(system.valkey.process.pid, signal.SIGSTOP)  # it hangs instead
    wait_until(lambda: readyz(system) == 503, seconds=2, what="not ready on a Redis that hangs")
    os.kill(system.valkey.process.pid, signal.SIGCONT)
    wait_until(lambda: readyz(system) == 200, seconds=5, what="ready once more")


@pytest.mark.parametrize("name", ["web1", "view1"])
def test_readyz_says_503_on_new_connections_for_the_grace_after_sigterm_while_seizing_goes_on(system, name):
    system.extra_env = {"STOP_GRACE_S": "3"}
    activity = offer(stock_total=1000)
    system.start(name, "worker1", "beat1")
    wait_until(lambda: readyz(system, name) == 200, seconds=20, what="ready")
    process = system.processes.pop(name)  # so that nobody restarts it
    sale = Sale([system.ports[name]], activity, range(1, 11), threads=1)
    os.kill(process.pid, signal.SIGTERM)
    wait_until(lambda: readyz(system, name) == 503, seconds=2, what="not ready while stopping")
    sale.join()
    assert len(sale.acked) == 10
    assert set(sale.codes) == {"SEIZED"}
    assert process.wait(15) in (0, -signal.SIGTERM)
    assert readyz(system, name) == 0


def test_readyz_flips_and_recovers_when_the_database_hangs_stops_and_starts(own_database, client):
    """In this process; the shards are loaded, so that only the database decides."""
    shards_declare_loaded()

    def status() -> int:
        return client.get("/readyz").status_code

    assert status() == 200
    os.kill(own_database.process.pid, signal.SIGSTOP)
    wait_until(lambda: status() == 503, seconds=2, what="not ready on a database that hangs")
    os.kill(own_database.process.pid, signal.SIGCONT)
    wait_until(lambda: status() == 200, seconds=5, what="ready again")
    connection.close()
    own_database.stop(kill=True)
    wait_until(lambda: status() == 503, seconds=2, what="not ready without the database")
    own_database.start(keep=True)
    wait_until(lambda: status() == 200, seconds=5, what="ready once more")


def test_r06_pages_and_pressing_stay_quick_while_the_database_hangs(system, own_database):
    """Every thread that may ask the ledger waits for it, and as many who ask again and again; nothing else does."""
    activity = offer(stock_total=10)
    system.start("web1")
    [port] = system.web_ports()
    token = access_token_issue(user_id=7, lifetime_s=600)
    session = token_issue(kind=SESSION, user_id=7, lifetime_s=600)

    def ask(path: str, *, body: bytes | None = None, timeout: float = 60, **headers: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    def mine() -> int:
        return ask("/market/consumer/coupon/my", Authorization=f"Bearer {token}")

    with ThreadPoolExecutor(24) as shoppers:
        assert {answer.result() for answer in [shoppers.submit(mine) for _ in range(24)]} == {200}
        os.kill(own_database.process.pid, signal.SIGSTOP)
        try:
            waiting = [shoppers.submit(mine) for _ in range(24)]
            time.sleep(1)
            for _round in range(3):
                assert ask("/", timeout=2, Cookie=f"shopper={session}") == 200
                assert ask(f"/activity/{activity.pk}", timeout=2) == 200
                assert ask("/static/favicon.svg", timeout=2) == 200
                assert ask("/session/token", body=b"", timeout=2, Cookie=f"shopper={session}") == 200
                wish = f'{{"id": "{activity.pk}", "seq": 1}}'.encode()
                wished = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                assert ask("/market/consumer/coupon/seize", body=wish, timeout=2, **wished) in (200, 201)
            assert not any(answer.done() for answer in waiting), "the database hangs"
        finally:
            os.kill(own_database.process.pid, signal.SIGCONT)
        assert {answer.result() for answer in waiting} == {200}
