"""Back office of sync: dead letters to read, and the beat entries under the site's look."""

from django.contrib import admin
from django.http import HttpRequest
from django_celery_beat import admin as beat_admin
from django_celery_beat.models import (
    ClockedSchedule,
    CrontabSchedule,
    IntervalSchedule,
    PeriodicTask,
    SolarSchedule,
)
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from sync.models import DeadLetter

for model in (ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule):
    admin.site.unregister(model)


@admin.register(DeadLetter)
class DeadLetterAdmin(ModelAdmin):
    """Claims that could not become coupons: why and since when."""

    list_display = ("activity_id", "user_id", "seq", "reason", "state", "created_at")
    list_filter = ("reason", "state")
    search_fields = ("activity_id__exact", "user_id__exact", "field")
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: DeadLetter | None = None) -> bool:
        return False


class _TaskSelectWidget(UnfoldAdminSelectWidget, beat_admin.TaskSelectWidget):
    pass


class _PeriodicTaskForm(beat_admin.PeriodicTaskForm):
    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.fields["task"].widget = UnfoldAdminTextInputWidget()
        self.fields["regtask"].widget = _TaskSelectWidget()


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(beat_admin.PeriodicTaskAdmin, ModelAdmin):
    """The schedule that beat follows."""

    form = _PeriodicTaskForm


@admin.register(IntervalSchedule)
class IntervalScheduleAdmin(ModelAdmin):
    """Intervals that entries may use."""


@admin.register(CrontabSchedule)
class CrontabScheduleAdmin(beat_admin.CrontabScheduleAdmin, ModelAdmin):
    """Crontabs that entries may use."""


@admin.register(SolarSchedule)
class SolarScheduleAdmin(ModelAdmin):
    """Solar events that entries may use."""


@admin.register(ClockedSchedule)
class ClockedScheduleAdmin(beat_admin.ClockedScheduleAdmin, ModelAdmin):
    """Single instants that entries may use."""
