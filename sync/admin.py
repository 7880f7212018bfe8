"""Back office of sync: dead letters and decisions, reconciliations, and the beat entries under the site's look."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
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

from activities.actors import actor_of
from activities.confirmation import ReasonForm, confirmation_button, confirmation_view
from activities.readonly import ReadOnlyAdmin
from sync.letters import LetterRefused, letter_discard, letter_replay
from sync.models import DeadLetter, Reconciliation

for model in (ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule):
    admin.site.unregister(model)


DECISIONS = {
    "replay": (letter_replay, _("Replay"), _("Turn this claim into the coupon that the shopper was promised?")),
    "discard": (
        letter_discard,
        _("Discard"),
        _("Give this claim up? Its coupon becomes free, and the shopper does not get it. This cannot be undone."),
    ),
}


@admin.register(DeadLetter)
class DeadLetterAdmin(ReadOnlyAdmin):
    """Claims that could not become coupons: why, since when, and the two decisions."""

    list_display = ("id", "activity_id", "user_id", "seq", "reason", "state", "created_at", "decided_by")
    list_filter = ("state", "reason")
    search_fields = ("activity_id__exact", "user_id__exact", "field")
    actions_detail = tuple(DECISIONS)

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        letter = self.get_object(request, object_id)
        waiting = letter is not None and letter.state == DeadLetter.State.WAITING
        if not waiting or not request.user.has_perm("sync.decide_deadletter"):
            return []
        buttons: list[Any] = super().get_actions_detail(request, object_id)
        return buttons

    def change_view_of(self, request: HttpRequest, object_id: str, change: str) -> HttpResponse:
        """Ask for the reason, decide, and say what came of it."""
        if not request.user.has_perm("sync.decide_deadletter"):
            raise PermissionDenied
        letter = self.get_object(request, object_id)
        if letter is None:
            raise Http404
        decide, label, question = DECISIONS[change]
        return confirmation_view(
            self,
            request,
            subject=letter,
            label=label,
            question=question,
            form=ReasonForm(request.POST if request.method == "POST" else None),
            call=lambda data: decide(
                letter_id=letter.pk, reason=data["reason"], by=actor_of(request), now=timezone.now()
            ),
            refusal=LetterRefused,
            is_final=change == "discard",
        )

    replay = confirmation_button("replay", DECISIONS["replay"][1])
    discard = confirmation_button("discard", DECISIONS["discard"][1])


@admin.register(Reconciliation)
class ReconciliationAdmin(ReadOnlyAdmin):
    """The last reconciliation of each activity."""

    list_display = ("activity", "state", "checked_at", "claims", "sold_first", "sold_last", "differing_runs")
    list_filter = ("state",)
    list_select_related = ("activity",)


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
