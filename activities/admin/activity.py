"""Activities: the list, the draft's form, what is shown of those published. Rules live in services."""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from activities import drafts
from activities.actors import actor_of
from activities.admin.activity_buttons import ActivityButtons
from activities.admin.activity_files import ByFileMixin
from activities.admission import STORE_FAULTS
from activities.models import ACCESS_FIELDS, Activity, Listed
from activities.querysets import ActivityQuerySet
from activities.statuses import EffectiveStatus
from activities.workflow import ActivityRefused
from seize import desk

STATUS_COLOURS = {
    EffectiveStatus.SUBMITTED: "warning",
    EffectiveStatus.APPROVED: "info",
    EffectiveStatus.UPCOMING: "info",
    EffectiveStatus.ONGOING: "success",
    EffectiveStatus.PAUSED: "warning",
    EffectiveStatus.VOIDED: "danger",
}


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


@admin.register(Activity)
class ActivityAdmin(ByFileMixin, ActivityButtons):
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

    # Its own page changes it, also in a sale; here it is shown to whoever may look at the activity.
    ACCESS = (_("Access"), {"fields": (*ACCESS_FIELDS, "show_let_in", "show_kept_out")})

    # What may be touched

    def get_fieldsets(self, request: HttpRequest, obj: Activity | None = None) -> Any:
        if obj is None:
            return self.fieldsets
        if self._is_draft(obj):
            return ((None, {"fields": ("name", "rules_text", "opened_version")}), *self.fieldsets[1:], self.ACCESS)
        return (self.FACTS, *self.fieldsets, self.ACCESS)

    def get_readonly_fields(self, request: HttpRequest, obj: Activity | None = None) -> tuple[str, ...]:
        if obj is None:
            return ()
        if self._is_draft(obj):
            return self.ACCESS[1]["fields"]
        return (*self.FACTS[1]["fields"], *drafts.DRAFT_FIELDS, *self.ACCESS[1]["fields"])

    def has_delete_permission(self, request: HttpRequest, obj: Activity | None = None) -> bool:
        return (obj is None or self._is_draft(obj)) and super().has_delete_permission(request, obj)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)  # published ones cannot be deleted, drafts one by one
        return actions

    @staticmethod
    def _is_draft(obj: Activity) -> bool:
        return obj.status == Activity.Status.DRAFT

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """The drafts alone: what goes with them are lists of up to 100,000 shoppers, whom not everybody may see."""
        count = Listed.objects.filter(activity__in=objs).count()
        counted = {str(self.opts.verbose_name_plural): len(objs), str(Listed._meta.verbose_name_plural): count}
        return [str(obj) for obj in objs], {name: number for name, number in counted.items() if number}, set(), []

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
