"""Activities, with a button for each legal change. Rules live in services."""

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from import_export.admin import ImportExportMixin
from import_export.formats.base_formats import CSV
from import_export.results import Result
from unfold.admin import ModelAdmin
from unfold.contrib.import_export.forms import ExportForm
from unfold.decorators import action, display

from activities import drafts
from activities.actors import actor_of
from activities.admission import STORE_FAULTS, desk_now
from activities.audit import Action, event_record
from activities.changes import CHANGES
from activities.checklist import Item, Level
from activities.confirmation import confirmation_button, confirmation_view
from activities.exports import csv_stream, redemptions_export, winners_export
from activities.models import Activity
from activities.preview import activity_checklist, preview_cards
from activities.querysets import ActivityQuerySet
from activities.readonly import sees_in_full
from activities.statuses import UNPUBLISHED, EffectiveStatus
from activities.transfer import ENCODING, ActivityResource, DraftImportForm, DraftResource, FileLost, FileStorage
from activities.workflow import ActivityRefused, activity_may
from seize import desk

STATUS_COLOURS = {
    EffectiveStatus.SUBMITTED: "warning",
    EffectiveStatus.APPROVED: "info",
    EffectiveStatus.UPCOMING: "info",
    EffectiveStatus.ONGOING: "success",
    EffectiveStatus.PAUSED: "warning",
    EffectiveStatus.VOIDED: "danger",
}
EXPORT = "activities.export_coupon"
EXPORTS = {"winners": winners_export, "redemptions": redemptions_export}
CHECKED = ("submit", "approve", "publish")  # before these the checklist's warnings are shown


class EffectiveStatusFilter(admin.SimpleListFilter):
    """Filter by the status that holds now, not by the stored one."""

    title = _("status")
    parameter_name = "effective"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return [(status.value, str(status.label)) for status in EffectiveStatus]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Activity]) -> QuerySet[Activity]:
        value = self.value()
        if value not in EffectiveStatus.values:
            return queryset
        assert isinstance(queryset, ActivityQuerySet)
        return queryset.effective(value, now=timezone.now())


class ActivityChangeList(ChangeList):
    """The list with the live stock of its rows, asked of Redis once a page."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        try:
            left = desk.stock_left([row.pk for row in rows])
        except STORE_FAULTS:
            left = {}
        for row in rows:
            row.stock_left = left.get(row.pk)
        self.result_list = rows


class ActivityForm(forms.ModelForm):
    """A draft's fields, and the version that the form was opened with."""

    opened_version = forms.IntegerField(widget=forms.HiddenInput, required=False)

    class Meta:
        model = Activity
        fields = drafts.DRAFT_FIELDS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "opened_version" in self.fields:
            self.fields["opened_version"].initial = self.instance.version

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if not self.instance._state.adding:
            try:
                stored = Activity.objects.get(pk=self.instance.pk)
                drafts.draft_check(stored=stored, version=self.cleaned_data.get("opened_version") or 0)
            except ActivityRefused as refused:
                raise forms.ValidationError(str(refused)) from refused
        return cleaned


