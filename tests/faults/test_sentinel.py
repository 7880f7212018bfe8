"""R5 with a real Sentinel: the master dies, Sentinel promotes the replica, and the product follows by itself."""

import subprocess
import time

import pytest
import redis
from services import PATIENCE_S, Valkey, port_answers, port_pick, wait_until

from activities.models import Coupon
from seize import store
from seize.outcomes import Refused, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync.comparison import ledger_compare
from sync.rebuild import activity_rebuild
from tests.factories import drain, offer
from tests.faults.conftest import agrees

pytestmark = pytest.mark.faults


def press(activity, user_id: int):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=user_id)


@pytest.fixture
def sentinel(system, tmp_path):
    """A client of a Sentinel over the system's Valkey and a replica, which takes nobody for dead until told to."""
    replica = Valkey(tmp_path / "replica", binary=system.valkey.binary)
    replica.start()
    replica_client = redis.Redis(port=replica.port, decode_responses=True)
    replica_client.replicaof("127.0.0.1", system.valkey.port)
    wait_until(lambda: replica_client.info("replication")["master_link_status"] == "up", what="the replica")
    port, config = port_pick(), tmp_path / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\nsentinel monitor shop 127.0.0.1 {system.valkey.port} 1\n"
        f"sentinel down-after-milliseconds shop {1000 * PATIENCE_S}\nsentinel failover-timeout shop 5000\n"
    )
    with (tmp_path / "sentinel.log").open("wb") as log:
        process = subprocess.Popen([system.valkey.binary, str(config), "--sentinel"], stdout=log, stderr=log)
    watcher = redis.Redis(port=port, decode_responses=True)
    try:
        wait_until(lambda: port_answers(port), what="Sentinel")
        wait_until(lambda: watcher.sentinel_slaves("shop"), what="Sentinel to see the replica")
        yield watcher
    finally:
        watcher.close()
        replica_client.close()
        process.kill()
        process.wait(PATIENCE_S)
        replica.stop(kill=True)


def test_r05_sentinel_promotes_the_replica_and_the_sale_goes_on_with_exact_counts(system, settings, sentinel):
    settings.REDIS_URL = f"redis+sentinel://127.0.0.1:{sentinel.get_connection_kwargs()['port']}/shop"
    activity = offer(stock_total=10)
    for user_id in range(1, 5):
        assert isinstance(press(activity, user_id), Won)
    drain(activity)
    killed_at = time.monotonic()
    system.valkey.stop(kill=True)
    with pytest.raises((store.StoreUnavailable, store.OutcomeUnknown)):
        press(activity, 50)
    with pytest.raises(store.StoreUnavailable):  # nothing was sent, so nothing can have happened
        press(activity, 50)

    dead_after_ms = 0

    def reopened() -> bool:
        nonlocal dead_after_ms
        # Sentinel promotes no replica whose master has been away for ten times as long as makes it dead, and looks
        # anew at everything each time that it is told how long that is.
        gone_ms = int(1000 * (time.monotonic() - killed_at))
        if gone_ms > 5 * dead_after_ms:
            dead_after_ms = max(1000, gone_ms)
            sentinel.sentinel_set("shop", "down-after-milliseconds", dead_after_ms)
        try:
            ledger_compare(rebuild=lambda activity_id: activity_rebuild(activity_id=activity_id))
            outcome = press(activity, 1)
        except (store.StoreUnavailable, store.OutcomeUnknown):
            return False
        return not isinstance(outcome, Refused)

    wait_until(reopened, what="the sale on the promoted replica")
    sentinel.sentinel_set("shop", "down-after-milliseconds", 1000 * PATIENCE_S)
    winners = [user_id for user_id in range(100, 120) if isinstance(press(activity, user_id), Won)]
    drain(activity)
    assert len(winners) == 6
    assert Coupon.objects.count() == 10
    agrees(activity)
