"""The whole way once: publish, seize over HTTP, drain, my coupons."""

import pytest

from activities.models import Coupon
from seize import desk, queue
from seize.keys import shard_of
from sync.drain import DrainResult
from tests.factories import drain, offer


@pytest.mark.django_db(transaction=True)
def test_coupon_won_over_http_is_pending_at_once_and_issued_after_the_drain(shopper_api):
    activity = offer(stock_total=5)
    shopper = shopper_api(7)

    won = shopper.post("/market/consumer/coupon/seize", {"id": str(activity.pk), "seq": 1}, format="json")
    assert won.status_code == 201
    assert won.json()["state"] == "pending"
    assert won.json()["seq"] == 1

    [pending] = shopper.get("/market/consumer/coupon/my").json()["results"]
    assert (pending["id"], pending["state"], pending["status"]) == (None, "pending", "unused")
    assert Coupon.objects.count() == 0

    assert drain(activity) == DrainResult(shard=shard_of(activity.pk), inserted=1)
    coupon = Coupon.objects.get()
    [issued] = shopper.get("/market/consumer/coupon/my").json()["results"]
    assert (issued["id"], issued["state"]) == (str(coupon.pk), "issued")
    assert issued["seized_at"] == won.json()["seized_at"] == pending["seized_at"]

    activity.refresh_from_db()
    assert activity.issued == 1
    assert desk.stock_left([activity.pk]) == {activity.pk: 4}
    assert queue.queue_lengths([shard_of(activity.pk)]) == [0]
