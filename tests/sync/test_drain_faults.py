"""The drain beside rebuilds, locked rows, broken data, staff and other drains."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone
from services import PATIENCE_S

from activities import services
from activities.expiry import coupons_expire
from activities.models import Activity, Coupon
from couponsite.settings import database_read
from seize import queue, store
from seize.keys import shard_of
from sync import drain as drain_module
from sync.drain import DrainResult, batch_drain, queue_drain
from sync.models import DeadLetter
from sync.rebuild import activity_rebuild
from tests.factories import drain, offer
from tests.sync.stage import claims_add, issued, press, rows, thread_start, waiting

pytestmark = pytest.mark.django_db(transaction=True)


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
        patched.setattr(drain_module, "coupons_insert", deadlock)
        assert drain(activity) == DrainResult(shard=shard_of(activity.pk), deferred=1)
    assert (rows(activity), len(waiting(activity)), DeadLetter.objects.count()) == (set(), 1, 0)
    assert drain(activity).inserted == 1


def test_row_locked_by_somebody_else_is_waited_for_at_most_seconds_and_tried_again():
    """A stopped process that holds the row must not hold the worker."""
    activity = offer()
    press(activity, 7)
    locked, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Activity.objects.select_for_update().get(pk=activity.pk)
                locked.set()
                let_go.wait(PATIENCE_S)
        finally:
            connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(PATIENCE_S)
    with connection.cursor() as cursor:
        cursor.execute(database_read()["OPTIONS"]["init_command"])  # as every session of the product begins
        cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout")
        assert cursor.fetchone()[0] == 2
    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), deferred=1)
    connection.close()  # the next session is as patient as the others of the tests
    let_go.set()
    holder.join(PATIENCE_S)
    assert drain(activity).inserted == 1


def test_p07_fault_of_the_data_is_narrowed_down_to_the_entry_that_causes_it(monkeypatch):
    activity = offer(stock_total=20)
    for user_id in range(1, 9):
        press(activity, user_id)
    real = drain_module.coupons_insert

    def spoiled(*, claims, activity):
        real(claims=[claim._replace(seq=-1) if claim.user_id == 5 else claim for claim in claims], activity=activity)

    monkeypatch.setattr(drain_module, "coupons_insert", spoiled)
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
            coupons_expire(now=timezone.now() + timedelta(days=30))

    threads = [thread_start(work, faults) for work in (batches, batches, void, expire)]
    for thread in threads:
        thread.join(PATIENCE_S)
    assert faults == []
    while waiting(activity):
        drain(activity)
    coupons_expire(now=timezone.now() + timedelta(days=30))
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
    lease = store.Lease("drain:2", lease_ms=3_600_000)
    assert lease.acquire()
    assert queue_drain(shard=3, batch_size=500, lease_ms=5000, budget_s=5).inserted == 1
    assert rows(first) == set()


def test_claims_wait_while_the_table_has_a_column_that_this_version_does_not_know():
    """After a migration and before the restart: a worker of the version before must not bury acknowledged coupons."""
    activity = offer(stock_total=10)
    for user_id in range(1, 4):
        press(activity, user_id)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE activities_coupon ADD COLUMN newer INT NOT NULL")
    try:
        result = drain(activity)
        assert (result.inserted, result.dead, result.deferred) == (0, 0, 3)
        assert DeadLetter.objects.count() == 0
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE activities_coupon DROP COLUMN newer")
    assert drain(activity).inserted == 3


def test_columns_that_were_added_have_defaults_of_the_database_for_workers_of_the_version_before():
    fields = {field.column: field for model in (Activity, Coupon) for field in model._meta.concrete_fields}
    added = ("min_payable", "order_id", "uses")
    assert [name for name in added if not fields[name].has_db_default()] == []
