"""What may be done to an activity in which state, and the frame of every change: lock, check, write, tell.

What may happen when (cloning: always):

========= ====== ======== ======= ====== ======= ===== ====== ===== === ==== ======
effective submit withdraw approve reject publish pause resume stock end void access
========= ====== ======== ======= ====== ======= ===== ====== ===== === ==== ======
draft     yes    –        –       –      –       –     –      –     –   –    yes
submitted –      yes      yes     yes    –       –     –      –     –   –    yes
approved  –      yes      –       yes    yes     –     –      –     –   –    yes
upcoming  –      –        –       –      –       yes   –      yes   yes yes  yes
ongoing   –      –        –       –      –       yes   –      yes   yes yes  yes
paused    –      –        –       –      –       –     yes    yes   yes yes  yes
ended     –      –        –       –      –       –     –      –     –   –    –
voided    –      –        –       –      –       –     –      –     –   –    –
========= ====== ======== ======= ====== ======= ===== ====== ===== === ==== ======
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from activities import admission
from activities.audit import Action, Actor, event_record
from activities.checklist import checklist_errors
from activities.models import Activity
from activities.statuses import UNPUBLISHED, EffectiveStatus

LEGAL: dict[str, frozenset[EffectiveStatus]] = {
    "submit": frozenset({EffectiveStatus.DRAFT}),
    "withdraw": frozenset({EffectiveStatus.SUBMITTED, EffectiveStatus.APPROVED}),
    "approve": frozenset({EffectiveStatus.SUBMITTED}),
    "reject": frozenset({EffectiveStatus.SUBMITTED, EffectiveStatus.APPROVED}),
    "publish": frozenset({EffectiveStatus.APPROVED}),
    "pause": frozenset({EffectiveStatus.UPCOMING, EffectiveStatus.ONGOING}),
    "resume": frozenset({EffectiveStatus.PAUSED}),
    **dict.fromkeys(
        ("add_stock", "change_end", "void"),
        frozenset({EffectiveStatus.UPCOMING, EffectiveStatus.ONGOING, EffectiveStatus.PAUSED}),
    ),
    **dict.fromkeys(("access", "listed"), frozenset(EffectiveStatus) - {EffectiveStatus.ENDED, EffectiveStatus.VOIDED}),
}


class ActivityRefused(Exception):
    """The change is not allowed now; ``str()`` is the reason for the staff. Nothing was changed."""

    def __init__(self, reason: str | Promise) -> None:
        super().__init__(str(reason))


def activity_may(*, activity: Activity, change: str, now: datetime) -> bool:
    """Whether a change of ``LEGAL`` is allowed in the effective status at ``now``."""
    return activity.effective_status(now=now) in LEGAL[change]


@contextmanager
def activity_changing(
    change: Action,
    *,
    activity_id: int,
    by: Actor,
    now: datetime,
    reason: str = "",
    request_id: str | None = None,
    counted: Mapping[str, tuple[int, int]] | None = None,
) -> Iterator[Activity]:
    """Lock the row, check the change against it and not against what a page showed, and let the caller set fields.

    Then what was set is written and nothing else, with the event that says so; and once it is committed Redis is told.

    :param counted: what no column says, by name: how many before and after. The caller fills it while it sets fields.
    :raises ActivityRefused: not possible now.
    """
    with transaction.atomic():
        activity = Activity.objects.select_for_update().get(pk=activity_id)
        if not activity_may(activity=activity, change=change, now=now):
            status = activity.effective_status(now=now).label
            raise ActivityRefused(_("This is not possible for an activity that is: %(status)s.") % {"status": status})
        before = _values(activity)
        yield activity
        after = _values(activity)
        changed = [name for name in before if after[name] != before[name]]
        told = {**(counted or {}), **{name: (before[name], after[name]) for name in changed}}
        activity.version += 1
        activity.save(update_fields=[*changed, "version"])
        event_record(
            action=change,
            subject=activity,
            by=by,
            now=now,
            before={name: was for name, (was, _now) in told.items()},
            after={name: becomes for name, (_was, becomes) in told.items()},
            reason=reason,
            request_id=request_id,
        )
        if activity.status not in UNPUBLISHED:
            transaction.on_commit(partial(admission.activity_admit, activity_id=activity.pk))


def _values(activity: Activity) -> dict[str, Any]:
    """What staff may change, by column."""
    fields = (field for field in Activity._meta.concrete_fields if field.name not in _NOT_BY_STAFF)
    return {field.attname: getattr(activity, field.attname) for field in fields}


_NOT_BY_STAFF = ("id", "uid", "issued", "version", "epoch", "settled_at", "created_at")


def reason_check(reason: str) -> str:
    """A reason as it is kept.

    :raises ActivityRefused: there is none.
    """
    if not reason.strip():
        raise ActivityRefused(_("Give a reason."))
    return reason.strip()[:200]


def sellable_check(activity: Activity, *, now: datetime) -> None:
    """What must hold of anything that is submitted or published.

    :raises ActivityRefused: over before it began, or not valid.
    """
    if errors := checklist_errors(activity=activity, now=now):
        raise ActivityRefused(" ".join(errors))
    try:  # and what only the database knows
        activity.full_clean()
    except ValidationError as error:
        raise ActivityRefused(" ".join(error.messages)) from error
