"""Coupons whose time is over, and those of withdrawn activities: what already holds is stored."""

from datetime import datetime

from activities.contention import contention_retried
from activities.models import Coupon
from activities.querysets import CouponQuerySet
from activities.statuses import CouponStatus

CHUNK = 1000  # rows an UPDATE: locks stay short beside drains and checkouts


def coupons_expire(*, now: datetime) -> dict[str, int]:
    """Store what already holds: overdue coupons are EXPIRED, unused ones of voided activities VOIDED (S34).

    In chunks ordered by id, each its own transaction, so that whoever waits beside it waits for moments only. A coupon
    that is redeemed in between stays redeemed. Returns how many of each.
    """
    return {
        "voided": _chunks_mark(Coupon.objects.orphaned(), status=CouponStatus.VOIDED),
        "expired": _chunks_mark(Coupon.objects.overdue(now=now), status=CouponStatus.EXPIRED),
    }


def _chunks_mark(rows: CouponQuerySet, *, status: CouponStatus) -> int:
    changed = 0
    while True:
        chunk = sorted(rows.order_by().values_list("id", flat=True)[:CHUNK])
        changed += _unused_mark(ids=chunk, status=status)
        if len(chunk) < CHUNK:
            return changed


@contention_retried
def _unused_mark(*, ids: list[int], status: CouponStatus) -> int:
    return Coupon.objects.filter(id__in=ids, status=CouponStatus.UNUSED).update(status=status)
