"""The coupons of many claims in one statement are those that each claim would become by itself."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import DataError, IntegrityError, transaction
from django.utils import timezone

from activities.coupons import coupon_of, coupons_insert
from activities.models import Coupon
from seize.claims import Claim
from tests.factories import DraftFactory, moments_from, percent_terms

pytestmark = pytest.mark.django_db(transaction=True)

NOW_MS = 1_764_454_329_123


def claims_of(activity, *users: int) -> list[Claim]:
    return [Claim(activity.pk, user, 1 + user % 2, NOW_MS + user % 1000 // 2, activity.uid) for user in users]


def columns(coupon: Coupon) -> dict[str, object]:
    return {
        field.attname: getattr(coupon, field.attname) for field in Coupon._meta.concrete_fields if field.name != "id"
    }


@pytest.mark.parametrize(
    "terms",
    [
        {},
        percent_terms(),
        {**percent_terms(), "max_off": None, "min_spend": Decimal("0.00")},
        {"valid_days": None, "valid_until": timedelta(days=3, microseconds=7)},  # from now
        {"status": "VOIDED"},
        {"amount_off": Decimal("99999999.99"), "min_spend": Decimal("0.01")},
    ],
)
def test_every_column_is_the_one_that_saving_the_coupon_would_write(terms):
    activity = DraftFactory(stock_total=100, per_user_limit=2, **moments_from(timezone.now(), terms))
    activity.refresh_from_db()
    claims = claims_of(activity, 1, 2, 3, 2**63 - 1)
    coupons_insert(claims=claims, activity=activity)
    written = [columns(coupon) for coupon in Coupon.objects.order_by("user_id")]
    Coupon.objects.all().delete()
    for claim in claims:
        coupon_of(claim, activity).save()
    assert written == [columns(coupon) for coupon in Coupon.objects.order_by("user_id")]
    assert len(written) == 4


def test_no_claims_are_no_statement(django_assert_num_queries):
    activity = DraftFactory()
    with django_assert_num_queries(0):
        coupons_insert(claims=[], activity=activity)


def test_many_claims_are_one_statement(django_assert_num_queries):
    activity = DraftFactory(stock_total=5000)
    claims = claims_of(activity, *range(1, 2001))
    with django_assert_num_queries(1):
        coupons_insert(claims=claims, activity=activity)
    assert Coupon.objects.filter(activity=activity).count() == 2000


def test_one_that_exists_or_does_not_fit_keeps_all_from_being_written():
    activity = DraftFactory(stock_total=10)
    coupons_insert(claims=claims_of(activity, 3), activity=activity)
    with pytest.raises(IntegrityError), transaction.atomic():
        coupons_insert(claims=claims_of(activity, 1, 2, 3, 4), activity=activity)
    with pytest.raises(DataError), transaction.atomic():
        coupons_insert(claims=[*claims_of(activity, 1, 2), Claim(activity.pk, 9, -1, NOW_MS, "x")], activity=activity)
    assert list(Coupon.objects.values_list("user_id", flat=True)) == [3]
