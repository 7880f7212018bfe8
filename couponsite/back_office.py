"""The back office's live page, report and first page: permissions, forms of output, and nothing else."""

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import orjson
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils import timezone, translation
from django.utils.translation import gettext as _
from django.views.generic import View

from activities.actors import actor_of
from activities.audit import Action, event_record
from activities.exports import csv_response
from activities.models import Activity
from couponsite.watching import Fragment, fragment_of, watcher_checked
from seize.problems import title_now
from sync.dashboard import dashboard_read
from sync.live import Live, activity_live
from sync.report import Report, activity_report

SHOWN_S = 600  # of the live charts


class ActivityPage(View):
    """A page about one activity, for those who may see activities."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.has_perm("activities.view_activity"):
            raise PermissionDenied
        try:
            return super().dispatch(request, *args, **kwargs)
        except Activity.DoesNotExist:
            raise Http404 from None

    def page(self, template: str, **context: Any) -> HttpResponse:
        """A page in the site's frame."""
        return TemplateResponse(self.request, template, {**admin.site.each_context(self.request), **context})


# -- Live ---------------------------------------------------------------------------------------------


class LivePage(ActivityPage):
    """``/admin/activities/activity/<id>/live/``: the frame, and what is known now."""

    def get(self, request: HttpRequest, activity_id: int) -> HttpResponse:
        activity = Activity.objects.get(pk=activity_id)
        fragment = _fragment(request, activity_id)
        return self.page(
            "admin/sale/live.html",
            title=_("Live: %(activity)s") % {"activity": activity},
            activity=activity,
            fragment=fragment.body.decode(),
            etag=fragment.etag,
            now_ms=int(time.time() * 1000),
        )


class LiveFragment(ActivityPage):
    """``…/live/fragment``: what changes; 304 while it has not."""

    def get(self, request: HttpRequest, activity_id: int) -> HttpResponse:
        fragment = _fragment(request, activity_id)
        unchanged = request.headers.get("If-None-Match") == fragment.etag
        response = HttpResponse(b"" if unchanged else fragment.body, status=304 if unchanged else 200)
        response["ETag"] = fragment.etag
        return response


def _fragment(request: HttpRequest, activity_id: int) -> Fragment:
    """The fragment in this person's language; from now on the front may give it to them."""
    if key := request.session.session_key:
        watcher_checked(session=key, activity_id=activity_id)
    return fragment_of(
        activity_id,
        translation.get_language() or "",
        make=lambda: _fragment_render(activity_live(activity_id=activity_id, now=timezone.now())),
    )


def _fragment_render(live: Live) -> bytes:
    seconds = live.counts.seconds
    last = seconds[-1].second if seconds else 0
    series = [list(second) for second in seconds if second.second > last - SHOWN_S]
    chart = {"seconds": series, "total": live.activity.stock_total, "left": live.left}
    context = {
        "live": live,
        "refused": _refused(live.counts.totals, live.counts.refused),
        "chart": orjson.dumps(chart).decode(),
        "changes_ms": int(live.changes_at.timestamp() * 1000) if live.changes_at else None,
    }
    return render_to_string("admin/sale/live_fragment.html", context).encode()


def _refused(totals: dict[str, int], refused: dict[str, int]) -> list[tuple[str, str, int]]:
    """Code, title and number of each reason, the most frequent first; repeats that got their coupon again last."""
    rows = [(code, str(title_now(code)), number) for code, number in refused.items()]
    rows.sort(key=lambda row: (-row[2], row[0]))
    if totals.get("REPLAY"):
        rows.append(("REPLAY", _("Asked again, and told the same win"), totals["REPLAY"]))
    return rows


# -- Report -------------------------------------------------------------------------------------------


class ReportPage(ActivityPage):
    """``/admin/activities/activity/<id>/report/``: what came of a sale, to read and to print."""

    def get(self, request: HttpRequest, activity_id: int) -> HttpResponse:
        report = activity_report(activity_id=activity_id, now=timezone.now())
        wins = {"width": report.facts.width_s, "points": report.facts.wins}
        refused = {"width": report.counts.width_s or 60, "points": [[b.first, b.refused] for b in report.refusals]}
        return self.page(
            "admin/sale/report.html",
            title=_("Report: %(activity)s") % {"activity": report.activity},
            report=report,
            activity=report.activity,
            refused=_refused(report.counts.totals, report.counts.refused),
            wins_chart=orjson.dumps(wins).decode(),
            refused_chart=orjson.dumps(refused).decode(),
            made_at=timezone.now(),
        )


class ReportCsv(ActivityPage):
    """``…/report.csv``: the same figures for a spreadsheet."""

    def get(self, request: HttpRequest, activity_id: int) -> HttpResponseBase:
        now = timezone.now()
        report = activity_report(activity_id=activity_id, now=now)
        asked = {"what": "report"}
        event_record(action=Action.EXPORT, subject=report.activity, by=actor_of(request), now=now, after=asked)
        return csv_response(_csv_head(report), _series(report), file_name=f"report-{activity_id}.csv")


def _series(report: Report) -> Iterator[tuple[object, ...]]:
    for first, won in report.facts.wins:
        yield ("won", _iso(first), report.facts.width_s, won)
    for bucket in report.refusals:
        yield ("refused", _iso(bucket.first), report.counts.width_s, bucket.refused)


def _iso(second: int) -> str:
    return datetime.fromtimestamp(second, tz=timezone.get_current_timezone()).isoformat()


def _moment(moment: datetime | None) -> str:
    return timezone.localtime(moment).isoformat(timespec="milliseconds") if moment else ""


def _csv_head(report: Report) -> Iterator[tuple[object, ...]]:
    facts = report.facts
    yield ("activity_id", report.activity.pk)
    yield ("activity", report.activity.name)
    yield ("status", report.status.value)
    yield ("starts_at", _moment(report.activity.starts_at))
    yield ("ends_at", _moment(report.activity.ends_at))
    yield ("stock_total", report.activity.stock_total)
    yield ("issued", report.issued)
    yield ("waiting", report.waiting)
    yield ("dead_letters", report.letters)
    yield ("first_win_at", _moment(facts.first_at))
    yield ("last_win_at", _moment(facts.last_at))
    yield ("sold_out_at", _moment(report.sold_out_at))
    yield ("seconds_first_to_last", f"{facts.duration_s:.3f}")
    yield ("peak_wins_per_second", facts.peak)
    yield ("peak_at", _moment(facts.peak_at))
    yield ("mean_wins_per_second", f"{facts.mean:.2f}")
    yield ("unused", report.unused)
    yield ("redeemed", report.redeemed)
    yield ("expired", report.expired)
    yield ("voided", report.voided)
    yield ("redemptions", report.redemptions)
    yield ("rolled_back", report.rolled_back)
    yield ("face_value_given_yuan", facts.given)
    yield ("face_value_redeemed_yuan", report.discount)
    for code, number in report.counts.refused.items():
        yield (f"refused_{code.lower()}", number)
    yield ("told_the_same_win_again", report.counts.totals.get("REPLAY", 0))
    yield ()
    yield ("series", "first_second", "width_s", "number")


# -- First page ---------------------------------------------------------------------------------------


def dashboard_callback(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """What the first page shows, as far as this person may see it."""
    board = dashboard_read(may=request.user.has_perm, now=timezone.now())
    days = [
        {"day": f"{day.day:%m-%d}", "won": day.won, "redeemed": day.redeemed - day.rolled_back}
        for day in board.days or []
    ]
    return {**context, "board": board, "days_chart": orjson.dumps(days).decode()}
