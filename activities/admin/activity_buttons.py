"""The buttons of an activity's page: shown while they are legal, checked again when they are pressed."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action

from activities import drafts
from activities.access import COUNTED
from activities.actors import actor_of
from activities.admin.activity_access import AccessPages
from activities.admission import desk_now
from activities.audit import Action, event_record
from activities.changes import CHANGES, access_permission
from activities.checklist import Item, Level
from activities.confirmation import confirmation_button, confirmation_view
from activities.exports import Export, csv_response, listed_export, redemptions_export, winners_export
from activities.models import Activity, Listed
from activities.preview import activity_checklist, preview_cards
from activities.readonly import sees_in_full
from activities.statuses import UNPUBLISHED
from activities.workflow import ActivityRefused, activity_may

EXPORT = "activities.export_coupon"
EXPORTS: Mapping[str, Callable[..., Export]] = {
    "winners": winners_export,
    "redemptions": redemptions_export,
    "let_in": partial(listed_export, verdict=Listed.Verdict.ALLOW),
    "kept_out": partial(listed_export, verdict=Listed.Verdict.DENY),
}
CHECKED = ("submit", "approve", "publish")  # before these the checklist's warnings are shown


class ActivityButtons(AccessPages):
    """What can be done with one activity, each change by its service."""

    actions_detail = (
        "live",
        "report",
        "preview",
        *CHANGES,
        "access",
        "clone",
        {"title": _("Export"), "items": [*EXPORTS]},
    )

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Only the buttons that are legal now; the service checks again."""
        activity = self.get_object(request, object_id)
        if activity is None:
            return []
        now = timezone.now()
        buttons = super().get_actions_detail(request, object_id)
        return [
            button
            for button in buttons
            if self._may(request, activity, button.action_name.removeprefix("activities_activity_"), now=now)
        ]

    def _may(self, request: HttpRequest, activity: Activity, change: str, *, now: datetime) -> bool:
        if change in ("live", "report"):
            return activity.status not in UNPUBLISHED
        if change == "preview":
            return self.has_view_permission(request, activity)
        if change in EXPORTS:
            has_any = activity.listed_version > 0 if change in COUNTED.values() else activity.status not in UNPUBLISHED
            return has_any and request.user.has_perm(EXPORT)
        if change == "clone":
            return self.has_add_permission(request)
        if change == "access":
            is_hers = request.user.has_perm(access_permission(activity))
            return is_hers and activity_may(activity=activity, change=change, now=now)
        if not request.user.has_perm(CHANGES[change].permission):
            return False
        return activity_may(activity=activity, change=change, now=now)

    def change_view_of(self, request: HttpRequest, object_id: str, change: str) -> HttpResponse:
        """Ask, check, call the service, and say what came of it."""
        spec = CHANGES[change]
        if not (request.user.has_perm(spec.permission) and self.has_view_permission(request)):
            raise PermissionDenied
        activity = self.get_object(request, object_id)
        if activity is None:
            raise Http404
        return confirmation_view(
            self,
            request,
            subject=activity,
            label=spec.label,
            question=spec.question,
            form=spec.form(request.POST if request.method == "POST" else None, activity=activity),
            call=lambda data: spec.service(
                activity_id=activity.pk,
                now=desk_now(),
                by=actor_of(request),
                **{name: data[name] for name in spec.arguments},
            ),
            refusal=ActivityRefused,
            is_final=change == "void",
            checklist=self._to_look_at(activity) if change in CHECKED else (),
        )

    @action(description=_("Live"), url_path="to-live")
    def live(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The page of a sale under way; it stands above this app."""
        return HttpResponseRedirect(reverse("activity-live", args=[object_id]))

    @action(description=_("Report"), url_path="to-report")
    def report(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What came of a sale; this page, too, stands above this app."""
        return HttpResponseRedirect(reverse("activity-report", args=[object_id]))

    @staticmethod
    def _to_look_at(activity: Activity) -> list[Item]:
        items = activity_checklist(activity=activity, now=timezone.now())
        return [item for item in items if item.level is not Level.OK]

    @action(description=_("Preview"), url_path="preview")
    def preview(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What a shopper will see, beside the checklist."""
        activity = self.get_object(request, object_id)
        if not self.has_view_permission(request, activity):
            raise PermissionDenied
        if activity is None:
            raise Http404
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Preview"),
            "opts": self.opts,
            "subject": activity,
            "cards": preview_cards(activity=activity),
            "checklist": activity_checklist(activity=activity, now=timezone.now()),
            "back": reverse("admin:activities_activity_change", args=[activity.pk]),
        }
        return TemplateResponse(request, "admin/activity_preview.html", context)

    @action(description=_("Clone"), url_path="clone")
    def clone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Make a draft of it and open that."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        activity = self.get_object(request, object_id)
        if activity is None:
            raise Http404
        copy = drafts.activity_clone(activity_id=activity.pk, now=timezone.now(), by=actor_of(request))
        messages.success(request, gettext("This is the copy. Set its window, then submit it."))
        if activity.listed_version:
            messages.info(request, gettext("The lists of those let in and kept out were not copied."))
        return HttpResponseRedirect(reverse("admin:activities_activity_change", args=[copy.pk]))

    def export_of(self, request: HttpRequest, object_id: str, what: str) -> StreamingHttpResponse:
        """Write down who takes what, and send the list as it is read."""
        if not (request.user.has_perm(EXPORT) and self.has_view_permission(request)):
            raise PermissionDenied
        activity = self.get_object(request, object_id)
        if activity is None:
            raise Http404
        now, in_full = timezone.now(), sees_in_full(request)
        export = EXPORTS[what](activity=activity, in_full=in_full, now=now)
        asked = {"what": what, "shoppers": "in full" if in_full else "masked", "rows": export.expected}
        event_record(action=Action.EXPORT, subject=activity, by=actor_of(request), now=now, after=asked)
        return csv_response([export.header], export.rows, file_name=export.file_name(activity_id=activity.pk, now=now))

    @action(description=_("Winners (CSV)"), url_path="winners")
    def winners(self, request: HttpRequest, object_id: str) -> StreamingHttpResponse:
        """Who has a coupon of it."""
        return self.export_of(request, object_id, "winners")

    @action(description=_("Redemptions (CSV)"), url_path="redemptions")
    def redemptions(self, request: HttpRequest, object_id: str) -> StreamingHttpResponse:
        """What became of its coupons at checkout."""
        return self.export_of(request, object_id, "redemptions")

    @action(description=_("Let in (CSV)"), url_path="let-in")
    def let_in(self, request: HttpRequest, object_id: str) -> StreamingHttpResponse:
        """Who is let in by name."""
        return self.export_of(request, object_id, "let_in")

    @action(description=_("Kept out (CSV)"), url_path="kept-out")
    def kept_out(self, request: HttpRequest, object_id: str) -> StreamingHttpResponse:
        """Who is kept out by name."""
        return self.export_of(request, object_id, "kept_out")

    submit = confirmation_button("submit", CHANGES["submit"].label)
    withdraw = confirmation_button("withdraw", CHANGES["withdraw"].label)
    approve = confirmation_button("approve", CHANGES["approve"].label)
    reject = confirmation_button("reject", CHANGES["reject"].label)
    publish = confirmation_button("publish", CHANGES["publish"].label)
    pause = confirmation_button("pause", CHANGES["pause"].label)
    resume = confirmation_button("resume", CHANGES["resume"].label)
    add_stock = confirmation_button("add_stock", CHANGES["add_stock"].label)
    change_end = confirmation_button("change_end", CHANGES["change_end"].label)
    void = confirmation_button("void", CHANGES["void"].label)
