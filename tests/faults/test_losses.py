"""Redis is emptied, goes back in time, or is replaced: nothing is sold until it is rebuilt, and never too much."""

import shutil
import signal
import threading
from datetime import timedelta

import pytest
import time_machine
from django.utils import timezone
from services import PATIENCE_S, Valkey, wait_until

from activities.models import Coupon
from seize import queue, store
from seize.keys import queue_key, shard_of
from seize.outcomes import Refusal, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync import drain as drain_module
from sync.comparison import ledger_compare
from sync.rebuild import activity_rebuild
from tests.factories import drain, offer
from tests.faults.conftest import Sale, agrees, rows_of

pytestmark = pytest.mark.faults


def press(activity, user_id: int):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=user_id)


def waiting_claims(entries: dict[str, str]) -> set[tuple[int, int, int]]:
    return {tuple(int(part) for part in field.split(":")) for field in entries}


def compare() -> None:
    ledger_compare(rebuild=lambda activity_id: activity_rebuild(activity_id=activity_id))


def test_r01_ten_thousand_shoppers_on_a_thousand_coupons_over_several_processes(system):
    activity = offer(stock_total=1000)
    system.start("web1", "web2", "worker1", "beat1")
    sale = Sale(system.web_ports(), activity, range(1, 10_001), threads=16)
    sale.join()
    system.drained(activity)
    assert sale.codes == {"SEIZED": 1000, "SOLD_OUT": 9000}
    assert len(sale.acked) == 1000
    assert rows_of(activity) == sale.acked
    agrees(activity)


def test_r04_flushall_loses_exactly_the_undrained_and_sells_not_one_too_many(system):
    activity = offer(stock_total=300)
    system.start("web1", "worker1", "beat1")
    sale = Sale(system.web_ports(), activity, range(1, 501), threads=8, pause_s=0.01, stop_at=150)
    sale.wait_for(100)
    raw = system.raw
    system.signal("worker1", signal.SIGSTOP)  # it rebuilds as soon as a shopper was told to wait
    # In one transaction: what waits at that very moment, and then nothing is left.
    undrained, _flushed = raw.pipeline().hgetall(queue_key(shard_of(activity.pk))).flushall().execute()
    sale.go_on()
    sale.wait_for_code("NOT_READY")
    system.signal("worker1", signal.SIGCONT)
    sale.join()
    system.drained(activity)
    lost = sale.acked - rows_of(activity)
    assert rows_of(activity) <= sale.acked
    assert lost <= waiting_claims(undrained)
    # A drain in flight may have saved some of them before it was emptied: rows are never more than the stock.
    assert Coupon.objects.count() == 300
    agrees(activity)


def test_r04_flushall_with_a_drain_in_flight_forgets_what_redis_forgot(system, monkeypatch):
    activity = offer(stock_total=10)
    for user_id in range(1, 7):
        press(activity, user_id)
    real = queue.drain_check

    def emptied_meanwhile(**arguments):
        system.raw.flushall()
        return real(**arguments)

    with monkeypatch.context() as patched:
        patched.setattr(queue, "drain_check", emptied_meanwhile)
        assert drain(activity).inserted == 0
    assert press(activity, 50).refusal is Refusal.NOT_READY
    compare()
    for user_id in range(100, 120):
        press(activity, user_id)
    drain(activity)
    assert Coupon.objects.count() == 10
    agrees(activity)


def test_r05_old_files_restored_stay_closed_until_rebuilt_and_then_sell_what_is_left(system):
    activity = offer(stock_total=20)
    for user_id in range(1, 6):
        press(activity, user_id)
    system.valkey.stop()
    old = system.folder / "old"
    shutil.copytree(system.valkey.folder, old)
    system.valkey.start()
    compare()
    drain(activity)
    for user_id in range(6, 16):
        press(activity, user_id)
    drain(activity)
    for user_id in range(16, 19):
        press(activity, user_id)  # acknowledged, not drained: lost with the disk, by name
    system.valkey.stop()
    shutil.rmtree(system.valkey.folder)
    shutil.copytree(old, system.valkey.folder)
    system.valkey.start()

    assert press(activity, 99).refusal is Refusal.NOT_READY
    drain(activity)  # the five old claims are in the queue again, and rows already
    assert press(activity, 99).refusal is Refusal.NOT_READY
    compare()
    assert press(activity, 3).replay is True
    winners = [user_id for user_id in range(100, 140) if isinstance(press(activity, user_id), Won)]
    assert len(winners) == 5
    drain(activity)
    users = {user for _activity, user, _seq in rows_of(activity)}
    assert users == {*range(1, 16), *winners}
    agrees(activity)


