"""The drain: every claim becomes exactly one coupon or one dead letter, whatever runs twice, dies or lies."""

import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings as django_settings
from django.db import InterfaceError, InternalError, OperationalError, ProgrammingError, connection, transaction
from django.utils import timezone

from activities import services
from activities.models import Activity, Coupon
from seize import queue, store
from seize.keys import queue_key, shard_of
from seize.outcomes import Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync import drain as drain_module
from sync.drain import DrainResult, batch_drain, queue_drain
from sync.models import DeadLetter
from sync.rebuild import activity_rebuild
from tests.factories import drain, offer

pytestmark = pytest.mark.django_db(transaction=True)


def press(activity: Activity, user_id: int, seq: int = 0):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=seq), user_id=user_id)


def rows(activity: Activity) -> set[tuple[int, int]]:
    return set(Coupon.objects.filter(activity=activity).values_list("user_id", "seq"))


def waiting(activity: Activity) -> list[queue.Entry]:
    return list(queue.queue_entries(shard=shard_of(activity.pk), activity_id=activity.pk))


def issued(activity: Activity) -> int:
    activity.refresh_from_db()
    return activity.issued


def thread_start(work, faults: list[BaseException]) -> threading.Thread:
    """Run ``work`` in a thread with a database connection of its own; what it raises goes into ``faults``."""

    def guarded() -> None:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 - the test looks at them
            faults.append(fault)
        finally:
            connection.close()

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread


def claims_add(raw, activity: Activity, count: int, *, first: int = 1) -> None:
    """Put claims into the queue and the holders as that many seizes would."""
    key, now_ms = queue_key(shard_of(activity.pk)), store.time_us() // 1000
    fields = {f"{activity.pk}:{user_id}:1": f"{now_ms}:{activity.uid}" for user_id in range(first, first + count)}
    raw.hset(key, mapping=fields)


def test_l01_three_activities_of_one_shard_give_one_shopper_three_coupons():
    activities = [offer(id=activity_id) for activity_id in (11, 21, 31)]
    for activity in activities:
        assert isinstance(press(activity, 7), Won)
    assert drain(activities[0]) == DrainResult(shard=1, inserted=3)
    assert [rows(activity) for activity in activities] == [{(7, 1)}] * 3
    assert [issued(activity) for activity in activities] == [1, 1, 1]


def test_l07_batch_delivered_again_after_its_commit_makes_no_second_coupon(raw):
    activity = offer(stock_total=5)
    for user_id in (1, 2, 3):
        press(activity, user_id)
    entries = waiting(activity)
    drain(activity)
    raw.hset(queue_key(shard_of(activity.pk)), mapping=dict(entries))  # as if the delete had never happened
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), existed=3)
    assert rows(activity) == {(1, 1), (2, 1), (3, 1)}
    assert issued(activity) == 3
    assert waiting(activity) == []


def test_p08_same_batch_drained_by_two_threads_at_once_counts_once():
    activity = offer(stock_total=400)
    for user_id in range(1, 301):
        press(activity, user_id)
    entries = waiting(activity)
    barrier = threading.Barrier(4)
    results: list[DrainResult] = []

    def work() -> None:
        barrier.wait()
        try:
            for start in range(0, 300, 50):
                batch = entries[start : start + 50]
                results.append(batch_drain(shard=shard_of(activity.pk), activity_id=activity.pk, batch=batch))
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 24
    assert sum(result.inserted for result in results) == 300
    assert sum(result.dead for result in results) == 0
    assert len(rows(activity)) == 300
    assert Coupon.objects.count() == 300
    assert issued(activity) == 300
    assert waiting(activity) == []


def test_l09_s20_second_drain_of_a_queue_leaves_at_once_while_the_first_holds_the_lease():
    activity = offer()
    press(activity, 7)
    lease = store.Lease(f"drain:{shard_of(activity.pk)}", lease_ms=60_000)
    assert lease.acquire()
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), skipped=True)
    lease.release()
    assert drain(activity).inserted == 1


