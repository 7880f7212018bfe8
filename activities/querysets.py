"""Which activities and coupons a question is about."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.apps import apps
from django.conf import settings
from django.db import models
from django.db.models import Exists, F, OuterRef, Q

from activities.statuses import (
    UNPUBLISHED,
    ActivityStatus,
    CouponStatus,
    effective_coupon_filter,
    effective_filter,
)
from seize.keys import SHARDS

if TYPE_CHECKING:
    from activities.models import Activity, Coupon  # noqa: F401 - for the annotations

UNFINISHED = [ActivityStatus.PENDING, ActivityStatus.ACTIVE, ActivityStatus.PAUSED]


class ActivityQuerySet(models.QuerySet["Activity"]):
    """Questions about activities."""

    def effective(self, effective: str, *, now: datetime) -> "ActivityQuerySet":
        """Those whose effective status at ``now`` is this."""
        return self.filter(effective_filter(effective=effective, now=now))

    def published(self) -> "ActivityQuerySet":
        """Those that shoppers may ever have seen."""
        return self.exclude(status__in=UNPUBLISHED)

    def watched(self) -> "ActivityQuerySet":
        """Those whose holders and stock must be right in Redis: published and not yet settled."""
        return self.published().filter(settled_at=None)

    def in_shards(self, shards: Collection[int]) -> "ActivityQuerySet":
        """Those whose keys lie in these shards."""
        return self.annotate(shard=F("id") % SHARDS).filter(shard__in=shards)

    def listed(self, *, now: datetime) -> "ActivityQuerySet":
        """Those for ``ACTIVITY:LIST``: running or starting within a month (S15), or over since a few days."""
        soon = now + timedelta(days=settings.PREHEAT_DAYS)
        lately = now - timedelta(days=settings.LIST_ENDED_DAYS)
        return self.published().filter(starts_at__lt=soon, ends_at__gt=lately)

    def overlapping(self, activity: "Activity", *, now: datetime) -> "ActivityQuerySet":
        """Others that are approved or on offer while this one is, from ``now`` on."""
        others = self.exclude(pk=activity.pk).filter(status__in=[ActivityStatus.APPROVED, *UNFINISHED])
        return others.filter(starts_at__lt=activity.ends_at, ends_at__gt=max(activity.starts_at, now))


class CouponQuerySet(models.QuerySet["Coupon"]):
    """Questions about coupons."""

    def effective(self, effective: str, *, now: datetime) -> "CouponQuerySet":
        """Those whose effective status at ``now`` is this."""
        return self.filter(effective_coupon_filter(effective=effective, now=now))

    def effective_page(self, effective: str, *, now: datetime) -> "CouponQuerySet":
        """The same for a page of everybody's coupons, in the order of ``coupon_expiry``: what expires last comes first.

        Such a page reads as many rows as it shows. In the order of ids it would pass by, or sort, as many as the table
        has; with the activities joined as well, since a planner likes to begin with the smaller table.
        """
        unused = Q(status=CouponStatus.UNUSED)
        voided = apps.get_model("activities", "Activity").objects.filter(status=ActivityStatus.VOIDED).order_by()
        not_voided = ~Q(activity__in=voided.values("id"))
        newest_end = ("-expires_at", "-id")
        match CouponStatus(effective):
            case CouponStatus.UNUSED:
                return self.filter(unused & Q(expires_at__gt=now) & not_voided).order_by(*newest_end)
            case CouponStatus.EXPIRED:
                overdue = unused & Q(expires_at__lte=now) & not_voided
                # Overdue ones first, then those that are stored so: still one walk along the index.
                rows = self.filter(Q(status=CouponStatus.EXPIRED) | overdue)
                return rows.order_by("-status", *newest_end)
            case CouponStatus.VOIDED:
                # For a minute after an activity was voided. That there is none left costs one look an activity.
                unused_of = self.model.objects.filter(unused, activity=OuterRef("pk")).order_by()
                orphaned = list(voided.filter(Exists(unused_of)).values_list("id", flat=True))
                rows = self.filter(Q(status=CouponStatus.VOIDED) | unused & Q(activity__in=orphaned))
                return rows.order_by(*newest_end)
            case CouponStatus.REDEEMED:
                return self.filter(status=CouponStatus.REDEEMED).order_by(*newest_end)

    def overdue(self, *, now: datetime) -> "CouponQuerySet":
        """Stored as unused though their time is over."""
        return self.filter(status="UNUSED", expires_at__lte=now)

    def orphaned(self) -> "CouponQuerySet":
        """Stored as unused though their activity is voided."""
        return self.filter(Q(status="UNUSED") & Q(activity__status=ActivityStatus.VOIDED))
