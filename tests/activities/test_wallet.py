"""My coupons: pending ones at once, no coupon twice, none missed, pages that do not repeat."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from activities import services, wallet
from activities.models import Activity, Coupon
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.factories import DraftFactory, drain, offer

URL = "/market/consumer/coupon/my"
pytestmark = pytest.mark.django_db(transaction=True)


def press(activity: Activity, user_id: int = 7, seq: int = 1):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=seq), user_id=user_id)


def test_l10_coupon_is_in_the_wallet_right_after_winning_and_says_so_truly(shopper_api):
    activity = offer(per_user_limit=2)
    press(activity, seq=1)
    press(activity, seq=2)
    results = shopper_api(7).get(URL).json()["results"]
    assert [(c["id"], c["seq"], c["state"]) for c in results] == [(None, 2, "pending"), (None, 1, "pending")]
    drain(activity)
    results = shopper_api(7).get(URL).json()["results"]
    assert [(c["seq"], c["state"]) for c in results] == [(2, "issued"), (1, "issued")]
    assert shopper_api(8).get(URL).json()["results"] == []


def test_pending_and_issued_say_the_same_of_a_coupon(shopper_api):
    activity = offer()
    press(activity)
    [pending] = shopper_api(7).get(URL).json()["results"]
    drain(activity)
    [issued] = shopper_api(7).get(URL).json()["results"]
    differing = {name for name in pending if pending[name] != issued[name]}
    assert differing == {"id", "state"}


def test_claim_that_is_drained_between_queue_and_rows_is_shown_once(shopper_api, monkeypatch):
    activity = offer()
    press(activity)
    read_queue = wallet.pending_claims

    def and_then_the_drain_runs(*, user_id: int):
        pending = read_queue(user_id=user_id)
        drain(activity)
        return pending

    monkeypatch.setattr(wallet, "pending_claims", and_then_the_drain_runs)
    results = shopper_api(7).get(URL).json()["results"]
    assert [(c["seq"], c["state"]) for c in results] == [(1, "issued")]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_claim_that_is_drained_around_the_check_against_rows_is_neither_missed_nor_doubled(
    shopper_api, monkeypatch, moment
):
    activity = offer()
    press(activity)
    check = wallet._without_rows

    def with_a_drain(pending, *, user_id: int):
        if moment == "before":
            drain(activity)
        kept = check(pending, user_id=user_id)
        if moment == "after":
            drain(activity)
        return kept

    monkeypatch.setattr(wallet, "_without_rows", with_a_drain)
    results = shopper_api(7).get(URL).json()["results"]
    assert [(c["seq"], c["state"]) for c in results] == [(1, "issued")]


def test_l21_pages_follow_the_last_row_served_and_repeat_nothing(shopper_api):
    activity, now = DraftFactory(status="ACTIVE"), timezone.now()
    for seq in range(1, 46):
        Coupon.objects.create(
            activity=activity, user_id=7, seq=seq, seized_at=now, expires_at=now, amount_off=Decimal(20)
        )
    seen: list[int] = []
    cursor = None
    pages = 0
    while pages == 0 or cursor:
        body = shopper_api(7).get(URL, {"cursor": cursor} if cursor else {}).json()
        seen += [coupon["seq"] for coupon in body["results"]]
        cursor, pages = body["next_cursor"], pages + 1
        if pages == 1:  # one more arrives while the shopper pages
            Coupon.objects.create(
                activity=activity, user_id=7, seq=99, seized_at=now, expires_at=now, amount_off=Decimal(20)
            )
    assert pages == 3
    assert seen == list(range(45, 0, -1))


@pytest.mark.parametrize("cursor", ["", "1", "c0", "c-1", "cx", "c1 ", "c" + "9" * 30, "page=2"])
def test_cursor_that_is_not_ours_is_refused(shopper_api, cursor):
    response = shopper_api(7).get(URL, {"cursor": cursor})
    assert response.status_code == 400
    assert "next_cursor" in response.json()["detail"]


def test_p16_terms_are_those_of_the_moment_of_seizing():
    activity = offer(amount_off=Decimal("20.00"))
    press(activity, 1)
    drain(activity)
    Activity.objects.filter(pk=activity.pk).update(amount_off=Decimal("1.00"), min_spend=Decimal("999.00"))
    coupon = Coupon.objects.get()
    assert (coupon.amount_off, coupon.min_spend) == (Decimal("20.00"), Decimal("100.00"))


def test_wallet_needs_a_token_and_few_queries(api, shopper_api, django_assert_num_queries):
    assert api.get(URL).status_code == 401
    for _ in range(3):
        press(offer())
    client = shopper_api(7)
    with django_assert_num_queries(3):
        assert len(client.get(URL).json()["results"]) == 3


def test_pending_claim_of_a_voided_activity_is_void_in_the_wallet(shopper_api):
    activity = offer()
    press(activity)
    services.activity_void(activity_id=activity.pk, reason="x", now=timezone.now())
    [coupon] = shopper_api(7).get(URL).json()["results"]
    assert (coupon["state"], coupon["status"]) == ("pending", "voided")


def test_l11_validity_counts_from_seizing_however_late_the_drain(monkeypatch):
    activity = offer(valid_days=3)
    won = press(activity)
    day_later = timezone.now() + timedelta(days=1)
    monkeypatch.setattr(timezone, "now", lambda: day_later)
    drain(activity)
    coupon = Coupon.objects.get()
    assert int(coupon.seized_at.timestamp() * 1000) == won.seized_ms
    assert coupon.expires_at - coupon.seized_at == timedelta(hours=72)


@pytest.mark.parametrize(("query", "named"), [("curser=c1", "'curser'"), ("cursor=c1&cursor=c2", "given once")])
def test_unknown_or_repeated_parameter_is_refused_and_named(shopper_api, query, named):
    response = shopper_api(7).get(f"{URL}?{query}")
    assert (response.status_code, response.json()["code"]) == (400, "INVALID_REQUEST")
    assert named in response.json()["detail"]