class ByFileMixin(ImportExportMixin):
    """Drafts from a file, and all activities as a file."""

    import_form_class = DraftImportForm
    export_form_class = ExportForm
    tmp_storage_class = FileStorage
    formats = (CSV,)
    from_encoding = to_encoding = ENCODING

    def has_import_permission(self, request: HttpRequest) -> bool:
        return self.has_add_permission(request)

    def has_export_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_import_resource_classes(self, request: HttpRequest) -> list[type[DraftResource]]:
        return [DraftResource]

    def get_export_resource_classes(self, request: HttpRequest) -> list[type[ActivityResource]]:
        return [ActivityResource]

    def get_import_data_kwargs(self, *, request: HttpRequest, **kwargs: Any) -> dict[str, Any]:
        return {"by": actor_of(request), "now": timezone.now(), "rollback_on_validation_errors": True}

    def add_data_read_fail_error_to_form(self, form: forms.Form, e: Exception) -> None:
        if isinstance(e, FileLost):
            form.add_error("import_file", gettext("The file could not be kept for the preview. Please try again."))
        else:
            super().add_data_read_fail_error_to_form(form, e)

    def process_import(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        try:
            response: HttpResponse = super().process_import(request, **kwargs)
            return response
        except FileLost:
            messages.error(request, gettext("The file is not kept any more: choose it again."))
            return HttpResponseRedirect(reverse("admin:activities_activity_import"))

    def process_result(self, result: Result, request: HttpRequest) -> HttpResponse:
        if result.has_errors() or result.has_validation_errors():
            # It was good when it was looked at: an end has passed since, or what Django allows was changed.
            messages.error(request, gettext("A row is not good any more, and nothing was imported. Look at it again."))
            return HttpResponseRedirect(reverse("admin:activities_activity_import"))
        response: HttpResponse = super().process_result(result, request)
        return response

    def add_success_message(self, result: Result, request: HttpRequest) -> None:
        messages.success(request, gettext("Drafts made: %(count)s.") % {"count": len(result.rows)})

    def get_export_data(self, file_format: Any, request: HttpRequest, queryset: Any, **kwargs: Any) -> Any:
        content = super().get_export_data(file_format, request, queryset, **kwargs)
        asked = {"what": "activities", "filter": request.GET.urlencode(), "rows": queryset.count()}
        now = timezone.now()
        event_record(action=Action.EXPORT, subject=Activity(), by=actor_of(request), now=now, after=asked)
        return content

    def get_export_filename(self, request: HttpRequest, queryset: Any, file_format: Any) -> str:
        return f"activities-{timezone.localdate():%Y-%m-%d}.csv"


@admin.register(Activity)
class ActivityAdmin(ByFileMixin, ModelAdmin):
    """Drafts are edited; what is published changes only by its buttons."""

    form = ActivityForm
    list_display = (
        "name",
        "show_status",
        "kind",
        "starts_at",
        "ends_at",
        "stock_total",
        "show_stock_left",
        "issued",
        "per_user_limit",
    )
    list_filter = (EffectiveStatusFilter, "kind")
    search_fields = ("name", "id__exact")
    list_per_page = 50
    show_full_result_count = False
    compressed_fields = True
    warn_unsaved_form = True
    actions_detail = (
        "live",
        "report",
        "preview",
        *CHANGES,
        "clone",
        {"title": _("Export"), "items": ["winners", "redemptions"]},
    )
    fieldsets = (
        (None, {"fields": ("name", "rules_text")}),
        (_("Discount"), {"fields": ("kind", "min_spend", "amount_off", "pay_percent", "max_off", "min_payable")}),
        (_("Seizing"), {"fields": ("starts_at", "ends_at", "stock_total", "per_user_limit")}),
        (_("Validity of coupons"), {"fields": ("valid_days", "valid_until")}),
    )
    FACTS = (
        _("Now"),
        {
            "fields": (
                "effective",
                "show_stock_left",
                "issued",
                "author",
                "submitted_by",
                "approved_by",
                "rejection",
                "void_reason",
                "version",
                "epoch",
                "settled_at",
            )
        },
    )

    # What may be touched

    def get_fieldsets(self, request: HttpRequest, obj: Activity | None = None) -> Any:
        if obj is None:
            return self.fieldsets
        if self._is_draft(obj):
            return ((None, {"fields": ("name", "rules_text", "opened_version")}), *self.fieldsets[1:])
        return (self.FACTS, *self.fieldsets)

    def get_readonly_fields(self, request: HttpRequest, obj: Activity | None = None) -> tuple[str, ...]:
        if obj is None or self._is_draft(obj):
            return ()
        return (*self.FACTS[1]["fields"], *drafts.DRAFT_FIELDS)

    def has_delete_permission(self, request: HttpRequest, obj: Activity | None = None) -> bool:
        return (obj is None or self._is_draft(obj)) and super().has_delete_permission(request, obj)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)  # published ones cannot be deleted, drafts one by one
        return actions

    @staticmethod
    def _is_draft(obj: Activity) -> bool:
        return obj.status == Activity.Status.DRAFT

    def delete_model(self, request: HttpRequest, obj: Activity) -> None:
        drafts.activity_draft_delete(activity_id=obj.pk, now=timezone.now(), by=actor_of(request))

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        try:
            response: HttpResponse = super().delete_view(request, object_id, extra_context)
            return response
        except ActivityRefused as refused:
            messages.error(request, str(refused))
            return HttpResponseRedirect(reverse("admin:activities_activity_change", args=[object_id]))

    def save_model(self, request: HttpRequest, obj: Activity, form: forms.ModelForm, change: bool) -> None:
        if change:
            obj.version = form.cleaned_data.get("opened_version") or 0
        drafts.activity_draft_save(activity=obj, now=timezone.now(), by=actor_of(request))

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        context = extra_context or {}
        activity = self.get_object(request, object_id) if object_id else None
        if activity is not None and not self._is_draft(activity):
            # Nothing on this page can be saved; what can be done has a button at the top.
            context |= dict.fromkeys(("show_save", "show_save_and_continue", "show_save_and_add_another"), False)
        try:
            response: HttpResponse = super().changeform_view(request, object_id, form_url, context)
            return response
        except ActivityRefused as refused:
            # Lost the race between the form's check and the row's lock.
            messages.error(request, str(refused))
            return HttpResponseRedirect(request.path)

    # What is shown

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ActivityChangeList

    @display(description=_("status"), label=STATUS_COLOURS)
    def show_status(self, obj: Activity) -> tuple[str, str]:
        effective = obj.effective_status(now=timezone.now())
        return effective, str(effective.label)

    @display(description=_("status"))
    def effective(self, obj: Activity) -> str:
        return str(obj.effective_status(now=timezone.now()).label)

    @display(description=_("stock left"))
    def show_stock_left(self, obj: Activity) -> str:
        if not hasattr(obj, "stock_left"):
            try:
                obj.stock_left = desk.stock_left([obj.pk]).get(obj.pk)  # type: ignore[attr-defined]
            except STORE_FAULTS:
                return "–"
        left: int | None = obj.stock_left  # type: ignore[attr-defined]
        return "–" if left is None else str(left)

    # Buttons

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
            return activity.status not in UNPUBLISHED and request.user.has_perm(EXPORT)
        if change == "clone":
            return self.has_add_permission(request)
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
        return StreamingHttpResponse(
            csv_stream(header=export.header, rows=export.rows),
            content_type="text/csv; charset=utf-8",
            headers={
                "Content-Disposition": f'attachment; filename="{export.file_name(activity_id=activity.pk, now=now)}"',
                "Cache-Control": "no-store",
            },
        )

    @action(description=_("Winners (CSV)"), url_path="winners")
    def winners(self, request: HttpRequest, object_id: str) -> StreamingHttpResponse:
        """Who has a coupon of it."""
        return self.export_of(request, object_id, "winners")

    @action(description=_("Redemptions (CSV)"), url_path="redemptions")
    def redemptions(self, request: HttpRequest, object_id: str) -> StreamingHttpResponse:
        """What became of its coupons at checkout."""
        return self.export_of(request, object_id, "redemptions")

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
