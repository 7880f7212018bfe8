"""``script/test --soak MINUTES``: sale after sale under faults that dice choose, until the time is over."""

import os
import random
import signal
import time
from collections import Counter

import pytest
import redis
from django.db import connection

from seize.keys import queue_key, shard_of
from sync.models import DeadLetter
from tests.factories import offer
from tests.faults.conftest import Claim, Sale, agrees, rows_of

pytestmark = pytest.mark.soak

STOCK = 600
WORKERS = ("worker1", "worker2")


class Faults:
    """What may befall a running system; each is over, and healed, when its method returns."""

    def __init__(self, system, database, dice: random.Random) -> None:
        self.system, self.database, self.dice = system, database, dice
        self.lost: set[Claim] = set()
        self.seen: Counter[str] = Counter()

    def one(self, sale: Sale) -> None:
        """Any of them, at random; the long outage of the database one time in forty."""
        name = self.dice.choice(
            ["kill", "kill", "redis_killed", "redis_hangs", "worker_stopped", "scripts", "broker", "flushall"]
        )
        if self.dice.random() < 0.025:
            name = "database_down"
        self.seen[name] += 1
        getattr(self, name)(sale)

    def kill(self, _sale: Sale) -> None:
        name = self.dice.choice([*WORKERS, "web1", "view1", "beat1", "beat2"])
        self.system.kill(name)
        time.sleep(self.dice.random())
        self.system.start(name)

    def redis_killed(self, _sale: Sale) -> None:
        self.system.valkey.stop(kill=True)
        time.sleep(self.dice.random())
        self.system.valkey.start()

    def redis_hangs(self, _sale: Sale) -> None:
        pid = self.system.valkey.process.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(3 * self.dice.random())
        os.kill(pid, signal.SIGCONT)

    def worker_stopped(self, _sale: Sale) -> None:
        name = self.dice.choice(WORKERS)
        process = self.system.processes[name]
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(8 * self.dice.random())
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGCONT)

    def scripts(self, _sale: Sale) -> None:
        self.system.raw.script_flush()

    def broker(self, _sale: Sale) -> None:
        redis.Redis.from_url(self.system.valkey.url.removesuffix("/0") + "/1").flushdb()

    def flushall(self, sale: Sale) -> None:
        key = queue_key(shard_of(sale.activity.pk))
        undrained, _flushed = self.system.raw.pipeline().hgetall(key).flushall().execute()
        for field in undrained:
            activity_id, user_id, seq = field.split(":")
            self.lost.add((int(activity_id), int(user_id), int(seq)))

    def database_down(self, _sale: Sale) -> None:
        connection.close()
        self.database.stop(kill=True)
        time.sleep(60)
        self.database.start(keep=True)


def test_soak_sales_under_random_faults_keep_every_promise(system, own_database, minutes, record_property):
    """After each sale: rows = acknowledged without exactly what an emptied Redis held undrained, and no dead letter."""
    seed = random.randrange(1_000_000)
    dice = random.Random(seed)
    # Redis and a worker that hang are given up as soon as in production.
    system.extra_env = {"REDIS_TIMEOUT_S": "1", "REDIS_CONNECT_TIMEOUT_S": "1", "DATABASE_WAIT_TIMEOUT_S": "5"}
    system.start("web1", "view1", *WORKERS, "beat1", "beat2")
    deadline = time.monotonic() + 60 * minutes
    seen: Counter[str] = Counter()
    sales = sold = lost = 0
    while time.monotonic() < deadline:
        activity = offer(stock_total=STOCK)
        faults = Faults(system, own_database, dice)
        sale = Sale(system.web_ports(), activity, range(1, 3 * STOCK), threads=8, pause_s=0.05)
        while sale.running and time.monotonic() < deadline + 120:
            time.sleep(2 * dice.random())
            faults.one(sale)
        sale.join()
        system.drained(activity)
        promised = sale.acked - faults.lost
        told = f"seed {seed}, sale {sales}: {dict(faults.seen)}, {dict(sale.codes)}, lost {len(faults.lost)}"
        # Whoever an emptied Redis forgot before the answer arrived asks again and may win anew.
        assert promised <= rows_of(activity) <= sale.acked, told
        assert len(rows_of(activity)) == STOCK, told
        assert DeadLetter.objects.count() == 0, told
        agrees(activity)
        sales, sold, lost = sales + 1, sold + len(sale.acked), lost + len(faults.lost)
        seen += faults.seen
    record_property("soak", f"{sales} sales, {sold} coupons, {lost} lost by name to FLUSHALL, faults {dict(seen)}")
    assert sales > 0