def test_r05_lagging_replica_promoted_and_fail_back_sell_not_one_too_many(system, tmp_path, settings):
    activity = offer(stock_total=20)
    replica = Valkey(tmp_path / "replica", binary=system.valkey.binary)
    replica.start()
    master_url = system.valkey.url
    try:
        import redis

        other = redis.Redis.from_url(replica.url, decode_responses=True)
        other.replicaof("127.0.0.1", system.valkey.port)
        wait_until(lambda: other.info("replication")["master_link_status"] == "up", what="the replica")
        compare()  # attaching the first replica changes the gen: one rebuild
        for user_id in range(1, 9):
            assert isinstance(press(activity, user_id), Won)
        wait_until(lambda: other.hlen(queue_key(shard_of(activity.pk))) == 8, what="replication")
        other.replicaof("NO", "ONE")  # cut off: from here on it lags
        for user_id in range(9, 13):
            press(activity, user_id)
        drain(activity)
        settings.REDIS_URL = replica.url  # promoted
        assert press(activity, 99).refusal is Refusal.NOT_READY
        compare()
        for user_id in range(20, 24):
            assert isinstance(press(activity, user_id), Won)
        drain(activity)
        # And back, as Sentinel does it: the old master follows the new one, then it is promoted.
        system.raw.replicaof("127.0.0.1", replica.port)
        wait_until(lambda: system.raw.info("replication")["master_link_status"] == "up", what="following")
        system.raw.replicaof("NO", "ONE")
        settings.REDIS_URL = master_url
        assert press(activity, 99).refusal is Refusal.NOT_READY
        compare()
        winners = [user_id for user_id in range(100, 140) if isinstance(press(activity, user_id), Won)]
        drain(activity)
    finally:
        replica.stop(kill=True)
    assert len(winners) == 4
    assert Coupon.objects.count() == 20
    agrees(activity)


def test_r05_restart_during_a_rebuild_begins_anew_and_reopens(system, monkeypatch):
    from sync import rebuild

    activity = offer(stock_total=5)
    press(activity, 1)
    drain(activity)
    real = rebuild._holders_write

    def and_redis_is_restarted(*arguments, **more):
        real(*arguments, **more)
        system.valkey.stop(kill=True)
        system.valkey.start()

    system.raw.flushall()
    with monkeypatch.context() as patched:
        patched.setattr(rebuild, "_holders_write", and_redis_is_restarted)
        with pytest.raises((rebuild.RebuildLost, store.StoreUnavailable, store.OutcomeUnknown)):
            activity_rebuild(activity_id=activity.pk)
    assert press(activity, 2).refusal is Refusal.NOT_READY
    wait_until(lambda: compare() or isinstance(press(activity, 2), Won), what="reopening by itself")
    assert press(activity, 1).replay is True
    drain(activity)
    agrees(activity)


def test_r07_drain_stalled_across_a_rebuild_inserts_nothing_behind_it(system, monkeypatch):
    """It has scanned its claims; Redis is emptied and rebuilt, everything is sold again; then it wakes up."""
    activity = offer(stock_total=10)
    for user_id in range(1, 6):
        press(activity, user_id)
    scanned, go_on = threading.Event(), threading.Event()
    real = drain_module._batch_settle

    def stalled(**arguments):
        scanned.set()
        assert go_on.wait(PATIENCE_S)
        return real(**arguments)

    results = []

    def work() -> None:
        from django.db import connection

        try:
            results.append(drain(activity))
        finally:
            connection.close()

    with monkeypatch.context() as patched:
        patched.setattr(drain_module, "_batch_settle", stalled)
        sleeper = threading.Thread(target=work)
        sleeper.start()
        assert scanned.wait(PATIENCE_S)
        patched.setattr(drain_module, "_batch_settle", real)
        system.raw.flushall()
        compare()
        for user_id in range(100, 120):
            press(activity, user_id)
        drain(activity)
        assert Coupon.objects.count() == 10
        go_on.set()
        sleeper.join(PATIENCE_S)
    assert results[0].inserted == 0
    assert Coupon.objects.count() == 10
    agrees(activity)


@pytest.mark.parametrize("skew_s", [-30, 30])
def test_r08_web_clock_that_is_off_by_half_a_minute_decides_nothing(system, shopper_api, skew_s):
    """What is on offer by Redis' clock alone is sold, and what is over by it alone is not."""
    # A token of a second later would be of the future, half a minute ago.
    client, late = shopper_api(7), shopper_api(8)

    def press_beside(client, activity):
        with time_machine.travel(timezone.now() + timedelta(seconds=skew_s), tick=True):
            body = {"id": str(activity.pk), "seq": 1}
            return client.post("/market/consumer/coupon/seize", body, format="json")

    def moment_offer(*, begins_s: int, ends_s: int):
        now = timezone.now()
        return offer(starts_at=now + timedelta(seconds=begins_s), ends_at=now + timedelta(seconds=ends_s))

    def has_ended(activity) -> bool:
        return store.time_us() / 1e6 > activity.ends_at.timestamp()

    statuses = []

    def is_asked_in_time() -> bool:
        """Not so on a machine so slow that it was over before it was asked for."""
        activity = moment_offer(begins_s=-5, ends_s=25)
        statuses.append(press_beside(client, activity).status_code)
        return not has_ended(activity)

    wait_until(is_asked_in_time, what="an answer before the end")
    assert statuses[-1] == 201
    over = moment_offer(begins_s=-60, ends_s=-1)
    wait_until(lambda: has_ended(over), what="the end")
    assert press_beside(late, over).json()["code"] == "ENDED"
