"""My coupons: pending ones at once, no coupon twice, none missed, pages that do not repeat."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import timezone

from activities import services, wallet
from activities.models import Activity, Coupon
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.factories import DraftFactory, drain, issued, offer

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


# -- By status ---------------------------------------------------------------------------------------------


def seqs(response) -> list[int]:
    return [coupon["seq"] for coupon in response.json()["results"]]


def test_status_filter_shows_what_each_coupon_counts_as_at_this_instant(shopper_api, monkeypatch):
    now = timezone.now()
    monkeypatch.setattr("activities.views.server_time", lambda: now)
    on, void = DraftFactory(status="ACTIVE", per_user_limit=9), DraftFactory(status="VOIDED", per_user_limit=9)
    issued(on, seq=1)
    issued(on, seq=2, expires_at=now + timedelta(milliseconds=1))
    issued(on, seq=3, expires_at=now)  # the end is exclusive
    issued(on, seq=4, status="EXPIRED", expires_at=now)
    issued(on, seq=5, status="REDEEMED", order_id="A", redeemed_at=now, uses=1, expires_at=now)
    issued(void, seq=6)
    issued(void, seq=7, status="VOIDED")
    client = shopper_api(7)
    expected = {"unused": [2, 1], "expired": [4, 3], "redeemed": [5], "voided": [7, 6]}
    for status, wanted in expected.items():
        response = client.get(URL, {"status": status})
        assert seqs(response) == wanted
        assert {coupon["status"] for coupon in response.json()["results"]} == {status}
    assert seqs(client.get(URL)) == [7, 6, 5, 4, 3, 2, 1]


def test_pending_claims_come_first_under_the_status_that_they_have(shopper_api):
    activity, withdrawn = offer(per_user_limit=2), offer()
    issued(activity, seq=2)
    press(activity)
    press(withdrawn)
    services.activity_void(activity_id=withdrawn.pk, reason="x", now=timezone.now())
    client = shopper_api(7)
    unused = client.get(URL, {"status": "unused"}).json()["results"]
    assert [(coupon["seq"], coupon["state"]) for coupon in unused] == [(1, "pending"), (2, "issued")]
    voided = client.get(URL, {"status": "voided"}).json()["results"]
    assert [(coupon["activity_id"], coupon["state"]) for coupon in voided] == [(str(withdrawn.pk), "pending")]
    assert client.get(URL, {"status": "redeemed"}).json()["results"] == []


def test_l21_pages_of_one_status_repeat_nothing_and_miss_nothing(shopper_api):
    activity = DraftFactory(status="ACTIVE", per_user_limit=100)
    for seq in range(1, 61):
        used = {"status": "REDEEMED", "order_id": "A", "redeemed_at": timezone.now(), "uses": 1} if seq % 2 else {}
        issued(activity, seq=seq, **used)
    client, seen, cursor = shopper_api(7), [], None
    for _page in range(2):
        body = client.get(URL, {"status": "unused", **({"cursor": cursor} if cursor else {})}).json()
        seen += [coupon["seq"] for coupon in body["results"]]
        cursor = body["next_cursor"]
    assert (seen, cursor) == (list(range(60, 0, -2)), None)


@pytest.mark.parametrize("status", ["", "UNUSED", "used", "unused,expired"])
def test_status_that_is_none_is_refused_with_those_that_are(shopper_api, status):
    response = shopper_api(7).get(URL, {"status": status})
    assert response.status_code == 400
    assert response.json()["detail"] == "'status' must be one of unused, redeemed, expired, voided."


# -- One coupon --------------------------------------------------------------------------------------------


def test_one_coupon_has_its_rules_and_when_it_was_used(shopper_api, django_assert_num_queries):
    now = timezone.now()
    activity = DraftFactory(status="ACTIVE", rules_text="Not for gift cards.")
    coupon = issued(activity, status="REDEEMED", order_id="A", redeemed_at=now, uses=1)
    client = shopper_api(7)
    with django_assert_num_queries(1):
        body = client.get(f"/market/consumer/coupon/{coupon.pk}").json()
    [listed] = client.get(URL).json()["results"]
    assert {**listed, "rules_text": "Not for gift cards.", "server_time": body["server_time"]} == body
    assert (body["status"], body["redeemed_at"][:19]) == ("redeemed", now.isoformat()[:19])
    assert "order_id" not in body


@pytest.mark.parametrize("name", ["0", "007", "x", "9" * 30, "1.0", "-1", "%00"])
def test_coupon_that_is_none_is_not_found(shopper_api, name):
    assert shopper_api(7).get(f"/market/consumer/coupon/{name}").status_code == 404


def test_p17_coupon_of_another_shopper_is_not_found(api, shopper_api):
    coupon = issued(DraftFactory(status="ACTIVE"), user_id=8)
    url = f"/market/consumer/coupon/{coupon.pk}"
    assert shopper_api(8).get(url).status_code == 200
    refused = shopper_api(7).get(url)
    assert (refused.status_code, refused.json()["code"]) == (404, "NOT_FOUND")
    assert api.get(url).status_code == 401


def test_one_coupon_can_be_seen_while_redis_is_away(shopper_api, settings):
    coupon = issued(DraftFactory(status="ACTIVE"))
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert shopper_api(7).get(f"/market/consumer/coupon/{coupon.pk}").status_code == 200


@pytest.mark.parametrize(("query", "named"), [("curser=c1", "'curser'"), ("cursor=c1&cursor=c2", "given once")])
def test_unknown_or_repeated_parameter_is_refused_and_named(shopper_api, query, named):
    response = shopper_api(7).get(f"{URL}?{query}")
    assert (response.status_code, response.json()["code"]) == (400, "INVALID_REQUEST")
    assert named in response.json()["detail"]
