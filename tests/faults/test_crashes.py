"""Processes die; nothing that was acknowledged is lost, nothing is doubled, and all goes on by itself."""

import os
import random
import signal
import time

import pytest
from django.core.management import call_command
from django.db import connection
from services import MariaDB, wait_until

from activities.models import Coupon
from seize import store
from seize.keys import shard_of
from sync.models import DeadLetter
from tests.conftest import Cluster
from tests.factories import offer, shards_declare_loaded
from tests.faults.conftest import Sale, agrees, rows_of

pytestmark = pytest.mark.faults


def test_r02_web_worker_and_beat_killed_at_random_points_lose_and_double_nothing(system):
    activity = offer(stock_total=500)
    system.start("web1", "web2", "worker1", "beat1")
    sale = Sale(system.web_ports(), activity, range(1, 701), threads=8, pause_s=0.01)
    dice = random.Random(2)
    for name in ("worker1", "web1", "beat1", "web2", "worker1", "web1"):
        sale.wait_for(min(490, len(sale.acked) + dice.randint(20, 60)))
        system.kill(name)
        time.sleep(dice.random() * 0.3)
        system.start(name)
    sale.join()
    began = time.monotonic()
    system.drained(activity)
    assert time.monotonic() - began < 20
    assert len(sale.acked) == 500
    assert rows_of(activity) == sale.acked
    assert DeadLetter.objects.count() == 0
    agrees(activity)


def test_r03_redis_killed_three_times_in_a_sale_loses_no_acknowledged_coupon(system):
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


def test_r06_database_down_during_a_sale_stops_neither_shoppers_nor_in_the_end_the_ledger(system, tmp_path):
    """A MariaDB of its own, killed by SIGKILL and started again on the same files."""
    database = MariaDB(tmp_path / "mariadb")
    database.start()
    connection.close()
    shared_port = connection.settings_dict["PORT"]
    connection.settings_dict["PORT"] = database.port
    try:
        with _server_connection(database.port) as raw:
            raw.query(f"CREATE DATABASE {connection.settings_dict['NAME']}")
        call_command("migrate", verbosity=0, interactive=False)
        call_command("schedule", verbosity=0)
        activity = offer(stock_total=300)
        system.start("web1", "worker1", "beat1")
        sale = Sale(system.web_ports(), activity, range(1, 401), threads=4, pause_s=0.05)
        sale.wait_for(50)
        # Beat and worker are at work: one that only starts now would die, and only a supervisor restarts it.
        wait_until(Coupon.objects.exists, seconds=30, what="the first row")
        connection.close()
        database.process.kill()
        database.process.wait()
        at_the_kill = len(sale.acked)
        sale.wait_for(250)  # seizing goes on
        time.sleep(3)
        database.start(keep=True)
        sale.join()
        system.drained(activity, seconds=60)
        assert at_the_kill < 250
        assert len(sale.acked) == 300
        assert sale.codes["SEIZED"] == 300
        assert rows_of(activity) == sale.acked
        assert DeadLetter.objects.count() == 0
        agrees(activity)
    finally:
        system.stop()
        connection.close()
        connection.settings_dict["PORT"] = shared_port
        database.stop()


def _server_connection(port: int):
    import contextlib

    import MySQLdb

    return contextlib.closing(MySQLdb.connect(host="127.0.0.1", port=port, user="root"))


def test_r11_forgotten_scripts_purged_broker_two_beats_and_a_stopped_worker_cost_nothing(system):
    activity = offer(stock_total=300)
    system.start("web1", "worker1", "worker2", "beat1", "beat2")
    sale = Sale(system.web_ports(), activity, range(1, 401), threads=8, pause_s=0.02)
    sale.wait_for(40)
    system.raw.script_flush()
    sale.wait_for(80)
    store_broker = system.valkey.url.removesuffix("/0") + "/1"
    import redis

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


def test_readyz_flips_and_recovers_when_redis_stops_and_starts(system):
    import urllib.error
    import urllib.request

    offer()
    system.start("web1", "worker1", "beat1")

    def status() -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{system.ports['web1']}/readyz", timeout=5) as response:
                return response.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    wait_until(lambda: status() == 200, seconds=20, what="ready")
    system.valkey.stop(kill=True)
    wait_until(lambda: status() == 503, seconds=2, what="not ready without Redis")
    system.valkey.start()
    wait_until(lambda: status() == 200, seconds=5, what="ready again")
    assert store.time_us() > 0
    os.kill(system.valkey.process.pid, signal.SIGSTOP)  # it hangs instead
    wait_until(lambda: status() == 503, seconds=2, what="not ready on a Redis that hangs")
    os.kill(system.valkey.process.pid, signal.SIGCONT)
    wait_until(lambda: status() == 200, seconds=5, what="ready once more")


def test_readyz_flips_and_recovers_when_the_database_hangs_stops_and_starts(system, tmp_path, client):
    """In this process, on a MariaDB of its own; the shards are loaded, so that only the database decides."""
    shards_declare_loaded()
    database = MariaDB(tmp_path / "mariadb")
    database.start()
    connection.close()
    shared_port = connection.settings_dict["PORT"]
    try:
        with _server_connection(database.port) as raw:
            raw.query(f"CREATE DATABASE {connection.settings_dict['NAME']}")
        connection.settings_dict["PORT"] = database.port
        call_command("migrate", verbosity=0, interactive=False)

        def status() -> int:
            return client.get("/readyz").status_code

        assert status() == 200
        os.kill(database.process.pid, signal.SIGSTOP)
        wait_until(lambda: status() == 503, seconds=2, what="not ready on a database that hangs")
        os.kill(database.process.pid, signal.SIGCONT)
        wait_until(lambda: status() == 200, seconds=5, what="ready again")
        connection.close()
        database.process.kill()
        database.process.wait()
        wait_until(lambda: status() == 503, seconds=2, what="not ready without the database")
        database.start(keep=True)
        wait_until(lambda: status() == 200, seconds=5, what="ready once more")
    finally:
        connection.close()
        connection.settings_dict["PORT"] = shared_port
        database.stop()
