"""Validity and its end: N × 24 hours whatever the zone, expiry in chunks on the index, races with a checkout."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.utils import timezone

from activities import checkout, expiry
from activities.audit import Actor
from activities.expiry import coupons_expire
from activities.models import Coupon
from tests.factories import DraftFactory, issued

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)
ZONES = ["Asia/Shanghai", "UTC", "America/New_York"]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("month", [3, 11], ids=["into summer time", "out of summer time"])
def test_valid_days_are_so_many_times_24_hours_also_where_a_day_has_23_or_25(settings, zone, month):
    settings.TIME_ZONE = zone
    changes = {3: datetime(2026, 3, 8, 2, tzinfo=ZoneInfo(zone)), 11: datetime(2026, 11, 1, 1, tzinfo=ZoneInfo(zone))}
    seized_at = changes[month].astimezone(UTC) - timedelta(hours=6)
    with timezone.override(zone):
        coupon = issued(DraftFactory(status="ACTIVE", valid_days=2), seized_at=seized_at)
        coupon.refresh_from_db()
    assert coupon.expires_at - coupon.seized_at == timedelta(hours=48)
    assert coupon.seized_at == seized_at
    assert coupon.effective_status(now=seized_at + timedelta(hours=48) - MILLISECOND) == "UNUSED"
    assert coupon.effective_status(now=seized_at + timedelta(hours=48)) == "EXPIRED"


@pytest.mark.parametrize("zone", ZONES)
def test_fixed_end_that_staff_type_is_an_instant_of_their_own_zone(settings, zone, client, django_user_model):
    settings.TIME_ZONE = zone
    client.force_login(django_user_model.objects.create_superuser("boss", password="x"))
    form = {
        "name": "Until midnight", "kind": "FIXED", "min_spend": "0.00", "amount_off": "5.00", "min_payable": "0.00",
        "starts_at_0": "2026-12-01", "starts_at_1": "00:00:00", "ends_at_0": "2026-12-02", "ends_at_1": "00:00:00",
        "valid_until_0": "2026-12-31", "valid_until_1": "00:00:00", "stock_total": "5", "per_user_limit": "1",
    }  # fmt: skip
    answer = client.post("/admin/activities/activity/add/", form)
    assert answer.status_code == 302
    from activities.models import Activity

    until = datetime(2026, 12, 31, tzinfo=ZoneInfo(zone))
    assert Activity.objects.get().valid_until == until
    assert issued(Activity.objects.get()).expires_at == until


def test_s34_overdue_coupons_expire_in_chunks_and_others_stay(monkeypatch):
    monkeypatch.setattr(expiry, "CHUNK", 3)
    activity, now = DraftFactory(status="ACTIVE"), timezone.now()
    issued(activity, user_id=1, expires_at=now, status="REDEEMED", order_id="A", redeemed_at=now - HOUR, uses=1)
    for user_id in range(2, 8):
        issued(activity, user_id=user_id, expires_at=now)
    issued(activity, user_id=8, expires_at=now + MILLISECOND)
    assert coupons_expire(now=now) == {"expired": 6, "voided": 0}
    assert coupons_expire(now=now) == {"expired": 0, "voided": 0}
    statuses = dict(Coupon.objects.values_list("user_id", "status"))
    assert statuses == {1: "REDEEMED", 8: "UNUSED", **dict.fromkeys(range(2, 8), "EXPIRED")}


def test_coupon_that_is_redeemed_between_the_two_steps_of_expiry_stays_redeemed(monkeypatch):
    now = timezone.now()
    coupon = issued(DraftFactory(status="ACTIVE", min_spend=Decimal(0)), expires_at=now)
    mark = expiry._unused_mark

    def after_a_checkout(*, ids: list[int], status: str) -> int:
        if ids:
            checkout.coupon_redeem(
                coupon_id=coupon.pk, user_id=7, order_id="A", order_amount=Decimal(50), by=Actor("x"), now=now - HOUR
            )
        return mark(ids=ids, status=status)

    monkeypatch.setattr(expiry, "_unused_mark", after_a_checkout)
    assert coupons_expire(now=now) == {"expired": 0, "voided": 0}
    coupon.refresh_from_db()
    assert (coupon.status, coupon.order_id) == ("REDEEMED", "A")


@pytest.mark.skipif("connection.vendor != 'mysql'", reason="the index is MariaDB's to choose")
@pytest.mark.parametrize(
    ("rows", "index"),
    [
        (lambda: Coupon.objects.overdue(now=timezone.now()), "coupon_expiry"),
        (Coupon.objects.orphaned, "coupon_status_activity"),
    ],
    ids=["overdue", "orphaned"],
)
def test_expiry_finds_its_rows_by_an_index(rows, index):
    activity, void = DraftFactory(status="ACTIVE"), DraftFactory(status="VOIDED")
    for user_id in range(1, 400):
        issued(activity, user_id=user_id)
    issued(void, expires_at=timezone.now() - HOUR)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE TABLE activities_coupon, activities_activity")
        cursor.fetchall()
    plan = rows().order_by().values_list("id", flat=True)[:1000].explain(format="JSON")
    assert index in re.findall(r'"key\W+(\w+)', plan), plan
