"""The audit: who did what, when, from where, and why. To read and to filter; nobody edits it."""

import json
from typing import Any

from django.contrib import admin
from django.core.exceptions import FieldDoesNotExist
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.contrib.filters.admin import RangeDateTimeFilter
from unfold.decorators import display

from activities.models import Activity, AuditEvent
from activities.readonly import ReadOnlyAdmin

LISTS = {"let_in": _("list of those let in"), "kept_out": _("list of those kept out")}


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    """Events, the newest first."""

    list_display = ("at", "actor_name", "action", "subject_type", "subject_name", "show_change", "reason", "address")
    list_filter = ("action", ("at", RangeDateTimeFilter), "subject_type")
    list_filter_submit = True
    search_fields = ("subject_id__exact", "actor_name", "subject_name")
    list_per_page = 50
    fields = ("at", "actor_name", "address", "action", "subject_type", "subject_id", "subject_name", "reason",
              "show_before", "show_after")  # fmt: skip
    readonly_fields = ("show_before", "show_after")

    @display(description=_("change"))
    def show_change(self, obj: AuditEvent) -> str:
        names = sorted({*obj.before, *obj.after})
        return ", ".join(
            f"{_label(obj, name)}: {_short(obj.before.get(name))} → {_short(obj.after.get(name))}" for name in names[:3]
        )

    @display(description=_("before"))
    def show_before(self, obj: AuditEvent) -> SafeString:
        return _shown(obj, obj.before)

    @display(description=_("after"))
    def show_after(self, obj: AuditEvent) -> SafeString:
        return _shown(obj, obj.after)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("activities.view_auditevent")


def _label(event: AuditEvent, name: str) -> str:
    """What the back office calls a column of an activity; what is no such column as it was written."""
    if event.subject_type != Activity._meta.model_name:
        return name
    try:
        column = Activity._meta.get_field(name)
    except FieldDoesNotExist:
        return str(LISTS.get(name, name))
    return str(getattr(column, "verbose_name", name))


def _short(value: Any) -> str:
    text = "–" if value in (None, "") else str(value)
    return text if len(text) <= 30 else f"{text[:29]}…"


def _shown(event: AuditEvent, members: dict[str, Any]) -> SafeString:
    named = {_label(event, name): value for name, value in members.items()}
    return format_html("<pre>{}</pre>", json.dumps(named, indent=2, ensure_ascii=False, sort_keys=True))
