"""The ``--activity ID`` option that several commands share."""

from django.core.management.base import CommandParser

from activities.models import Activity
from activities.querysets import ActivityQuerySet
from seize.management.base import UsageError


def activity_option(parser: CommandParser) -> None:
    """Add ``--activity ID``."""
    parser.add_argument("--activity", type=int, help="only this activity's id")


def activities_selected(activity_id: int | None) -> ActivityQuerySet:
    """The watched activities, or the one that was named.

    :raises UsageError: there is no such one.
    """
    watched = Activity.objects.watched().order_by("id")
    if activity_id is None:
        return watched
    if not watched.filter(pk=activity_id).exists():
        raise UsageError(f"there is no published, unsettled activity {activity_id}.")
    return watched.filter(pk=activity_id)
