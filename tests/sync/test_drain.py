"""The drain: every claim becomes exactly one coupon or one dead letter, whatever runs twice, dies or lies."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from django.conf import settings as django_settings
from django.db import InterfaceError, InternalError, ProgrammingError, connection
from django.utils import timezone
from services import PATIENCE_S

from activities import services
from activities.models import Activity, Coupon
from seize import queue, store
from seize.keys import queue_key, shard_of
from seize.outcomes import Won
from sync import drain as drain_module
from sync.drain import DrainResult, batch_drain, queue_drain
from sync.models import DeadLetter
from tests.factories import drain, offer
from tests.sync.stage import claims_add, issued, press, rows, waiting

pytestmark = pytest.mark.django_db(transaction=True)


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
        thread.join(PATIENCE_S)
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
    lease = store.Lease(f"drain:{shard_of(activity.pk)}", lease_ms=3_600_000)
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
    # Redis may be slow and is not gone for that: with an answer that is late the program would end otherwise.
    patient = dict.fromkeys(("REDIS_TIMEOUT_S", "REDIS_CONNECT_TIMEOUT_S"), str(PATIENCE_S))
    env = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": os.getcwd(), **servers, **patient}
    died = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, timeout=PATIENCE_S)
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
        patched.setattr(drain_module, "coupons_insert", broken)
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


def test_replays_of_a_full_activity_are_no_overflow(raw):
    """Room for none is left, and every claim is a row already: none of them may die."""
    activity = offer(stock_total=3)
    for user_id in (1, 2, 3):
        press(activity, user_id)
    entries = waiting(activity)
    drain(activity)
    raw.hset(queue_key(shard_of(activity.pk)), mapping=dict(entries))
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), existed=3)
    assert (DeadLetter.objects.count(), issued(activity)) == (0, 3)


def test_replay_conflict_and_new_claims_of_one_batch_are_told_apart_when_there_is_room_for_all(raw):
    activity = offer(stock_total=10)
    for user_id in (1, 2):
        press(activity, user_id)
    entries = waiting(activity)
    drain(activity)
    key = queue_key(shard_of(activity.pk))
    raw.hset(key, mapping={entry.field: entry.value for entry in entries if ":1:" in entry.field})
    raw.hset(key, f"{activity.pk}:2:1", f"1700000000000:{activity.uid}")
    for user_id in (3, 4):
        press(activity, user_id)
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), inserted=2, existed=1, dead=1)
    assert rows(activity) == {(1, 1), (2, 1), (3, 1), (4, 1)}
    assert (issued(activity), DeadLetter.objects.get().reason, waiting(activity)) == (4, "CONFLICT", [])


def test_small_lots_of_many_activities_share_their_batches(raw):
    """A scan step shows some entries of each; they are gathered until a batch is full or the pass is over."""
    activities = [offer(id=15 + 10 * number, stock_total=400) for number in range(4)]
    for activity in activities:
        claims_add(raw, activity, 300)
    calls: list[int] = []
    real = drain_module.batch_drain

    def counted(*, shard: int, activity_id: int, batch):
        calls.append(len(batch))
        return real(shard=shard, activity_id=activity_id, batch=batch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drain_module, "batch_drain", counted)
        result = drain(activities[0], batch_size=100)
    assert (result.inserted, result.dead) == (1200, 0)
    assert len(calls) <= 4 * 4
    assert max(calls) == 100
