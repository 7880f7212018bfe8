"""Pages of the ledger: counted up to a limit, found by equality, sorted as an index is."""

import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils import timezone

from activities import readonly
from activities.audit import Actor
from activities.checkout import coupon_redeem, coupon_roll_back
from activities.models import Activity, Coupon, Redemption
from tests.factories import DraftFactory, issued

pytestmark = pytest.mark.django_db
COUPONS, REDEMPTIONS = "/admin/activities/coupon/", "/admin/activities/redemption/"


@pytest.fixture
def staff() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("boss", password="x"))
    return client


@pytest.fixture
def activity() -> Activity:
    return DraftFactory(status="ACTIVE", per_user_limit=100, min_spend=0)


def text_of(response) -> str:
    """What the page says, without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", response.content.decode()))


def found(client: Client, path: str, **asking: object) -> list[int]:
    return [row.pk for row in client.get(path, asking).context["cl"].result_list]


# -- Counting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [59, 60])
def test_count_up_to_the_limit_is_exact_and_says_so(staff, activity, monkeypatch, there):
    monkeypatch.setattr(readonly, "COUNTED_MAX", 60)
    for user_id in range(1, there + 1):
        issued(activity, user_id=user_id)
    page = staff.get(COUPONS)
    assert page.context["cl"].result_count == there
    assert f"{there} coupons" in text_of(page)
    assert f"{there}+" not in text_of(page)
    assert f"{there} results" in text_of(page)
    assert len(found(staff, COUPONS, p=2)) == there - 50


def test_count_beyond_the_limit_ends_there_and_does_not_pass_for_the_number(staff, activity, monkeypatch):
    monkeypatch.setattr(readonly, "COUNTED_MAX", 60)
    for user_id in range(1, 62):
        issued(activity, user_id=user_id)
    page = staff.get(COUPONS)
    assert (page.context["cl"].result_count, page.context["cl"].paginator.num_pages) == (60, 2)
    assert "60+ coupons" in text_of(page)
    assert "60 results" not in text_of(page)
    newest = list(Coupon.objects.order_by("-id").values_list("id", flat=True))
    assert found(staff, COUPONS) == newest[:50]
    assert found(staff, COUPONS, p=2) == newest[50:60]
    beyond = staff.get(COUPONS, {"p": "3"})
    assert (beyond.status_code, beyond["Location"]) == (302, f"{COUPONS}?e=1")


def test_filtered_count_is_exact_though_the_table_has_more_than_the_limit(staff, activity, monkeypatch):
    monkeypatch.setattr(readonly, "COUNTED_MAX", 60)
    for user_id in range(1, 62):
        issued(activity, user_id=user_id)
    issued(activity, user_id=99, status="EXPIRED", expires_at=timezone.now())
    page = staff.get(COUPONS, {"effective": "EXPIRED"})
    assert page.context["cl"].result_count == 1
    assert "1 coupon " in text_of(page)


def test_empty_list_opens_and_counts_nothing(staff):
    page = staff.get(COUPONS)
    assert (page.status_code, page.context["cl"].result_count) == (200, 0)
    assert "0 coupons" in text_of(page)


# -- Sorting -----------------------------------------------------------------------------------------------


def test_no_column_can_be_sorted_by_neither_by_its_heading_nor_by_the_address(staff, activity):
    made = [issued(activity, user_id=user_id).pk for user_id in (3, 1, 2)]
    page = staff.get(COUPONS)
    assert "?o=" not in page.content.decode()
    for wish in ("2", "-2", "3.1", "x"):
        assert found(staff, COUPONS, o=wish) == made[::-1]


# -- Searching ---------------------------------------------------------------------------------------------


def test_coupons_are_found_by_shopper_or_by_id(staff, activity):
    one, other = issued(activity, user_id=2**40), issued(activity, user_id=2**40, seq=2)
    issued(activity, user_id=8)
    assert found(staff, COUPONS, q=str(2**40)) == [other.pk, one.pk]
    assert found(staff, COUPONS, q=f" {one.pk} ") == [one.pk]
    assert found(staff, COUPONS, q=f"{2**40} {one.pk}") == [one.pk]
    assert found(staff, COUPONS, q=f"{one.pk} 8") == []


@pytest.mark.parametrize(
    "word", ["x", "0", "07", "-7", "7.0", "7e0", "７", "优惠券", str(2**63), "9" * 40, "7 x", "%", "7'"]
)
def test_what_is_no_id_finds_no_coupon_and_asks_for_none(staff, activity, word):
    issued(activity, user_id=7)
    page = staff.get(COUPONS, {"q": word})
    assert (page.status_code, list(page.context["cl"].result_list)) == (200, [])


def test_entries_are_found_by_order_shopper_or_coupon(staff, activity):
    now = timezone.now()
    coupons = {user_id: issued(activity, user_id=2**40 + user_id) for user_id in (1, 2)}
    for user_id, coupon in coupons.items():
        coupon_redeem(
            coupon_id=coupon.pk,
            user_id=2**40 + user_id,
            order_id=f"A-{user_id}",
            order_amount=Decimal(199),
            by=Actor("x"),
            now=now,
        )
    coupon_roll_back(coupon_id=coupons[1].pk, order_id="A-1", reason="r", by=Actor("x"), now=now)
    redeemed, other, given_back = Redemption.objects.order_by("id").values_list("id", flat=True)
    assert found(staff, REDEMPTIONS, q="A-1") == [given_back, redeemed]
    assert found(staff, REDEMPTIONS, q=str(2**40 + 2)) == [other]
    assert found(staff, REDEMPTIONS, q=str(coupons[1].pk)) == [given_back, redeemed]
    assert found(staff, REDEMPTIONS, q="a-1") == []
    assert found(staff, REDEMPTIONS, q="订单") == []
    assert found(staff, REDEMPTIONS, q="A-1", entry__exact="ROLL_BACK") == [given_back]


def test_coupon_and_entry_are_shown_with_what_they_belong_to_in_few_statements(
    staff, activity, django_assert_max_num_queries
):
    for user_id in range(1, 6):
        issued(DraftFactory(status="ACTIVE", name=f"Offer {user_id}"), user_id=user_id)
    with django_assert_max_num_queries(5):
        page = staff.get(COUPONS)
    assert [f"Offer {number}" in text_of(page) for number in range(1, 6)] == [True] * 5
    later = timezone.now() + timedelta(days=30)
    assert {coupon.effective_status(now=later) for coupon in page.context["cl"].result_list} == {"EXPIRED"}
