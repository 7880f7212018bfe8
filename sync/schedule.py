"""All beat entries, as django-celery-beat stores them; staff may edit them afterwards."""

from dataclasses import dataclass

from django.db import transaction
from django_celery_beat.models import IntervalSchedule, PeriodicTask


@dataclass(frozen=True, slots=True)
class Beat:
    """One entry: the task of this name, every so many seconds; its message expires after ``expires_s``, or never."""

    name: str
    every_s: int
    expires_s: int | None
    description: str


BEATS = (
    Beat("sync.dispatch", 1, 2, "Compare Redis with the ledger; drain waiting queues."),
    Beat("sync.sweep", 60, None, "Safety net: all that dispatch does, and never expires."),
    Beat("sync.refresh_statuses", 60, 50, "Stored statuses follow the clock; settle what is long over."),
    Beat("sync.preheat", 60, 50, "Rules and the activity list, of what runs or starts within a month."),
    Beat(
        "sync.reconcile", 60, 50, "Hold Redis against the ledger; differences are reported, and repaired by a rebuild."
    ),
    Beat("sync.keep_counts", 60, 50, "Counted outcomes for reports, and totals by the day, are kept in the ledger."),
    Beat("sync.expire_coupons", 60, 50, "Overdue coupons expire, coupons of voided activities become void."),
)


@transaction.atomic
def schedule_create() -> list[str]:
    """Create entries that are missing; never touch one that is there. Returns the names created."""
    created = []
    for beat in BEATS:
        if PeriodicTask.objects.filter(name=beat.name).exists():
            continue
        interval, _made = IntervalSchedule.objects.get_or_create(every=beat.every_s, period=IntervalSchedule.SECONDS)
        PeriodicTask.objects.create(
            name=beat.name,
            task=beat.name,
            interval=interval,
            expire_seconds=beat.expires_s,
            description=beat.description,
        )
        created.append(beat.name)
    return created
