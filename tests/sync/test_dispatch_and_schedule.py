"""Who sends what when: hints for waiting queues only, one beat of several, a schedule that staff may edit."""

import json

import pytest
from django.core.management import call_command
from django.db import OperationalError
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from django_celery_beat.schedulers import DatabaseScheduler

from couponsite.celery import app
from seize import store
from seize.keys import shard_of
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync import tasks
from sync.beat import SingleBeatScheduler
from sync.dispatch import dispatch
from sync.schedule import BEATS, schedule_create
from tests.factories import offer, shards_declare_loaded

pytestmark = pytest.mark.django_db(transaction=True)


def messages(broker) -> list[tuple[str, dict[str, object]]]:
    """(task, headers) of what waits in the broker, oldest first."""
    waiting = [json.loads(text) for text in reversed(broker.lrange("celery", 0, -1))]
    return [(message["headers"]["task"], message["headers"]) for message in waiting]


def test_nothing_is_sent_for_empty_queues(broker):
    offer()
    shards_declare_loaded()
    broker.flushdb()
    assert dispatch() == {"drains": []}
    assert messages(broker) == []


def test_one_drain_is_sent_per_waiting_queue_and_it_expires_in_two_seconds(broker):
    activity = offer()
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
    shards_declare_loaded()
    broker.flushdb()
    shard = shard_of(activity.pk)
    assert dispatch() == {"drains": [shard]}
    [(task, headers)] = messages(broker)
    assert (task, headers["kwargsrepr"]) == ("sync.drain_queue", f"{{'shard': {shard}}}")
    assert headers["expires"] is not None


def test_l09_queue_that_is_being_drained_gets_no_second_message(broker):
    activity = offer()
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
    lease = store.Lease(f"drain:{shard_of(activity.pk)}", lease_ms=3_600_000)
    assert lease.acquire()
    assert dispatch()["drains"] == []


def test_emptied_redis_is_rebuilt_by_messages(broker, raw):
    activity = offer()
    raw.flushall()
    broker.flushdb()
    assert dispatch()["rebuild"] == [activity.pk]
    assert [task for task, _headers in messages(broker)] == ["sync.rebuild_activity"]
    assert tasks.rebuild_activity(activity_id=activity.pk)["state"] == "rebuilt"


def test_every_task_that_beat_sends_exists_and_answers_with_something_to_read():
    offer()
    for beat in BEATS:
        assert isinstance(app.tasks[beat.name](), dict)


def test_drain_task_answers_as_documented():
    assert tasks.drain_queue(shard=3) == {
        "shard": 3,
        "inserted": 0,
        "existed": 0,
        "dead": 0,
        "deferred": 0,
        "skipped": False,
        "more": False,
    }


def test_s21_schedule_is_created_once_and_never_overwrites_what_staff_edited():
    PeriodicTask.objects.exclude(name="celery.backend_cleanup").delete()
    assert schedule_create() == [beat.name for beat in BEATS]
    edited = PeriodicTask.objects.get(name="sync.dispatch")
    assert (edited.interval.every, edited.interval.period, edited.expire_seconds) == (1, "seconds", 2)
    slower, _made = IntervalSchedule.objects.get_or_create(every=5, period="seconds")
    PeriodicTask.objects.filter(pk=edited.pk).update(interval=slower, enabled=False)
    PeriodicTask.objects.filter(name="sync.sweep").delete()
    call_command("schedule", verbosity=0)
    edited.refresh_from_db()
    assert (edited.interval.every, edited.enabled) == (5, False)
    sweep = PeriodicTask.objects.get(name="sync.sweep")
    assert (sweep.interval.every, sweep.expire_seconds) == (60, None)


def test_of_two_beats_one_sends_and_the_other_takes_over(broker, monkeypatch):
    monkeypatch.setattr("sync.beat.LEASE_MS", 3_600_000)  # it must not run out while the second one looks
    schedule_create()
    first, second = (SingleBeatScheduler(app=app, lazy=False) for _ in range(2))
    first.tick()
    assert second.tick() == 1.0
    assert (first.leads, second.leads) == (True, False)
    sent = len(messages(broker))
    for _ in range(5):
        second.tick()
    assert len(messages(broker)) == sent
    first.close()
    second.tick()
    first.tick()
    assert (first.leads, second.leads) == (False, True)
    second.close()


def test_beat_outlives_a_database_that_is_away(monkeypatch):
    schedule_create()
    beat = SingleBeatScheduler(app=app, lazy=False)

    def away(*_arguments: object, **_more: object) -> None:
        raise OperationalError(2002, "Can't connect")

    with monkeypatch.context() as patched:
        patched.setattr(DatabaseScheduler, "tick", away)
        assert beat.tick() == 1.0
    beat.tick()
    assert beat.leads is True
    beat.close()


def test_beat_waits_quietly_while_redis_is_away(settings):
    schedule_create()
    beat = SingleBeatScheduler(app=app, lazy=False)
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert beat.tick() == 1.0
    assert beat.leads is False
