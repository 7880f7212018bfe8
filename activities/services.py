"""What staff do to an activity that is approved: put it on offer, pause it, add stock, move its end, withdraw it."""

from datetime import datetime

from django.utils.translation import gettext as _

from activities import admission
from activities.audit import SYSTEM, Action, Actor
from activities.contention import contention_retried
from activities.models import STOCK_MAX, Activity, AuditEvent
from activities.statuses import ActivityStatus
from activities.workflow import ActivityRefused, activity_changing, reason_check, sellable_check


@contention_retried
def activity_publish(*, activity_id: int, now: datetime, by: Actor = SYSTEM) -> Activity:
    """Put an approved activity on offer: from ``starts_at`` by Redis' clock.

    :raises ActivityRefused: not approved, over before it began, or not valid.
    """
    with activity_changing(Action.PUBLISH, activity_id=activity_id, by=by, now=now) as activity:
        sellable_check(activity, now=now)
        activity.status = ActivityStatus.PENDING if now < activity.starts_at else ActivityStatus.ACTIVE
        admission.shard_unload(activity=activity)
    return activity


@contention_retried
def activity_pause(*, activity_id: int, now: datetime, by: Actor = SYSTEM) -> Activity:
    """Stop seizing at once, until it is resumed.

    :raises ActivityRefused: neither upcoming nor ongoing.
    """
    with activity_changing(Action.PAUSE, activity_id=activity_id, by=by, now=now) as activity:
        activity.status = ActivityStatus.PAUSED
        admission.activity_close(activity=activity, state="paused")
    return activity


@contention_retried
def activity_resume(*, activity_id: int, now: datetime, by: Actor = SYSTEM) -> Activity:
    """Go on after a pause.

    :raises ActivityRefused: not paused.
    """
    with activity_changing(Action.RESUME, activity_id=activity_id, by=by, now=now) as activity:
        activity.status = ActivityStatus.PENDING if now < activity.starts_at else ActivityStatus.ACTIVE
    return activity


class _CarriedOut(Exception):
    """This request was carried out before."""


@contention_retried
def activity_add_stock(
    *,
    activity_id: int,
    amount: int,
    now: datetime,
    by: Actor = SYSTEM,
    expected_total: int | None = None,
    request_id: str | None = None,
) -> Activity:
    """Offer ``amount`` more coupons; the stock in Redis moves by the difference.

    :param expected_total: the total that whoever asks has seen; another one by now is refused.
    :param request_id: the same one again changes nothing: a form that was sent twice adds once.
    :raises ActivityRefused: over or voided, not a sensible amount, or not the expected total.
    """
    try:
        with activity_changing(
            Action.ADD_STOCK, activity_id=activity_id, by=by, now=now, request_id=request_id
        ) as activity:
            if request_id is not None and AuditEvent.objects.filter(request_id=request_id).exists():
                raise _CarriedOut
            if expected_total is not None and activity.stock_total != expected_total:
                raise ActivityRefused(
                    _("The total is %(total)s by now: somebody else added stock. Open the page again.")
                    % {"total": activity.stock_total}
                )
            if amount < 1:
                raise ActivityRefused(_("Stock can only be added: give a number from 1."))
            if activity.stock_total + amount > STOCK_MAX:
                raise ActivityRefused(_("An activity may have at most %(max)s coupons.") % {"max": STOCK_MAX})
            activity.stock_total += amount
    except _CarriedOut:
        return Activity.objects.get(pk=activity_id)
    return activity


@contention_retried
def activity_change_end(*, activity_id: int, ends_at: datetime, now: datetime, by: Actor = SYSTEM) -> Activity:
    """Move the end, earlier or later; an earlier end closes Redis before it is committed.

    :raises ActivityRefused: over or voided, or the new end is past, before the start, or after the validity.
    """
    with activity_changing(Action.CHANGE_END, activity_id=activity_id, by=by, now=now) as activity:
        if ends_at <= now:
            raise ActivityRefused(_("The end must lie in the future."))
        if ends_at <= activity.starts_at:
            raise ActivityRefused(_("The end must be after the start."))
        if activity.valid_until is not None and ends_at > activity.valid_until:
            raise ActivityRefused(_("Coupons must stay valid until the activity ends."))
        if ends_at < activity.ends_at:
            admission.activity_close(activity=activity, state="paused")
        activity.ends_at = ends_at
    return activity


@contention_retried
def activity_void(*, activity_id: int, reason: str, now: datetime, by: Actor = SYSTEM) -> Activity:
    """Withdraw an activity for good: seizing stops, unused coupons become void, waiting claims too.

    Coupons count as void from this commit on; their rows follow in chunks by ``sync.expire_coupons``.

    :raises ActivityRefused: not published, over or voided already, or no reason given.
    """
    with activity_changing(Action.VOID, activity_id=activity_id, by=by, now=now, reason=reason) as activity:
        activity.void_reason = reason_check(reason)
        activity.status = ActivityStatus.VOIDED
        admission.activity_close(activity=activity, state="voided")
    return activity


def statuses_refresh(*, now: datetime) -> dict[str, int]:
    """Bring stored statuses up to the clock (S22); only a convenience, since every reader applies the clock itself."""
    pending, active, paused = ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.PAUSED
    ended = Activity.objects.filter(status__in=[pending, active, paused], ends_at__lte=now)
    started = Activity.objects.filter(status=pending, starts_at__lte=now, ends_at__gt=now)
    return {
        "ended": ended.update(status=ActivityStatus.ENDED),
        "started": started.update(status=ActivityStatus.ACTIVE),
    }
