"""What staff say about who may seize an activity's coupons, and how fast; in force within a second, also in a sale."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connection
from django.utils.translation import gettext as _

from activities import admission
from activities.audit import SYSTEM, Action, Actor
from activities.contention import contention_retried
from activities.models import ACCESS_FIELDS, LISTED_MAX, Activity, Audience, Listed
from activities.workflow import ActivityRefused, activity_changing

_CHUNK = 1000
_INSERT = f"INSERT INTO {Listed._meta.db_table} (activity_id, user_id, verdict) VALUES (%s, %s, %s)"  # noqa: S608 - no input
COUNTED = {Listed.Verdict.ALLOW: "let_in", Listed.Verdict.DENY: "kept_out"}  # how the audit calls the lists


def access_check(activity: Activity) -> None:
    """Whether the columns of ``ACCESS_FIELDS`` may be as they are, each by itself and together.

    :raises ValidationError: by field.
    """
    activity.clean_fields(exclude={field.name for field in activity._meta.fields} - set(ACCESS_FIELDS))
    activity.access_clean()


@contention_retried
def activity_access_change(
    *,
    activity_id: int,
    values: Mapping[str, Any],
    now: datetime,
    by: Actor = SYSTEM,
    expected_version: int | None = None,
) -> Activity:
    """Set any of ``ACCESS_FIELDS``.

    :param expected_version: the version that whoever asks has seen; another one by now is refused.
    :raises ActivityRefused: over or voided, changed meanwhile, or a value that cannot be.
    """
    with activity_changing(Action.ACCESS, activity_id=activity_id, by=by, now=now) as activity:
        _version_check(activity, expected_version)
        for name in ACCESS_FIELDS:
            if name in values:
                setattr(activity, name, values[name])
        try:
            access_check(activity)
        except ValidationError as error:
            raise ActivityRefused(" ".join(error.messages)) from error
        if activity.audience == Audience.STAFF:
            admission.staff_tell()
    return activity


@contention_retried
def activity_listed_replace(
    *,
    activity_id: int,
    verdict: Listed.Verdict,
    user_ids: Sequence[int],
    now: datetime,
    by: Actor = SYSTEM,
    expected_version: int | None = None,
) -> Activity:
    """Replace the list of those let in, or of those kept out, by another one; an empty one limits nobody.

    The audit says how many were on it before and after, not who: ids of shoppers would stay there for good.

    :param user_ids: shoppers, in any order.
    :param expected_version: as of :func:`activity_access_change`.
    :raises ActivityRefused: over or voided, changed meanwhile, too many, or somebody is on the other list already.
    """
    if len(user_ids) > LISTED_MAX:
        raise ActivityRefused(_("A list may have at most %(max)s shoppers.") % {"max": LISTED_MAX})
    counted: dict[str, tuple[int, int]] = {}
    with activity_changing(Action.LISTED, activity_id=activity_id, by=by, now=now, counted=counted) as activity:
        _version_check(activity, expected_version)
        there = dict(Listed.objects.filter(activity=activity).values_list("user_id", "verdict"))
        if on_both := [user_id for user_id in user_ids if there.get(user_id, verdict) != verdict]:
            raise ActivityRefused(
                _("%(number)s of them are on the other list, for example shopper %(shopper)s.")
                % {"number": len(on_both), "shopper": min(on_both)}
            )
        before = {user_id for user_id, found in there.items() if found == verdict}
        after = set(user_ids)
        _listed_move(activity, verdict, remove=before - after, add=after - before)
        counted[COUNTED[verdict]] = (len(before), len(after))
        activity.listed_version += 1
    return activity


def _listed_move(activity: Activity, verdict: Listed.Verdict, *, remove: set[int], add: set[int]) -> None:
    """Write only what differs, in the order that the index has: the activity's row is locked meanwhile.

    Of 100,000 rows the database makes a third of a second, and model objects three more: so none are made.
    """
    gone = sorted(remove)
    for start in range(0, len(gone), _CHUNK):
        Listed.objects.filter(activity=activity, user_id__in=gone[start : start + _CHUNK]).delete()
    rows = [(activity.pk, user_id, verdict.value) for user_id in sorted(add)]
    with connection.cursor() as cursor:
        for start in range(0, len(rows), _CHUNK):
            cursor.executemany(_INSERT, rows[start : start + _CHUNK])


def _version_check(activity: Activity, expected: int | None) -> None:
    if expected is not None and activity.version != expected:
        raise ActivityRefused(_("Somebody else changed it meanwhile: open it again."))
