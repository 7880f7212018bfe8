"""Probes, metrics and checks: they see what is missing, say it, and never fail themselves."""

import dataclasses
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.utils import timezone
from services import PATIENCE_S

from seize import queue, store
from seize.keys import drained_key, shard_of
from seize.queue import Entry
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync import checks, health
from sync.models import DeadLetter
from sync.reconcile import activities_reconcile
from sync.schedule import schedule_create
from tests.factories import drain, offer, shards_declare_loaded

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A server that answers slowly is no fault here."""
    monkeypatch.setattr(health, "PING_TIMEOUT_S", PATIENCE_S)


def failing(client) -> dict[str, str]:
    response = client.get("/readyz")
    body = response.json()
    failed = {check["name"]: check["detail"] for check in body["checks"] if not check["ok"]}
    assert response.status_code == (503 if failed else 200)
    return failed


def test_ready_when_everything_is_there(client):
    offer()
    shards_declare_loaded()
    assert failing(client) == {}


def test_not_ready_until_the_shards_are_loaded(client, raw):
    offer()
    shards_declare_loaded()
    raw.flushall()
    assert "shards not loaded yet: 0, 1" in failing(client)["shards"]
    shards_declare_loaded()
    assert failing(client) == {}


def test_not_ready_without_redis_and_alive_all_the_same(client, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert set(failing(client)) == {"redis", "shards"}
    assert client.get("/livez").json() == {"status": "ok"}


def test_not_ready_on_a_server_that_cannot_be_written(client, raw):
    shards_declare_loaded()
    raw.config_set("maxmemory", "1")
    try:
        assert "redis" in failing(client)
    finally:
        raw.config_set("maxmemory", "0")
    assert failing(client) == {}


def test_p10_forgotten_scripts_do_not_make_it_unready(client, raw):
    shards_declare_loaded()
    raw.script_flush()
    assert failing(client) == {}


def test_not_ready_while_stopping(client, monkeypatch):
    from couponsite import health as probes

    monkeypatch.setattr(probes.stopping, "is_set", lambda: True)
    assert client.get("/readyz").status_code == 503
    assert client.get("/livez").status_code == 200


def test_missing_migrations_are_told(client, monkeypatch):
    shards_declare_loaded()
    monkeypatch.setattr(health, "_migrated", type(health._migrated)())
    monkeypatch.setattr(health.MigrationExecutor, "migration_plan", lambda *_: [("sync", "0002")])
    assert failing(client) == {"database": "1 migrations are missing: run manage.py migrate"}


def test_metrics_tell_queues_letters_differences_and_beats(client):
    activity = offer()
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
    DeadLetter.of(Entry("garbage", "x"), reason="MALFORMED").save()
    schedule_create()
    text = client.get("/metrics").content.decode()
    assert f'coupons_queue_waiting{{shard="{shard_of(activity.pk)}"}} 1.0' in text
    assert 'coupons_dead_letters_waiting{reason="MALFORMED"} 1.0' in text
    assert 'coupons_dead_letters_waiting{reason="NO_ROOM"} 0.0' in text
    assert "coupons_reconcile_differing 0.0" in text
    assert 'coupons_ready{check="redis"} 1.0' in text
    assert text.count("coupons_queue_oldest_seconds{") == 10
    assert "coupons_reconcile_age_seconds" not in text  # nothing was reconciled yet
    reconciled_at = timezone.now() - timedelta(seconds=90)
    activities_reconcile(now=reconciled_at)
    drain(activity)
    asked_at = timezone.now()
    text = client.get("/metrics").content.decode()
    told_at = timezone.now()
    line = next(line for line in text.splitlines() if line.startswith("coupons_reconcile_age_seconds "))
    assert asked_at <= reconciled_at + timedelta(seconds=float(line.split()[1])) <= told_at
    assert f'coupons_drained_total{{shard="{shard_of(activity.pk)}"}} 1.0' in text


def test_metrics_tell_what_redis_promises(client, raw):
    def seen(name: str) -> set[float]:
        lines = client.get("/metrics").content.decode().splitlines()
        return {float(line.split()[1]) for line in lines if line.startswith(f"coupons_redis_{name}{{")}

    assert (seen("durable"), seen("noeviction")) == ({1.0}, {1.0})
    assert min(seen("memory_bytes")) > 100_000
    raw.config_set("appendfsync", "everysec")
    raw.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert (seen("durable"), seen("noeviction")) == ({0.0}, {0.0})
    finally:
        raw.config_set("appendfsync", "always")
        raw.config_set("maxmemory-policy", "noeviction")


def test_drain_rate_is_that_of_the_last_ten_complete_seconds(raw):
    activity = offer(stock_total=30)
    for user_id in range(30):
        coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=user_id + 1)
    shard = shard_of(activity.pk)
    drain(activity)
    drained_at_s = 10 * int(raw.hget(drained_key(shard), "at"))
    for later_s, per_second in ((0, 0.0), (9, 0.0), (10, 3.0), (19, 3.0), (20, 0.0)):
        assert queue.queue_drained([shard], now_s=drained_at_s + later_s) == [queue.Drained(30, per_second)]


def test_metrics_survive_a_redis_that_is_away(client, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    text = client.get("/metrics").content.decode()
    assert 'coupons_ready{check="redis"} 0.0' in text
    assert 'coupons_ready{check="database"} 1.0' in text


def test_metrics_are_for_who_has_the_token(client, settings):
    settings.METRICS_TOKEN = "secret-of-prometheus"
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", HTTP_AUTHORIZATION="Bearer wrong").status_code == 401
    assert client.get("/metrics", HTTP_AUTHORIZATION="Bearer secret-of-prometheus").status_code == 200
    settings.METRICS_TOKEN, settings.DEVELOPMENT = "", False
    assert client.get("/metrics").status_code == 404


def test_age_of_the_oldest_claim_is_by_the_clock_of_redis(raw, monkeypatch):
    activity, now_us = offer(), store.time_us()
    monkeypatch.setattr(store, "time_us", lambda: now_us)
    raw.hset(
        f"QUEUE:COUPON:SEIZE:SYNC:{{{shard_of(activity.pk)}}}",
        f"{activity.pk}:7:1",
        f"{now_us // 1000 - 90_000}:{activity.uid}",
    )
    state = health.queue_states()[shard_of(activity.pk)]
    assert (state.waiting, state.oldest_s) == (1, 90.0)


def test_health_page_shows_it_to_who_may_see_it_and_opens_without_redis(client, settings):
    offer()
    schedule_create()
    activities_reconcile(now=timezone.now())
    user = get_user_model().objects.create_user("viewer", password="x", is_staff=True)
    client.force_login(user)
    assert client.get("/admin/sync/health/").status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_reconciliation"))
    page = client.get("/admin/sync/health/").content.decode()
    assert "sync.dispatch" in page
    assert "appendfsync always" in page
    assert page.count(">–</td>") == 10 + 7  # nothing waits in ten queues, and seven entries were never sent
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert client.get("/admin/sync/health/").status_code == 200


# -- Checks of the servers ---------------------------------------------------------------------------


def ids(messages) -> list[str]:
    return [message.id for message in messages]


def test_private_servers_of_the_tests_are_fit():
    assert checks.servers_check() == []


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("appendfsync", "everysec", "coupons.E102"),
        ("maxmemory-policy", "allkeys-lru", "coupons.E103"),
    ],
)
def test_p09_server_that_may_lose_or_evict_is_named(raw, settings, name, value, code):
    before = raw.config_get(name)[name]
    raw.config_set(name, value)
    try:
        [warning] = checks.servers_check()
        assert (warning.id, warning.is_serious()) == (code, False)
        settings.DEVELOPMENT = False
        with pytest.raises(SystemCheckError, match=code):
            call_command("check", deploy=True, tags=["servers"], fail_level="ERROR")
    finally:
        raw.config_set(name, before)


def test_old_version_replica_and_wrong_clock_are_named():
    facts = store.ServerFacts(
        name="redis",
        version="6.0.16",
        role="slave",
        aof=True,
        fsync="always",
        aof_written=True,
        policy="noeviction",
        memory_bytes=1,
        clock_off_s=1.1,
    )
    assert [code for code, _text, _hint in checks._redis_faults(facts)] == [
        "coupons.E101",
        "coupons.E104",
        "coupons.E105",
    ]
    right = dataclasses.replace(facts, version="6.2.0", role="master", clock_off_s=0.9)
    assert list(checks._redis_faults(right)) == []


def test_clock_of_redis_is_as_far_off_as_it_must_be_however_long_the_answer_took(monkeypatch):
    """Ours is read before and after: what lies between is no difference."""
    [(seconds, micros)] = [store.client().time()]
    now = seconds + micros / 1_000_000
    for before, after, off_s in ((now - 60, now + 60, 0), (now + 7, now + 7, 7), (now - 9, now - 9, 9)):
        clock = iter((before, after))
        monkeypatch.setattr(store, "time", SimpleNamespace(time=lambda clock=clock: next(clock)))
        monkeypatch.setattr(store.redis.Redis, "time", lambda _client: (seconds, micros))
        [facts] = store.server_facts()
        assert facts.clock_off_s == pytest.approx(off_s, abs=0.001)


def test_disk_that_took_no_write_is_named():
    [facts] = store.server_facts()
    [(code, text, _hint)] = checks._redis_faults(dataclasses.replace(facts, aof_written=False))
    assert code == "coupons.E102"
    assert "its last write to disk failed" in text


def test_ledger_that_does_not_flush_is_named():
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    try:
        assert ids(checks.servers_check()) == ["coupons.E202"]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


def test_redis_that_is_away_is_a_warning_of_its_own(settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert ids(checks.servers_check()) == ["coupons.E100"]
