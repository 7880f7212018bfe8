"""Activities by file: many drafts from a CSV, all or none of them, and the activities there are as another CSV.

CSV alone: every spreadsheet reads and writes it, what is in it can be seen before it is sent, and it needs no parser of
zipped XML from people's disks. The file is checked as a whole by the form, each row by the model's own rules.
"""

import csv
import io
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Field as Column
from django.forms.utils import from_current_timezone
from django.utils import timezone
from django.utils.translation import gettext as _
from import_export.fields import Field
from import_export.resources import ModelResource, Resource
from import_export.results import Result
from import_export.tmp_storages import CacheStorage
from import_export.widgets import Widget
from tablib import Dataset
from unfold.contrib.import_export.forms import ImportForm

from activities.audit import Action, event_record
from activities.drafts import DRAFT_FIELDS, activity_draft_save
from activities.models import Activity
from activities.text import spreadsheet_read, spreadsheet_safe

FILE_MAX_BYTES = 1_000_000
ROWS_MAX = 1_000
ENCODING = "utf-8-sig"  # with or without a byte order mark
REQUIRED = ("name", "starts_at", "ends_at", "stock_total")
SHOWN = ("id", *DRAFT_FIELDS, "status", "issued")
LOCAL_FORMATS = ("%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S")  # what spreadsheets make of a date when they save it


# -- Cells -----------------------------------------------------------------------------------------------


class ColumnWidget(Widget):
    """A cell, read by the rules of the form's field: what staff may type there they may write here."""

    def __init__(self, column: "Column[Any, Any]") -> None:
        super().__init__()
        form_field = column.formfield()
        assert form_field is not None  # of what staff may type
        self.form_field = form_field
        self.form_field.required = False  # an empty cell is a default or nothing; the model says whether it may be

    def clean(self, value: Any, row: Any = None, **kwargs: Any) -> Any:
        """The value of a cell; None when it is empty.

        :raises ValueError: it is no such value. Not a ValidationError, after which no other cell of the row is read.
        """
        text = spreadsheet_read(str(value)).strip()
        try:
            return self.parse(text) if text else None
        except ValidationError as error:
            raise ValueError(" ".join(error.messages)) from error

    def parse(self, text: str) -> Any:
        """A cell that is not empty."""
        return self.form_field.clean(text)

    def render(self, value: Any, obj: Any = None, **kwargs: Any) -> str:
        """A value as the file has it."""
        return "" if value is None else str(value)


class MomentWidget(ColumnWidget):
    """An instant: with a zone, or in the site's own time."""

    def parse(self, text: str) -> datetime:
        moment = moment_parse(text)
        return from_current_timezone(moment) if timezone.is_naive(moment) else moment

    def render(self, value: datetime | None, obj: Any = None, **kwargs: Any) -> str:
        if value is None:
            return ""
        return timezone.localtime(value, timezone.get_default_timezone()).isoformat(sep=" ", timespec="seconds")


def moment_parse(text: str) -> datetime:
    """``2026-11-11 00:00``, ``2026-11-11T00:00:00+08:00``, ``2026/11/11 0:00``; without a zone when none was given.

    :raises ValidationError: no such instant, or a day without a time.
    """
    for pattern in LOCAL_FORMATS:
        try:
            return datetime.strptime(text, pattern)  # noqa: DTZ007 - the site's zone is given to it by who asks
        except ValueError:
            continue
    try:
        if ":" not in text:
            raise ValueError("a day is no instant")
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise ValidationError(
            _("“%(text)s” is no date and time: write 2026-11-11 00:00, or with a zone 2026-11-11T00:00:00+08:00.")
            % {"text": text[:40]}
        ) from error


def _field(name: str) -> Field:
    column = Activity._meta.get_field(name)
    assert isinstance(column, Column)
    widget = (MomentWidget if column.get_internal_type() == "DateTimeField" else ColumnWidget)(column)
    default = {"default": column.get_default} if column.has_default() or column.empty_strings_allowed else {}
    return Field(attribute=name, column_name=name, widget=widget, **default)


# -- Resources -------------------------------------------------------------------------------------------


