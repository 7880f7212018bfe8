"""``/livez``, ``/readyz`` and ``/metrics``: for load balancers and Prometheus."""

import hmac
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from activities.admission import STORE_FAULTS
from couponsite.stopping import stopping
from seize import store
from sync import health


def livez(_request: HttpRequest) -> JsonResponse:
    """``GET /livez``: this process answers, whatever else is broken."""
    return JsonResponse({"status": "ok"})


def readyz(_request: HttpRequest) -> JsonResponse:
    """``GET /readyz``: 200 when coupons can be seized and shown; else 503, with what is missing."""
    if stopping.is_set():
        return JsonResponse({"status": "stopping", "checks": []}, status=503)
    checks = health.readiness()
    ok = all(check.ok for check in checks)
    body = {
        "status": "ok" if ok else "not ready",
        "checks": [{"name": check.name, "ok": check.ok, "detail": check.public_detail} for check in checks],
    }
    response = JsonResponse(body, status=200 if ok else 503)
    response["Cache-Control"] = "no-store"
    return response


class _Collector:
    """Asks Redis and the ledger when it is scraped: the same from every process, so nothing has to be shared."""

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("coupons_ready", "1 when the check holds", labels=["check"])
        for check in health.readiness():
            up.add_metric([check.name], float(check.ok))
        yield up
        for family in (self._queues, self._servers, self._letters, self._reconciled, self._beats):
            try:
                yield from family()
            except (*STORE_FAULTS, DatabaseError, InterfaceError):
                continue  # coupons_ready says so

    def _queues(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily("coupons_queue_waiting", "Claims that wait for the ledger", labels=["shard"])
        oldest = GaugeMetricFamily("coupons_queue_oldest_seconds", "Age of the oldest of them", labels=["shard"])
        drained = CounterMetricFamily("coupons_drained", "Claims that the ledger took over", labels=["shard"])
        for state in health.queue_states():
            waiting.add_metric([str(state.shard)], state.waiting)
            oldest.add_metric([str(state.shard)], state.oldest_s or 0)
            drained.add_metric([str(state.shard)], state.drained_total)
        yield from (waiting, oldest, drained)

    def _servers(self) -> Iterator[Metric]:
        durable = GaugeMetricFamily(
            "coupons_redis_durable", "1 when what this master acknowledges is on disk", labels=["server"]
        )
        keeps = GaugeMetricFamily("coupons_redis_noeviction", "1 when it never evicts", labels=["server"])
        memory = GaugeMetricFamily("coupons_redis_memory_bytes", "Memory that it uses", labels=["server"])
        for facts in store.server_facts():
            durable.add_metric([facts.name], float(facts.durable))
            keeps.add_metric([facts.name], float(facts.keeps_all))
            memory.add_metric([facts.name], facts.memory_bytes)
        yield from (durable, keeps, memory)

    def _letters(self) -> Iterator[Metric]:
        letters = GaugeMetricFamily("coupons_dead_letters_waiting", "Dead letters to decide", labels=["reason"])
        for reason, number in health.letters_waiting().items():
            letters.add_metric([reason], number)
        yield letters

    def _reconciled(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "coupons_reconcile_differing", "Activities whose last reconciliation differs", value=len(health.differing())
        )
        age_s = health.reconciled_age_s(now=datetime.now(UTC))
        if age_s is not None:
            yield GaugeMetricFamily(
                "coupons_reconcile_age_seconds", "Age of the oldest last reconciliation of an activity", value=age_s
            )

    def _beats(self) -> Iterator[Metric]:
        ages = GaugeMetricFamily("coupons_beat_age_seconds", "Seconds since a beat entry was sent", labels=["entry"])
        for entry, age_s in health.beat_ages(now=datetime.now(UTC)).items():
            if age_s is not None:
                ages.add_metric([entry], age_s)
        yield ages


def metrics(request: HttpRequest) -> HttpResponse:
    """``GET /metrics`` for Prometheus; with METRICS_TOKEN as bearer token, open only in development."""
    token = settings.METRICS_TOKEN
    offered = request.META.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ")
    if token and not hmac.compare_digest(offered.encode(), token.encode()):
        return HttpResponse(status=401, headers={"WWW-Authenticate": 'Bearer realm="metrics"'})
    if not token and not settings.DEVELOPMENT:
        raise Http404
    registry = CollectorRegistry()
    registry.register(_collector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _collector() -> Any:
    return _Collector()