def test_l07_p06_drain_killed_between_commit_and_delete_leaves_entries_that_are_replays(tmp_path):
    """A real process, killed by SIGKILL at exactly that point."""
    activity = offer(stock_total=5)
    for user_id in (1, 2, 3):
        press(activity, user_id)
    program = tmp_path / "drain_and_die.py"
    program.write_text(
        "import os, signal, django\n"
        "django.setup()\n"
        "from seize import queue\n"
        "from sync.drain import queue_drain\n"
        "queue.queue_delete = lambda **_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"queue_drain(shard={shard_of(activity.pk)}, batch_size=500, lease_ms=50, budget_s=5)\n"
    )
    database = connection.settings_dict
    url = f"mysql://root@127.0.0.1:{database['PORT']}/{database['NAME']}"
    broker = django_settings.CELERY_BROKER_URL
    servers = {"REDIS_URL": django_settings.REDIS_URL, "CELERY_BROKER_URL": broker, "CACHE_URL": broker}
    env = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": os.getcwd(), **servers}
    died = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, timeout=60)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert rows(activity) == {(1, 1), (2, 1), (3, 1)}
    assert len(waiting(activity)) == 3
    while drain(activity).skipped:
        pass  # the dead drain's lease of 50 ms
    assert rows(activity) == {(1, 1), (2, 1), (3, 1)}
    assert issued(activity) == 3
    assert waiting(activity) == []


def test_l08_hundred_thousand_entries_are_drained_by_the_cursor(raw):
    activity = offer(stock_total=100_000)
    for first in range(1, 100_001, 20_000):
        claims_add(raw, activity, 20_000, first=first)
    result = drain(activity, batch_size=1000)
    assert (result.inserted, result.dead, result.deferred) == (100_000, 0, 0)
    assert issued(activity) == Coupon.objects.filter(activity=activity).count() == 100_000
    assert queue.queue_lengths([shard_of(activity.pk)]) == [0]


def test_l08_activity_that_waits_does_not_keep_its_neighbours_waiting(raw):
    """More deferred entries than a batch holds, met again and again, in front of another activity's."""
    blocked, free = offer(id=14, stock_total=5000), offer(id=24, stock_total=5000)
    claims_add(raw, blocked, 3000)
    claims_add(raw, free, 1000)
    Activity.objects.filter(pk=blocked.pk).update(epoch=99)
    calls: list[int] = []
    real = drain_module._batch_settle

    def counted(*, shard: int, activity_id: int, batch):
        calls.append(activity_id)
        return real(shard=shard, activity_id=activity_id, batch=batch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drain_module, "_batch_settle", counted)
        result = drain(free, batch_size=100)
    assert result.inserted == 1000
    assert result.deferred >= 3000  # a scan may show an entry twice
    assert len(rows(free)) == 1000
    # Once a pass, not once a batch: each try may cost seconds of waiting for a lock.
    assert calls.count(blocked.pk) <= 3


def test_l09_full_redis_is_drained_without_a_lease_since_nothing_else_frees_it(raw):
    activity = offer()
    press(activity, 7)
    raw.config_set("maxmemory", "1")
    try:
        assert drain(activity) == DrainResult(shard=shard_of(activity.pk), inserted=1)
    finally:
        raw.config_set("maxmemory", "0")
    assert rows(activity) == {(7, 1)}
    assert waiting(activity) == []


def test_drain_whose_time_is_over_says_that_there_is_more(raw):
    activity = offer(stock_total=5000)
    claims_add(raw, activity, 3000)
    result = queue_drain(shard=shard_of(activity.pk), batch_size=100, lease_ms=5000, budget_s=0)
    assert result.more is True
    assert 0 < result.inserted < 3000


@pytest.mark.parametrize("fault", [ProgrammingError(1146, "no such table"), InterfaceError(0, "gone"), InternalError()])
def test_fault_of_the_whole_database_makes_no_dead_letters(monkeypatch, fault):
    activity = offer(stock_total=10)
    for user_id in (1, 2, 3):
        press(activity, user_id)

    def broken(*_args: object, **_kwargs: object) -> None:
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr(Coupon.objects, "bulk_create", broken)
        assert drain(activity).deferred == 3
    assert (DeadLetter.objects.count(), len(waiting(activity))) == (0, 3)
    assert drain(activity).inserted == 3