class DraftResource(ModelResource):
    """Rows as new drafts. Nothing that is there is looked for, let alone changed."""

    class Meta:
        model = Activity
        fields = DRAFT_FIELDS
        import_id_fields = ()
        force_init_instance = True
        clean_model_instances = True
        use_transactions = True

    @classmethod
    def get_display_name(cls) -> str:
        return _("Drafts")

    def save_instance(self, instance: Activity, is_create: bool, row: Any, **kwargs: Any) -> None:  # noqa: FBT001
        """Through the service; a dry run is rolled back by the transaction around it."""
        activity_draft_save(activity=instance, now=kwargs["now"], by=kwargs["by"])

    def after_import(self, dataset: Dataset, result: Result, **kwargs: Any) -> None:
        """Write down that it was done: with the drafts, or not at all."""
        event_record(
            action=Action.IMPORT,
            subject=Activity(),
            by=kwargs["by"],
            now=kwargs["now"],
            after={
                "file": kwargs.get("file_name") or "",
                "rows": len(dataset),
                "ids": [str(row.object_id) for row in result.rows if row.object_id],
            },
        )


class ActivityResource(ModelResource):
    """Activities as staff know them, with the status that holds."""

    status = Field(column_name="status")

    class Meta:
        model = Activity
        fields = SHOWN
        export_order = SHOWN

    @classmethod
    def get_display_name(cls) -> str:
        return _("Activities")

    def export_field(self, field: Field, instance: Activity, **kwargs: Any) -> Any:
        """A cell, which no spreadsheet takes for a formula."""
        cell = super().export_field(field, instance, **kwargs)
        return spreadsheet_safe(cell) if isinstance(cell, str) else cell

    def dehydrate_status(self, activity: Activity) -> str:
        """The effective status, as the API names it."""
        return activity.effective_status(now=timezone.now()).value


def _columns_take(resource: type[Resource]) -> None:
    for name in DRAFT_FIELDS:
        resource.fields[name] = _field(name)


_columns_take(DraftResource)
_columns_take(ActivityResource)


class FileLost(Exception):
    """The file that was looked at is not kept any more."""


class FileStorage(CacheStorage):
    """Keeps a file between preview and confirmation where every web process finds it, for an hour."""

    CACHE_LIFETIME = 3600

    def read(self) -> bytes:
        """The file.

        :raises FileLost: confirmed already, too old, or the cache is away.
        """
        content: bytes | None = super().read()
        if content is None:
            raise FileLost
        return content


# -- The file --------------------------------------------------------------------------------------------


class DraftImportForm(ImportForm):
    """The file that is taken; what is wrong with it as a whole is said before any row is looked at."""

    def clean_import_file(self) -> Any:
        """The file, read to its end and wound back.

        :raises ValidationError: too large, not UTF-8, not a table, other columns than those of a draft.
        """
        file = self.cleaned_data["import_file"]
        if file.size > FILE_MAX_BYTES:
            raise ValidationError(_("The file is larger than 1 MB: split it."))
        table_check(file.read())
        file.seek(0)
        return file


def table_check(content: bytes) -> None:
    """Whether a file is a table of drafts.

    :raises ValidationError: with what to do about it.
    """
    try:
        text = content.decode(ENCODING)
    except UnicodeDecodeError as error:
        raise ValidationError(_("The file is not UTF-8: save it as “CSV UTF-8”.")) from error
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row] or [[]]
    except csv.Error as error:
        raise ValidationError(_("The file is no CSV: %(error)s.") % {"error": error}) from error
    if fixed := [name for name in header if name in SHOWN and name not in DRAFT_FIELDS]:
        raise ValidationError(
            _("Remove these columns: %(names)s. An import only makes new drafts; what there is stays as it is.")
            % {"names": ", ".join(fixed)}
        )
    if unknown := [name for name in header if name not in DRAFT_FIELDS]:
        raise ValidationError(_("There are no such columns: %(names)s.") % {"names": ", ".join(unknown)[:200]})
    if twice := [name for name in DRAFT_FIELDS if header.count(name) > 1]:
        raise ValidationError(_("These columns are there twice: %(names)s.") % {"names": ", ".join(twice)})
    if missing := [name for name in REQUIRED if name not in header]:
        raise ValidationError(_("These columns are missing: %(names)s.") % {"names": ", ".join(missing)})
    if not rows:
        raise ValidationError(_("There are no rows below the heading."))
    if len(rows) > ROWS_MAX:
        raise ValidationError(
            _("There are %(rows)s rows, and an import takes at most %(max)s: split the file.")
            % {"rows": len(rows), "max": ROWS_MAX}
        )
    if uneven := [str(number) for number, row in enumerate(rows, start=1) if len(row) != len(header)]:
        raise ValidationError(
            _("Rows with more or fewer cells than the heading: %(rows)s.") % {"rows": ", ".join(uneven[:20])}
        )
