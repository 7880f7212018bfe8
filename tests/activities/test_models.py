"""The database's own constraints, and the sentences that a form says before them."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils import timezone

from activities.models import Activity, Coupon
from tests.factories import DraftFactory, moments_from, percent_terms

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)

# Moments are so long from now.
WRONG = [
    {"stock_total": 0},
    {"per_user_limit": 0},
    {"kind": "FIXED", "amount_off": None},
    {"kind": "FIXED", "amount_off": Decimal("0.00")},
    {"kind": "FIXED", "pay_percent": 80},
    {"kind": "FIXED", "max_off": Decimal("5.00")},
    {"kind": "PERCENT", "amount_off": None, "pay_percent": None},
    {"kind": "PERCENT", "amount_off": None, "pay_percent": 0},
    {"kind": "PERCENT", "amount_off": None, "pay_percent": 100},
    {"kind": "PERCENT", "pay_percent": 80},
    {"min_spend": Decimal("-0.01")},
    {"ends_at": -HOUR},
    {"valid_days": None},
    {"valid_days": 0},
    {"valid_days": 7, "valid_until": 2 * HOUR},
    {"valid_days": None, "valid_until": timedelta(0)},
]


def draft(fields: dict[str, object]) -> Activity:
    return DraftFactory.build(**moments_from(timezone.now(), fields))


@pytest.mark.parametrize("fields", WRONG, ids=[f"{n}-{'-'.join(fields)}" for n, fields in enumerate(WRONG)])
def test_l03_impossible_activity_is_refused_by_the_form_and_by_the_database(fields):
    activity = draft(fields)
    with pytest.raises(ValidationError) as refused:
        activity.full_clean(validate_constraints=False)
    assert refused.value.messages
    with pytest.raises(IntegrityError), transaction.atomic():
        activity.save()
    assert Activity.objects.count() == 0


@pytest.mark.parametrize("fields", [{}, percent_terms(), {"valid_days": None, "valid_until": 9 * HOUR}])
def test_sensible_activity_is_valid(fields):
    activity = draft(fields)
    activity.full_clean()
    activity.save()


@pytest.mark.parametrize("issued", [-1, 11])
def test_issued_stays_within_the_stock_whoever_writes(issued):
    activity = DraftFactory(stock_total=10)
    with pytest.raises(Exception, match=r"(?i)out of range|constraint"), transaction.atomic():
        Activity.objects.filter(pk=activity.pk).update(issued=issued)


def test_coupon_exists_once_per_shopper_and_seq_and_protects_its_activity():
    activity = DraftFactory()
    now = timezone.now()
    fields = {"activity": activity, "user_id": 7, "seized_at": now, "expires_at": now, "amount_off": 20}
    Coupon.objects.create(seq=1, **fields)
    Coupon.objects.create(seq=2, **fields)
    with pytest.raises(IntegrityError), transaction.atomic():
        Coupon.objects.create(seq=2, **fields)
    with pytest.raises(ProtectedError):
        activity.delete()
    assert Coupon.objects.count() == 2


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "UTC", "America/New_York"])
def test_validity_is_days_of_24_hours_from_seizing_in_every_zone(settings, zone):
    settings.TIME_ZONE = zone
    seized_at = timezone.now()
    activity = DraftFactory.build(valid_days=3)
    assert activity.coupon_expires_at(seized_at=seized_at) - seized_at == timedelta(hours=72)
