"""What staff say about who may seize an activity's coupons, and how fast; in force within a second, also in a sale."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from activities import admission
from activities.audit import SYSTEM, Action, Actor
from activities.contention import contention_retried
from activities.models import ACCESS_FIELDS, LISTED_MAX, Activity, Audience, Listed
from activities.workflow import ActivityRefused, activity_changing

_CHUNK = 1000
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

    :param user_ids: shoppers, each once.
    :param expected_version: as of :func:`activity_access_change`.
    :raises ActivityRefused: over or voided, changed meanwhile, too many, or somebody is on the other list already.
    """
    if len(user_ids) > LISTED_MAX:
        raise ActivityRefused(_("A list may have at most %(max)s shoppers.") % {"max": LISTED_MAX})
    counted: dict[str, tuple[int, int]] = {}
    with activity_changing(Action.LISTED, activity_id=activity_id, by=by, now=now, counted=counted) as activity:
        _version_check(activity, expected_version)
        others = Listed.objects.filter(activity=activity).exclude(verdict=verdict)
        if on_both := set(user_ids).intersection(others.values_list("user_id", flat=True)):
            raise ActivityRefused(
                _("%(number)s of them are on the other list, for example shopper %(shopper)s.")
                % {"number": len(on_both), "shopper": min(on_both)}
            )
        before, _by_model = Listed.objects.filter(activity=activity, verdict=verdict).delete()
        for start in range(0, len(user_ids), _CHUNK):
            rows = [Listed(activity=activity, user_id=i, verdict=verdict) for i in user_ids[start : start + _CHUNK]]
            Listed.objects.bulk_create(rows)
        counted[COUNTED[verdict]] = (before, len(user_ids))
        activity.listed_version += 1
    return activity


def _version_check(activity: Activity, expected: int | None) -> None:
    if expected is not None and activity.version != expected:
        raise ActivityRefused(_("Somebody else changed it meanwhile: open it again."))
