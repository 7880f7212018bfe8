"""What Redis counted is kept: exactly, however often, and across Redis' losses."""

from datetime import timedelta

import pytest
from django.utils import timezone

from seize import counting
from seize.counting import counts_read
from sync.counts import activity_counts_keep, counts_keep, counts_of
from sync.models import SaleCounts
from sync.settling import activities_settle
from sync.tasks import keep_counts
from tests.factories import drain, offer, shards_declare_loaded
from tests.sync.stage import press

pytestmark = pytest.mark.django_db(transaction=True)


def test_keeping_twice_keeps_the_same(raw):
    activity = offer(stock_total=2)
    for user in range(1, 6):
        press(activity, user)
    counting.flush()
    now = timezone.now()
    assert counts_keep(now=now) == 1
    assert counts_keep(now=now) == 0
    kept = SaleCounts.objects.get()
    assert kept.totals == {"WON": 2, "SOLD_OUT": 3}
    assert sum(won for _first, won, _refused in kept.buckets) == 2
    assert sum(refused for _first, _won, refused in kept.buckets) == 3
    assert keep_counts() == {"days": 0, "kept": 0}


def test_counts_from_before_a_loss_of_redis_are_added_to_those_after_it(raw):
    activity = offer(stock_total=2)
    for round_ in range(3):
        for user in range(10):
            press(activity, 100 + user, seq=1)
        counting.flush()
        counts_keep(now=timezone.now())
        drain(activity)
        if round_ < 2:
            raw.flushall()
            shards_declare_loaded()
    totals = SaleCounts.objects.get().totals
    assert totals == {"REPLAY": 4, "SOLD_OUT": 24, "WON": 2}
    assert counts_of(activity=activity).totals == totals
    assert sum(bucket.refused for bucket in counts_of(activity=activity).buckets) == 24


def test_pages_between_a_loss_and_the_next_keeping_see_both(raw):
    activity = offer(stock_total=1)
    press(activity, 1)
    press(activity, 2)
    counting.flush()
    counts_keep(now=timezone.now())
    drain(activity)
    raw.flushall()
    shards_declare_loaded()
    assert counts_of(activity=activity).totals == {"WON": 1, "SOLD_OUT": 1}
    press(activity, 3)
    counting.flush()
    assert counts_read(activity_id=activity.pk, uid=activity.uid).totals == {"SOLD_OUT": 1}
    assert counts_of(activity=activity).totals == {"WON": 1, "SOLD_OUT": 2}


def test_nothing_is_kept_of_what_was_never_asked_for():
    activity = offer()
    assert activity_counts_keep(activity_id=activity.pk, uid=activity.uid, now=timezone.now()) is False
    assert SaleCounts.objects.count() == 0


def test_settling_keeps_the_last_counts():
    now = timezone.now()
    activity = offer(stock_total=1, starts_at=now - timedelta(days=3), ends_at=now + timedelta(hours=1))
    press(activity, 1)
    press(activity, 2)
    drain(activity)
    counting.flush()
    type(activity).objects.filter(pk=activity.pk).update(ends_at=now - timedelta(days=2), status="ENDED", version=9)
    shards_declare_loaded()
    assert activities_settle(now=now) == 1
    assert SaleCounts.objects.get().totals == {"WON": 1, "SOLD_OUT": 1}
