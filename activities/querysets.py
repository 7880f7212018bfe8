"""Which activities and coupons a question is about."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from activities.statuses import UNPUBLISHED, ActivityStatus, effective_coupon_filter, effective_filter
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

    def in_shard(self, shard: int) -> "ActivityQuerySet":
        """Those whose keys lie in this shard."""
        return self.annotate(shard=F("id") % SHARDS).filter(shard=shard)

    def listed(self, *, now: datetime) -> "ActivityQuerySet":
        """Those for ``ACTIVITY:LIST``: running or starting within a month (S15), or over since a few days."""
        soon = now + timedelta(days=settings.PREHEAT_DAYS)
        lately = now - timedelta(days=settings.LIST_ENDED_DAYS)
        return self.published().filter(starts_at__lt=soon, ends_at__gt=lately)


class CouponQuerySet(models.QuerySet["Coupon"]):
    """Questions about coupons."""

    def effective(self, effective: str, *, now: datetime) -> "CouponQuerySet":
        """Those whose effective status at ``now`` is this."""
        return self.filter(effective_coupon_filter(effective=effective, now=now))

    def overdue(self, *, now: datetime) -> "CouponQuerySet":
        """Stored as unused though their time is over."""
        return self.filter(status="UNUSED", expires_at__lte=now)

    def orphaned(self) -> "CouponQuerySet":
        """Stored as unused though their activity is voided."""
        return self.filter(Q(status="UNUSED") & Q(activity__status=ActivityStatus.VOIDED))