def test_l06_poison_among_a_hundred_claims_dies_alone_and_at_once(raw):
    activity = offer(stock_total=200)
    claims_add(raw, activity, 100)
    shard = shard_of(activity.pk)
    poison = {
        f"{shard + 1000}:7:1": "1700000000000:abc",  # no such activity
        "garbage": "garbage",
        f"{activity.pk}:7": "1700000000000:abc",
        f"{activity.pk}:007:1": f"1700000000000:{activity.uid}",
        f"{activity.pk}:8:1:9": f"1700000000000:{activity.uid}",
        f"{activity.pk}:{2**63}:1": f"1700000000000:{activity.uid}",
        f"{activity.pk}:8:2": "yesterday",
        f"{activity.pk}:8:3": f"1700000000000000000:{activity.uid}",
        f"{activity.pk}:9:1": "1700000000000:0ther",  # replaces shopper 9's claim
    }
    raw.hset(queue_key(shard), mapping=poison)
    raw.execute_command("HSET", queue_key(shard), b"\xff\xfe\x00", b"\x80")
    result = drain(activity)
    assert result == DrainResult(shard=shard, inserted=99, dead=10)
    assert queue.queue_lengths([shard]) == [0]
    reasons = list(DeadLetter.objects.order_by("reason").values_list("reason", flat=True))
    assert reasons == ["MALFORMED"] * 8 + ["NO_ACTIVITY"] + ["OTHER_UID"]
    assert drain(activity) == DrainResult(shard=shard)


def test_letter_in_the_queue_again_is_only_deleted_and_not_doubled(raw):
    activity = offer()
    entry = {f"{activity.pk}:7:1": "1700000000000:0ther"}
    for _ in range(2):
        raw.hset(queue_key(shard_of(activity.pk)), mapping=entry)
        drain(activity)
    assert DeadLetter.objects.count() == 1
    assert waiting(activity) == []


@pytest.mark.parametrize("state", ["WAITING", "REPLAYED", "DISCARDED"])
def test_claim_that_has_a_dead_letter_in_any_state_makes_no_coupon(raw, state):
    activity = offer(stock_total=1)
    Activity.objects.filter(pk=activity.pk).update(issued=1)
    claims_add(raw, activity, 1)
    [entry] = waiting(activity)
    drain(activity)
    DeadLetter.objects.update(state=state)
    Activity.objects.filter(pk=activity.pk).update(issued=0)
    raw.hset(queue_key(shard_of(activity.pk)), mapping={entry.field: entry.value})
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), existed=1)
    assert rows(activity) == set()


def test_p03_ledger_full_while_redis_says_more_only_the_overflow_dies_latest_first(raw):
    activity = offer(stock_total=5)
    key = queue_key(shard_of(activity.pk))
    for user_id in range(1, 9):  # shopper 1 was first, 8 last
        raw.hset(key, f"{activity.pk}:{user_id}:1", f"{1700000000000 + user_id}:{activity.uid}")
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), inserted=5, dead=3)
    assert rows(activity) == {(user_id, 1) for user_id in range(1, 6)}
    letters = DeadLetter.objects.filter(reason="NO_ROOM")
    assert set(letters.values_list("user_id", flat=True)) == {6, 7, 8}
    assert issued(activity) == 5


def test_same_coupon_from_another_time_is_a_conflict_not_a_second_coupon(raw):
    activity = offer()
    press(activity, 7)
    drain(activity)
    raw.hset(queue_key(shard_of(activity.pk)), f"{activity.pk}:7:1", f"1700000000000:{activity.uid}")
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), dead=1)
    assert DeadLetter.objects.get().reason == "CONFLICT"
    assert (rows(activity), issued(activity)) == ({(7, 1)}, 1)


def test_l12_void_with_fifty_claims_waiting_makes_fifty_void_coupons():
    activity = offer(stock_total=50)
    for user_id in range(1, 51):
        press(activity, user_id)
    services.activity_void(activity_id=activity.pk, reason="x", now=timezone.now())
    assert drain(activity).inserted == 50
    assert list(Coupon.objects.values_list("status", flat=True)) == ["VOIDED"] * 50
    assert issued(activity) == 50


def test_other_epoch_rolls_back_and_leaves_the_entries_for_after_the_rebuild():
    """A stalled drain once inserted behind a finished rebuild: 15 coupons acknowledged of 10."""
    activity = offer()
    press(activity, 7)
    Activity.objects.filter(pk=activity.pk).update(epoch=activity.epoch + 1)
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), deferred=1)
    assert rows(activity) == set()
    assert len(waiting(activity)) == 1
    activity_rebuild(activity_id=activity.pk)
    assert drain(activity).inserted == 1


