"""What staff may do to an activity. Every change takes the row's lock, raises the version, and tells Redis.

What may happen when:

=========== ======= ======== ======= ======= ===== ======
effective   publish pause    resume  stock   end   void
=========== ======= ======== ======= ======= ===== ======
draft       yes     –        –       –       –     –
upcoming    –       yes      –       yes     yes   yes
ongoing     –       yes      –       yes     yes   yes
paused      –       –        yes     yes     yes   yes
ended       –       –        –       –       –     –
voided      –       –        –       –       –     –
=========== ======= ======== ======= ======= ===== ======
"""

from datetime import datetime
from functools import partial

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.functional import Promise
from django.utils.translation import gettext as _

from activities import admission
from activities.contention import contention_retried
from activities.models import STOCK_MAX, Activity
from activities.statuses import ActivityStatus, EffectiveStatus

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

LEGAL: dict[str, frozenset[EffectiveStatus]] = {
    "publish": frozenset({EffectiveStatus.DRAFT}),
    "pause": frozenset({EffectiveStatus.UPCOMING, EffectiveStatus.ONGOING}),
    "resume": frozenset({EffectiveStatus.PAUSED}),
    **dict.fromkeys(
        ("add_stock", "change_end", "void"),
        frozenset({EffectiveStatus.UPCOMING, EffectiveStatus.ONGOING, EffectiveStatus.PAUSED}),
    ),
}


class ActivityRefused(Exception):
    """The change is not allowed now; ``str()`` is the reason for the staff. Nothing was changed."""

    def __init__(self, reason: str | Promise) -> None:
        super().__init__(str(reason))


def activity_may(*, activity: Activity, change: str, now: datetime) -> bool:
    """Whether a change of ``LEGAL`` is allowed in the effective status at ``now``."""
    return activity.effective_status(now=now) in LEGAL[change]


def _activity_lock(*, activity_id: int, change: str, now: datetime) -> Activity:
    """Lock the row and check the change against it, not against what a page showed."""
    activity = Activity.objects.select_for_update().get(pk=activity_id)
    if not activity_may(activity=activity, change=change, now=now):
        status = activity.effective_status(now=now).label
        raise ActivityRefused(_("This is not possible for an activity that is: %(status)s.") % {"status": status})
    return activity


def _activity_commit(activity: Activity, *fields: str) -> Activity:
    """Write the named fields and nothing else, and tell Redis once it is committed."""
    activity.version += 1
    activity.save(update_fields=[*fields, "version"])
    transaction.on_commit(partial(admission.activity_admit, activity_id=activity.pk))
    return activity


def draft_check(*, stored: Activity, version: int) -> None:
    """Whether a form that was opened at ``version`` may still be saved.

    :raises ActivityRefused: published or edited by somebody else since.
    """
    if stored.status != ActivityStatus.DRAFT:
        raise ActivityRefused(_("It was published meanwhile: its terms are fixed now."))
    if stored.version != version:
        raise ActivityRefused(_("Somebody else changed it meanwhile: open it again."))


def activity_draft_save(*, activity: Activity) -> Activity:
    """Store a new draft, or the editable fields of one that is still a draft and as this form read it.

    :raises ActivityRefused: published or edited by somebody else since ``activity`` was read.
    """
    if activity._state.adding:
        activity.save()
        return activity
    with transaction.atomic():
        stored = Activity.objects.select_for_update().get(pk=activity.pk)
        draft_check(stored=stored, version=activity.version)
        activity.version += 1
        activity.save(update_fields=[*DRAFT_FIELDS, "version"])
    return activity


@contention_retried
def activity_draft_delete(*, activity_id: int) -> None:
    """Delete a draft that is still one.

    :raises ActivityRefused: published meanwhile: what shoppers may have seen stays.
    """
    with transaction.atomic():
        stored = Activity.objects.select_for_update().get(pk=activity_id)
        if stored.status != ActivityStatus.DRAFT:
            raise ActivityRefused(_("It was published meanwhile and cannot be deleted any more."))
        stored.delete()


