"""L15: one rule of effective status; function, database filter and Lua script agree at every boundary."""

from datetime import UTC, datetime, timedelta

import pytest

from activities.models import Activity
from activities.statuses import (
    ActivityStatus,
    CouponStatus,
    EffectiveStatus,
    activity_status,
    coupon_status,
)
from tests.factories import DraftFactory

START = datetime(2026, 11, 11, 0, 0, tzinfo=UTC)
END = START + timedelta(hours=1)
MS = timedelta(milliseconds=1)

BOUNDARIES = [
    ("PENDING", START - MS, "upcoming"),
    ("PENDING", START, "ongoing"),
    ("PENDING", END - MS, "ongoing"),
    ("PENDING", END, "ended"),
    ("ACTIVE", START - MS, "upcoming"),
    ("ACTIVE", START, "ongoing"),
    ("ACTIVE", END, "ended"),
    ("PAUSED", START - MS, "paused"),
    ("PAUSED", END - MS, "paused"),
    ("PAUSED", END, "ended"),
    ("ENDED", START, "ended"),
    ("VOIDED", START - MS, "voided"),
    ("VOIDED", END + MS, "voided"),
    ("DRAFT", START, "draft"),
    ("DRAFT", END + MS, "draft"),
    ("SUBMITTED", START, "submitted"),
    ("APPROVED", END + MS, "approved"),
]


@pytest.mark.parametrize(("stored", "now", "effective"), BOUNDARIES)
def test_l15_p12_status_is_computed_from_the_clock(stored, now, effective):
    assert activity_status(status=stored, starts_at=START, ends_at=END, now=now) == effective


@pytest.mark.django_db
@pytest.mark.parametrize(("stored", "now", "effective"), BOUNDARIES)
def test_l15_filter_finds_exactly_the_status_that_the_function_says(stored, now, effective):
    activity = DraftFactory(starts_at=START, ends_at=END, status=stored)
    found = {value for value in EffectiveStatus.values if Activity.objects.effective(value, now=now).exists()}
    assert found == {effective}
    assert activity.effective_status(now=now) == effective


def test_every_stored_status_is_covered():
    assert {stored for stored, _now, _effective in BOUNDARIES} == set(ActivityStatus.values)


@pytest.mark.parametrize(
    ("stored", "activity_stored", "now", "effective"),
    [
        ("UNUSED", "ACTIVE", END - MS, CouponStatus.UNUSED),
        ("UNUSED", "ACTIVE", END, CouponStatus.EXPIRED),
        ("UNUSED", "VOIDED", START, CouponStatus.VOIDED),
        ("REDEEMED", "VOIDED", END, CouponStatus.REDEEMED),
        ("EXPIRED", "ACTIVE", START, CouponStatus.EXPIRED),
        ("VOIDED", "ACTIVE", START, CouponStatus.VOIDED),
    ],
)
def test_l15_overdue_coupon_is_expired_before_any_job_has_run(stored, activity_stored, now, effective):
    assert coupon_status(status=stored, activity_stored=activity_stored, expires_at=END, now=now) is effective
