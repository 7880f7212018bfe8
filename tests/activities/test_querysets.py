"""Two ways to ask for coupons of a status, one a shopper's and one for a page of all: they must mean the same."""

from datetime import timedelta

import pytest
from django.utils import timezone

from activities.models import Coupon
from activities.statuses import CouponStatus
from tests.factories import DraftFactory, issued

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def now():
    """Coupons in every stored status, before and after their end, of a running and of two voided activities."""
    now = timezone.now()
    on, void, emptied = DraftFactory(status="ACTIVE"), DraftFactory(status="VOIDED"), DraftFactory(status="VOIDED")
    user_id = 0
    for activity in (on, void):
        for status in CouponStatus.values:
            for end in (now - HOUR, now, now + HOUR, now + 2 * HOUR):
                user_id += 1
                used = {"order_id": "A", "redeemed_at": now, "uses": 1} if status == "REDEEMED" else {}
                issued(activity, user_id=user_id, status=status, expires_at=end, **used)
    issued(emptied, status="VOIDED", expires_at=now + HOUR)
    return now


@pytest.mark.parametrize("status", CouponStatus.values)
def test_page_of_a_status_has_the_coupons_that_have_it_and_no_other(now, status):
    found = list(Coupon.objects.effective_page(status, now=now))
    assert {coupon.pk for coupon in found} == set(
        Coupon.objects.effective(status, now=now).values_list("pk", flat=True)
    )
    assert {coupon.effective_status(now=now) for coupon in found} == {status}
    assert len(found) == {"UNUSED": 2, "REDEEMED": 8, "EXPIRED": 10, "VOIDED": 13}[status]


@pytest.mark.parametrize("status", CouponStatus.values)
def test_page_of_a_status_has_first_what_expires_last(now, status):
    found = list(Coupon.objects.effective_page(status, now=now))
    for stored in CouponStatus.values:  # those that are not yet stored so stand together
        ends = [(coupon.expires_at, coupon.pk) for coupon in found if coupon.status == stored]
        if status != "VOIDED":
            assert ends == sorted(ends, reverse=True)


def test_page_of_a_status_keeps_what_was_asked_before(now):
    user_id = Coupon.objects.effective("VOIDED", now=now).order_by("id")[0].user_id
    assert Coupon.objects.filter(user_id=user_id).effective_page("VOIDED", now=now).count() == 1
    assert Coupon.objects.filter(user_id=0).effective_page("EXPIRED", now=now).count() == 0
