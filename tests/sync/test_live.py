"""What is known of a sale under way."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from seize import counting
from seize.counting import Second
from sync import live
from sync.live import activity_live, rate_of
from tests.factories import drain, offer
from tests.sync.stage import claims_add, press

pytestmark = pytest.mark.django_db(transaction=True)


def test_rate_is_the_mean_of_five_whole_seconds_that_are_written():
    seconds = [Second(100 + number, 10, 3, None) for number in range(20)]
    assert rate_of(seconds, now_s=121) == 10.0
    assert rate_of(seconds, now_s=122) == 8.0
    assert rate_of(seconds, now_s=127) == 0.0
    assert rate_of([], now_s=1) == 0.0


def test_a_short_queue_is_looked_at_and_a_long_one_is_derived(raw, monkeypatch):
    activity = offer(stock_total=100)
    other = offer(id=activity.pk + 10, stock_total=100)
    first = press(activity, 1)
    for user in range(2, 21):
        press(activity, user)
    claims_add(raw, other, 30)
    now = timezone.now()
    known = activity_live(activity_id=activity.pk, now=now)
    assert (known.waiting.number, known.waiting.is_exact, known.won) == (20, True, 20)
    assert known.waiting.oldest_s == pytest.approx(now.timestamp() - first.seized_ms / 1000, abs=0.001)
    monkeypatch.setattr(live, "SCAN_MAX", 10)
    derived = activity_live(activity_id=activity.pk, now=timezone.now())
    assert (derived.waiting.number, derived.waiting.is_exact, derived.won) == (20, False, 20)
    drain(activity)
    assert activity_live(activity_id=activity.pk, now=timezone.now()).won == 20


def test_it_changes_at_the_start_then_at_the_end_then_never():
    now = timezone.now()
    activity = offer(starts_at=now + timedelta(hours=1), ends_at=now + timedelta(hours=2))

    def changes(moment: datetime):
        return activity_live(activity_id=activity.pk, now=moment).changes_at

    assert changes(now) == activity.starts_at
    assert changes(activity.starts_at) == activity.ends_at
    assert changes(activity.ends_at) is None
    assert activity_live(activity_id=activity.pk, now=activity.ends_at).is_over


def test_counts_are_there_once_they_are_written():
    activity = offer(stock_total=1)
    press(activity, 1)
    press(activity, 2)
    counting.flush()
    known = activity_live(activity_id=activity.pk, now=timezone.now())
    assert known.counts.totals == {"WON": 1, "SOLD_OUT": 1}
    assert known.left == 0
