"""The one rule of what state an activity or a coupon is in: the stored status, corrected by the clock."""

from datetime import datetime
from typing import TypeVar

from django.db import models
from django.utils.translation import gettext_lazy as _

Moment = TypeVar("Moment", datetime, int)


class ActivityStatus(models.TextChoices):
    """What is stored."""

    DRAFT = "DRAFT", _("Draft")
    SUBMITTED = "SUBMITTED", _("Submitted")
    APPROVED = "APPROVED", _("Approved")
    PENDING = "PENDING", _("Pending")
    ACTIVE = "ACTIVE", _("Active")
    PAUSED = "PAUSED", _("Paused")
    ENDED = "ENDED", _("Ended")
    VOIDED = "VOIDED", _("Voided")


class EffectiveStatus(models.TextChoices):
    """What holds at an instant, as every list, page, filter and answer shows it."""

    DRAFT = "draft", _("Draft")
    SUBMITTED = "submitted", _("Submitted")
    APPROVED = "approved", _("Approved")
    UPCOMING = "upcoming", _("Upcoming")
    ONGOING = "ongoing", _("Ongoing")
    PAUSED = "paused", _("Paused")
    ENDED = "ended", _("Ended")
    VOIDED = "voided", _("Voided")


UNPUBLISHED = {  # what no shopper has seen
    ActivityStatus.DRAFT: EffectiveStatus.DRAFT,
    ActivityStatus.SUBMITTED: EffectiveStatus.SUBMITTED,
    ActivityStatus.APPROVED: EffectiveStatus.APPROVED,
}


class CouponStatus(models.TextChoices):
    """What a coupon's row stores."""

    UNUSED = "UNUSED", _("Unused")
    REDEEMED = "REDEEMED", _("Redeemed")
    EXPIRED = "EXPIRED", _("Expired")
    VOIDED = "VOIDED", _("Voided")


def activity_status(*, status: str, starts_at: Moment, ends_at: Moment, now: Moment) -> EffectiveStatus:
    """The effective status at ``now``; the end is exclusive. Datetimes or integers, all of one kind."""
    if status in UNPUBLISHED:
        return UNPUBLISHED[ActivityStatus(status)]
    if status == ActivityStatus.VOIDED:
        return EffectiveStatus.VOIDED
    if status == ActivityStatus.ENDED or now >= ends_at:
        return EffectiveStatus.ENDED
    if status == ActivityStatus.PAUSED:
        return EffectiveStatus.PAUSED
    return EffectiveStatus.UPCOMING if now < starts_at else EffectiveStatus.ONGOING


def effective_filter(*, effective: str, now: datetime) -> models.Q:
    """The condition on activities that :func:`activity_status` calls ``effective`` at ``now``."""
    stored = ActivityStatus
    running = models.Q(status__in=[stored.PENDING, stored.ACTIVE], ends_at__gt=now)
    match EffectiveStatus(effective):
        case EffectiveStatus.DRAFT | EffectiveStatus.SUBMITTED | EffectiveStatus.APPROVED:
            return models.Q(status=effective.upper())
        case EffectiveStatus.VOIDED:
            return models.Q(status=stored.VOIDED)
        case EffectiveStatus.ENDED:
            passed = models.Q(status__in=[stored.PENDING, stored.ACTIVE, stored.PAUSED], ends_at__lte=now)
            return models.Q(status=stored.ENDED) | passed
        case EffectiveStatus.PAUSED:
            return models.Q(status=stored.PAUSED, ends_at__gt=now)
        case EffectiveStatus.UPCOMING:
            return running & models.Q(starts_at__gt=now)
        case EffectiveStatus.ONGOING:
            return running & models.Q(starts_at__lte=now)


def coupon_status(*, status: str, activity_stored: str, expires_at: datetime, now: datetime) -> CouponStatus:
    """The effective status of a coupon: an unused one is voided with its activity, and expires by the clock."""
    if status != CouponStatus.UNUSED:
        return CouponStatus(status)
    if activity_stored == ActivityStatus.VOIDED:
        return CouponStatus.VOIDED
    return CouponStatus.EXPIRED if now >= expires_at else CouponStatus.UNUSED


def effective_coupon_filter(*, effective: str, now: datetime) -> models.Q:
    """The condition on coupons that :func:`coupon_status` calls ``effective`` at ``now``."""
    unused = models.Q(status=CouponStatus.UNUSED)
    voided = unused & models.Q(activity__status=ActivityStatus.VOIDED)
    overdue = unused & ~models.Q(activity__status=ActivityStatus.VOIDED) & models.Q(expires_at__lte=now)
    match CouponStatus(effective):
        case CouponStatus.UNUSED:
            return unused & ~models.Q(activity__status=ActivityStatus.VOIDED) & models.Q(expires_at__gt=now)
        case CouponStatus.VOIDED:
            return models.Q(status=CouponStatus.VOIDED) | voided
        case CouponStatus.EXPIRED:
            return models.Q(status=CouponStatus.EXPIRED) | overdue
        case CouponStatus.REDEEMED:
            return models.Q(status=CouponStatus.REDEEMED)