def test_claim_that_left_the_queue_since_the_scan_is_forgotten():
    activity = offer()
    press(activity, 7)
    entries = waiting(activity)
    queue.queue_delete(shard=shard_of(activity.pk), entries=entries)
    result = batch_drain(shard=shard_of(activity.pk), activity_id=activity.pk, batch=entries)
    assert result == DrainResult(shard=shard_of(activity.pk))
    assert rows(activity) == set()


def test_passing_fault_of_the_database_leaves_everything_for_the_next_pass(monkeypatch):
    activity = offer()
    press(activity, 7)

    def deadlock(*_args: object, **_kwargs: object) -> None:
        raise OperationalError(1213, "Deadlock found")

    with monkeypatch.context() as patched:
        patched.setattr(Coupon.objects, "bulk_create", deadlock)
        assert drain(activity) == DrainResult(shard=shard_of(activity.pk), deferred=1)
    assert (rows(activity), len(waiting(activity)), DeadLetter.objects.count()) == (set(), 1, 0)
    assert drain(activity).inserted == 1


def test_row_locked_by_somebody_else_is_waited_for_at_most_seconds_and_tried_again(settings):
    """A stopped process that holds the row must not hold the worker."""
    activity = offer()
    press(activity, 7)
    locked, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Activity.objects.select_for_update().get(pk=activity.pk)
                locked.set()
                let_go.wait(30)
        finally:
            connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(10)
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), deferred=1)
    let_go.set()
    holder.join(10)
    assert drain(activity).inserted == 1


def test_p07_fault_of_the_data_is_narrowed_down_to_the_entry_that_causes_it(monkeypatch):
    activity = offer(stock_total=20)
    for user_id in range(1, 9):
        press(activity, user_id)
    real = drain_module.coupon_of

    def spoiled(claim, activity):
        coupon = real(claim, activity)
        if claim.user_id == 5:
            coupon.seq = -1
        return coupon

    monkeypatch.setattr(drain_module, "coupon_of", spoiled)
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), inserted=7, dead=1)
    assert rows(activity) == {(user_id, 1) for user_id in (1, 2, 3, 4, 6, 7, 8)}
    letter = DeadLetter.objects.get()
    assert (letter.user_id, letter.reason) == (5, "DATA")
    assert issued(activity) == 7


def test_claim_of_an_unpublished_activity_dies_instead_of_looping(raw):
    activity = offer()
    Activity.objects.filter(pk=activity.pk).update(status="DRAFT")
    claims_add(raw, activity, 1)
    assert drain(activity).dead == 1
    assert waiting(activity) == []


def test_p19_two_drains_void_and_expiry_at_once_neither_deadlock_nor_lose():
    activity = offer(stock_total=500)
    for user_id in range(1, 401):
        press(activity, user_id)
    drain_half = waiting(activity)[:200]
    faults: list[BaseException] = []

    def batches() -> None:
        for start in range(0, 200, 20):
            batch_drain(shard=shard_of(activity.pk), activity_id=activity.pk, batch=drain_half[start : start + 20])

    def void() -> None:
        services.activity_void(activity_id=activity.pk, reason="x", now=timezone.now())

    def expire() -> None:
        for _ in range(10):
            services.coupons_expire(now=timezone.now() + timedelta(days=30))

    threads = [thread_start(work, faults) for work in (batches, batches, void, expire)]
    for thread in threads:
        thread.join(60)
    assert faults == []
    while waiting(activity):
        drain(activity)
    services.coupons_expire(now=timezone.now() + timedelta(days=30))
    assert issued(activity) == Coupon.objects.count() == 400
    assert activity.status == "VOIDED"
    assert Coupon.objects.filter(status="UNUSED").count() == 0


def test_seized_at_is_exact_to_the_millisecond_of_redis():
    activity = offer()
    won = press(activity, 7)
    drain(activity)
    seized_at = Coupon.objects.get().seized_at
    assert seized_at == datetime.fromtimestamp(won.seized_ms // 1000, tz=UTC) + timedelta(
        milliseconds=won.seized_ms % 1000
    )


def test_s24_queues_of_different_activities_drain_side_by_side():
    first, second = offer(id=12), offer(id=13)
    press(first, 7)
    press(second, 7)
    lease = store.Lease("drain:2", lease_ms=60_000)
    assert lease.acquire()
    assert queue_drain(shard=3, batch_size=500, lease_ms=5000, budget_s=5).inserted == 1
    assert rows(first) == set()
