"""Activities by file: drafts from a CSV with a look at it first, and all activities as another."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from import_export.admin import ImportExportMixin
from import_export.formats.base_formats import CSV
from import_export.results import Result
from unfold.contrib.import_export.forms import ExportForm

from activities.actors import actor_of
from activities.audit import Action, event_record
from activities.models import Activity
from activities.transfer import ENCODING, ActivityResource, DraftImportForm, DraftResource, FileLost, FileStorage


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