@contention_retried
def activity_publish(*, activity_id: int, now: datetime) -> Activity:
    """Put a draft on offer: from ``starts_at`` by Redis' clock.

    :raises ActivityRefused: not a draft, over before it began, or not valid.
    """
    with transaction.atomic():
        activity = _activity_lock(activity_id=activity_id, change="publish", now=now)
        if now >= activity.ends_at:
            raise ActivityRefused(_("Its end has passed: move the end first."))
        try:
            activity.full_clean()
        except ValidationError as error:
            raise ActivityRefused(" ".join(error.messages)) from error
        activity.status = ActivityStatus.PENDING if now < activity.starts_at else ActivityStatus.ACTIVE
        admission.shard_unload(activity=activity)
        return _activity_commit(activity, "status")


@contention_retried
def activity_pause(*, activity_id: int, now: datetime) -> Activity:
    """Stop seizing at once, until it is resumed.

    :raises ActivityRefused: neither upcoming nor ongoing.
    """
    with transaction.atomic():
        activity = _activity_lock(activity_id=activity_id, change="pause", now=now)
        activity.status = ActivityStatus.PAUSED
        admission.activity_close(activity=activity, state="paused")
        return _activity_commit(activity, "status")


@contention_retried
def activity_resume(*, activity_id: int, now: datetime) -> Activity:
    """Go on after a pause.

    :raises ActivityRefused: not paused.
    """
    with transaction.atomic():
        activity = _activity_lock(activity_id=activity_id, change="resume", now=now)
        activity.status = ActivityStatus.PENDING if now < activity.starts_at else ActivityStatus.ACTIVE
        return _activity_commit(activity, "status")


@contention_retried
def activity_add_stock(*, activity_id: int, amount: int, now: datetime) -> Activity:
    """Offer ``amount`` more coupons; the stock in Redis moves by the difference.

    :raises ActivityRefused: over or voided, or not a sensible amount.
    """
    with transaction.atomic():
        activity = _activity_lock(activity_id=activity_id, change="add_stock", now=now)
        if amount < 1:
            raise ActivityRefused(_("Stock can only be added: give a number from 1."))
        if activity.stock_total + amount > STOCK_MAX:
            raise ActivityRefused(_("An activity may have at most %(max)s coupons.") % {"max": STOCK_MAX})
        activity.stock_total += amount
        return _activity_commit(activity, "stock_total")


@contention_retried
def activity_change_end(*, activity_id: int, ends_at: datetime, now: datetime) -> Activity:
    """Move the end, earlier or later; an earlier end closes Redis before it is committed.

    :raises ActivityRefused: over or voided, or the new end is past, before the start, or after the validity.
    """
    with transaction.atomic():
        activity = _activity_lock(activity_id=activity_id, change="change_end", now=now)
        if ends_at <= now:
            raise ActivityRefused(_("The end must lie in the future."))
        if ends_at <= activity.starts_at:
            raise ActivityRefused(_("The end must be after the start."))
        if activity.valid_until is not None and ends_at > activity.valid_until:
            raise ActivityRefused(_("Coupons must stay valid until the activity ends."))
        if ends_at < activity.ends_at:
            admission.activity_close(activity=activity, state="paused")
        activity.ends_at = ends_at
        return _activity_commit(activity, "ends_at")


@contention_retried
def activity_void(*, activity_id: int, reason: str, now: datetime) -> Activity:
    """Withdraw an activity for good: seizing stops, unused coupons become void, waiting claims too.

    Coupons count as void from this commit on; their rows follow in chunks by ``sync.expire_coupons``.

    :raises ActivityRefused: a draft, over or voided already, or no reason given.
    """
    with transaction.atomic():
        activity = _activity_lock(activity_id=activity_id, change="void", now=now)
        if not reason.strip():
            raise ActivityRefused(_("Give a reason."))
        activity.status = ActivityStatus.VOIDED
        activity.void_reason = reason.strip()[:200]
        admission.activity_close(activity=activity, state="voided")
        return _activity_commit(activity, "status", "void_reason")


def statuses_refresh(*, now: datetime) -> dict[str, int]:
    """Bring stored statuses up to the clock (S22); only a convenience, since every reader applies the clock itself."""
    pending, active, paused = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.PAUSED
    ended = Activity.objects.filter(status__in=[pending, active, paused], ends_at__lte=now)
    started = Activity.objects.filter(status=pending, starts_at__lte=now, ends_at__gt=now)
    return {
        "ended": ended.update(status=ActivityStatus.ENDED),
        "started": started.update(status=ActivityStatus.ACTIVE),
    }
