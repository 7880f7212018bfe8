"""The end of an activity in Redis, and the shopper's question what became of a claim."""

from datetime import timedelta

import pytest
from django.utils import timezone

from activities.models import Activity
from seize import queue, store
from seize.keys import queue_key, seize_keys, shard_of
from seize.outcomes import Refusal
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync.models import DeadLetter
from sync.rebuild import activity_rebuild
from sync.settling import activities_settle
from tests.factories import drain, offer

pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(days=1)


def press(activity: Activity, user_id: int = 7):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=user_id)


@pytest.fixture
def over():
    """An activity with one coupon issued that ended two days ago."""
    activity = offer(stock_total=5)
    press(activity)
    drain(activity)
    now = timezone.now()
    Activity.objects.filter(pk=activity.pk).update(
        starts_at=now - 3 * DAY, ends_at=now - 2 * DAY, status="ENDED", version=9
    )
    activity_rebuild(activity_id=activity.pk)
    activity.refresh_from_db()
    return activity


def test_activity_that_is_over_and_in_the_ledger_keeps_only_its_answer(over, raw):
    assert activities_settle(now=timezone.now()) == 1
    assert raw.exists(seize_keys(over.pk).holders) == 0
    assert raw.hexists(seize_keys(over.pk).stock, str(over.pk)) is False
    assert press(over).refusal is Refusal.ENDED
    assert activities_settle(now=timezone.now()) == 0
    assert Activity.objects.watched().count() == 0


def test_claim_on_its_way_or_counts_that_differ_keep_an_activity_from_settling(over, raw):
    key = queue_key(shard_of(over.pk))
    raw.hset(key, f"{over.pk}:8:1", f"1700000000000:{over.uid}")
    assert activities_settle(now=timezone.now()) == 0
    raw.delete(key)
    raw.hset(seize_keys(over.pk).stock, str(over.pk), "3")
    assert activities_settle(now=timezone.now()) == 0
    raw.hset(seize_keys(over.pk).stock, str(over.pk), "4")
    assert activities_settle(now=timezone.now()) == 1


def test_redis_clock_has_the_last_word_on_the_end(over, raw):
    raw.hset(seize_keys(over.pk).rules, "ends_ms", str(store.time_us() // 1000 + 3_600_000))
    assert activities_settle(now=timezone.now()) == 0
    assert raw.exists(seize_keys(over.pk).holders) == 1


def test_claim_is_none_pending_issued_or_failed_per_seq(shopper_api, raw):
    activity = offer(per_user_limit=4)
    url = f"/market/consumer/activity/{activity.pk}/claim"

    def states() -> list[str]:
        return [claim["state"] for claim in shopper_api(7).get(url).json()["claims"]]

    assert states() == ["none"] * 4
    press(activity)
    assert states() == ["pending", "none", "none", "none"]
    drain(activity)
    DeadLetter.of(queue.Entry(f"{activity.pk}:7:2", f"1700000000000:{activity.uid}"), reason="NO_ROOM").save()
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=2), user_id=7)
    assert states() == ["issued", "failed", "none", "none"]
    body = shopper_api(7).get(url).json()
    assert body["activity_id"] == str(activity.pk)
    assert body["claims"][0]["coupon_id"].isdigit()
    assert [claim["seq"] for claim in body["claims"]] == [1, 2, 3, 4]
    assert [claim["state"] for claim in shopper_api(8).get(url).json()["claims"]] == ["none"] * 4


@pytest.mark.parametrize("activity_id", ["999999", "0", "abc", "007"])
def test_claim_on_an_unknown_activity_is_404_and_without_a_token_401(shopper_api, api, activity_id):
    url = f"/market/consumer/activity/{activity_id}/claim"
    assert shopper_api(7).get(url).status_code == 404
    assert api.get(url).status_code == 401


def test_claim_takes_no_parameter(shopper_api):
    response = shopper_api(7).get("/market/consumer/activity/1/claim?seq=1")
    assert (response.status_code, response.json()["code"]) == (400, "INVALID_REQUEST")
    assert "'seq'" in response.json()["detail"]
