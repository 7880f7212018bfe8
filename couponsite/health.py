"""``/livez``, ``/readyz`` and ``/metrics``: for load balancers and Prometheus."""

import hmac
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from types import FrameType
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from activities.admission import STORE_FAULTS
from sync import health

_stopping = threading.Event()


def stopping_on_sigterm() -> None:
    """From SIGTERM on this process is not ready: it finishes what it has, and gets nothing new."""
    if threading.current_thread() is not threading.main_thread():
        return
    previous = signal.getsignal(signal.SIGTERM)

    def stop(number: int, frame: FrameType | None) -> None:
        _stopping.set()
        if callable(previous):
            previous(number, frame)

    signal.signal(signal.SIGTERM, stop)


def livez(_request: HttpRequest) -> JsonResponse:
    """``GET /livez``: this process answers, whatever else is broken."""
    return JsonResponse({"status": "ok"})


def readyz(_request: HttpRequest) -> JsonResponse:
    """``GET /readyz``: 200 when coupons can be seized and shown; else 503, with what is missing."""
    if _stopping.is_set():
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

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily("coupons_ready", "1 when the check holds", labels=["check"])
        for check in health.readiness():
            up.add_metric([check.name], float(check.ok))
        yield up
        for family in (self._queues, self._letters, self._differing, self._beats):
            try:
                yield from family()
            except (*STORE_FAULTS, DatabaseError, InterfaceError):
                continue  # coupons_ready says so

    def _queues(self) -> Iterator[GaugeMetricFamily]:
        waiting = GaugeMetricFamily("coupons_queue_waiting", "Claims that wait for the ledger", labels=["shard"])
        oldest = GaugeMetricFamily("coupons_queue_oldest_seconds", "Age of the oldest of them", labels=["shard"])
        for state in health.queue_states():
            waiting.add_metric([str(state.shard)], state.waiting)
            oldest.add_metric([str(state.shard)], state.oldest_s or 0)
        yield waiting
        yield oldest

    def _letters(self) -> Iterator[GaugeMetricFamily]:
        letters = GaugeMetricFamily("coupons_dead_letters_waiting", "Dead letters to decide", labels=["reason"])
        for reason, number in health.letters_waiting().items():
            letters.add_metric([reason], number)
        yield letters

    def _differing(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily(
            "coupons_reconcile_differing", "Activities whose last reconciliation differs", value=len(health.differing())
        )

    def _beats(self) -> Iterator[GaugeMetricFamily]:
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
