"""An activity before it is on offer: drafted, submitted, approved by somebody else, or sent back."""

from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext as _

from activities.audit import SYSTEM, Action, Actor, event_record
from activities.contention import contention_retried
from activities.models import ACCESS_FIELDS, Activity
from activities.statuses import ActivityStatus
from activities.workflow import ActivityRefused, activity_changing, reason_check, sellable_check

DRAFT_FIELDS = (
    "name",
    "rules_text",
    *Activity.TERMS,
    "valid_days",
    "valid_until",
    "starts_at",
    "ends_at",
    "stock_total",
    "per_user_limit",
)
# Who is let in, and how fast, is copied with the terms. The lists of shoppers are not: whom one sale was for by name
# says nothing about the next, and a forgotten list of 100,000 would let in, or keep out, people whom nobody looked at.
CLONED_FIELDS = (*DRAFT_FIELDS, *ACCESS_FIELDS)


def draft_check(*, stored: Activity, version: int) -> None:
    """Whether a form that was opened at ``version`` may still be saved.

    :raises ActivityRefused: submitted, published or edited by somebody else since.
    """
    if stored.status != ActivityStatus.DRAFT:
        raise ActivityRefused(_("It is no draft any more: its terms are fixed now."))
    if stored.version != version:
        raise ActivityRefused(_("Somebody else changed it meanwhile: open it again."))


@transaction.atomic
def activity_draft_save(*, activity: Activity, now: datetime, by: Actor = SYSTEM) -> Activity:
    """Store a new draft, or the editable fields of one that is still a draft and as this form read it.

    :raises ActivityRefused: submitted, published or edited by somebody else since ``activity`` was read.
    """
    if activity._state.adding:
        activity.author_id = by.user_id
        activity.save()
        made = {name: getattr(activity, name) for name in DRAFT_FIELDS}
        event_record(action=Action.DRAFT_CREATE, subject=activity, by=by, now=now, after=made)
        return activity
    stored = Activity.objects.select_for_update().get(pk=activity.pk)
    draft_check(stored=stored, version=activity.version)
    activity.version += 1
    activity.save(update_fields=[*DRAFT_FIELDS, "version"])
    changed = [name for name in DRAFT_FIELDS if getattr(stored, name) != getattr(activity, name)]
    event_record(
        action=Action.DRAFT_EDIT,
        subject=activity,
        by=by,
        now=now,
        before={name: getattr(stored, name) for name in changed},
        after={name: getattr(activity, name) for name in changed},
    )
    return activity


@contention_retried
def activity_draft_delete(*, activity_id: int, now: datetime, by: Actor = SYSTEM) -> None:
    """Delete a draft that is still one.

    :raises ActivityRefused: submitted or published meanwhile: what was handed on stays.
    """
    with transaction.atomic():
        stored = Activity.objects.select_for_update().get(pk=activity_id)
        if stored.status != ActivityStatus.DRAFT:
            raise ActivityRefused(_("It is no draft any more and cannot be deleted."))
        was = {name: getattr(stored, name) for name in CLONED_FIELDS}
        event_record(action=Action.DRAFT_DELETE, subject=stored, by=by, now=now, before=was)
        stored.delete()


@contention_retried
def activity_clone(*, activity_id: int, now: datetime, by: Actor = SYSTEM) -> Activity:
    """A new draft with the same terms, window and access, but without lists; whoever clones it is its author."""
    with transaction.atomic():
        source = Activity.objects.get(pk=activity_id)
        fields = {name: getattr(source, name) for name in CLONED_FIELDS}
        room = Activity._meta.get_field("name").max_length or 0
        name = _("Copy of %(name)s") % {"name": source.name}
        clone = Activity(**{**fields, "name": name[:room]}, author_id=by.user_id)
        clone.save()
        event_record(action=Action.CLONE, subject=clone, by=by, now=now, after={"source": str(source.pk), **fields})
        return clone


# -- Approval ----------------------------------------------------------------------------------------------


@contention_retried
def activity_submit(*, activity_id: int, now: datetime, by: Actor = SYSTEM) -> Activity:
    """Hand a draft to whoever approves; from here on its terms are fixed.

    :raises ActivityRefused: not a draft, over before it began, or not valid.
    """
    with activity_changing(Action.SUBMIT, activity_id=activity_id, by=by, now=now) as activity:
        sellable_check(activity, now=now)
        activity.status = ActivityStatus.SUBMITTED
        activity.submitted_by_id = by.user_id
        activity.rejection = ""
    return activity


@contention_retried
def activity_withdraw(*, activity_id: int, now: datetime, by: Actor = SYSTEM) -> Activity:
    """Take a submitted or approved activity back: it is a draft again, and an approval is void.

    :raises ActivityRefused: neither submitted nor approved.
    """
    with activity_changing(Action.WITHDRAW, activity_id=activity_id, by=by, now=now) as activity:
        _back_to_draft(activity)
    return activity


@contention_retried
def activity_approve(*, activity_id: int, now: datetime, by: Actor) -> Activity:
    """Agree to what somebody else submitted; ``SELF_APPROVAL`` lets one person do both.

    :raises ActivityRefused: not submitted, no person, or the one who made or submitted it.
    """
    with activity_changing(Action.APPROVE, activity_id=activity_id, by=by, now=now) as activity:
        if by.user_id is None:
            raise ActivityRefused(_("Only a person can approve."))
        alone = by.user_id in (activity.author_id, activity.submitted_by_id)
        if alone and not settings.SELF_APPROVAL:
            raise ActivityRefused(_("You made or submitted this activity: somebody else has to approve it."))
        activity.status = ActivityStatus.APPROVED
        activity.approved_by_id, activity.approved_alone = by.user_id, alone
    return activity


@contention_retried
def activity_reject(*, activity_id: int, reason: str, now: datetime, by: Actor = SYSTEM) -> Activity:
    """Send it back to its author with a reason: it is a draft again.

    :raises ActivityRefused: neither submitted nor approved, or no reason given.
    """
    with activity_changing(Action.REJECT, activity_id=activity_id, by=by, now=now, reason=reason) as activity:
        _back_to_draft(activity)
        activity.rejection = reason_check(reason)
    return activity


def _back_to_draft(activity: Activity) -> None:
    activity.status = ActivityStatus.DRAFT
    activity.submitted_by_id = activity.approved_by_id = None
    activity.approved_alone = False
