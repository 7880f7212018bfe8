"""Counts: every outcome once, however it was decided and whatever befell the write; bounded, and gone by itself."""

import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from services import PATIENCE_S, wait_until

from seize import counting, store
from seize.counting import TTL_S, UNKNOWN_MAX, Bucket, Counts, counts_read
from seize.keys import count_keys, rules_key
from seize.outcomes import Refusal, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize, coupons_seize
from tests.seize.stage import ACTIVITY, UID, declare_loaded, dumps, load

pytestmark = pytest.mark.usefixtures("server")
SECOND = 1_800_000_000


def press(*users: int, seq: int = 1):
    return coupons_seize(activity_id=ACTIVITY, shoppers=[(user, seq) for user in users])


def read(activity_id: int = ACTIVITY, uid: str = UID) -> Counts:
    counting.flush()
    return counts_read(activity_id=activity_id, uid=uid)


def told(second: int = SECOND, *, activity_id: int = ACTIVITY, is_known: bool = True, **names: int) -> None:
    codes = {name: code for code, name in counting.NAMES.items()}
    counting.counter.count(
        activity_id, second=second, told={codes[name]: n for name, n in names.items()}, is_known=is_known
    )


def test_every_outcome_is_counted_by_its_name_once():
    load(total=3)
    press(1, 2, 3, 4, 4)
    press(1, seq=1)
    press(2, seq=5)
    coupon_seize(wanted=SeizeRequest(activity_id=ACTIVITY, seq=1), user_id=9)
    counts = read()
    assert counts.totals == {"WON": 3, "REPLAY": 1, "SOLD_OUT": 3, "LIMIT_REACHED": 1}
    assert counts.refused == {"LIMIT_REACHED": 1, "SOLD_OUT": 3}
    assert (sum(s.won for s in counts.seconds), sum(s.refused for s in counts.seconds)) == (3, 4)
    assert (sum(b.won for b in counts.buckets), sum(b.refused for b in counts.buckets)) == (3, 4)
    assert counts.seconds[-1].left == 0
    assert counts.width_s == 10


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"starts_ms": 3_600_000}, "NOT_STARTED"),
        ({"state": "paused"}, "PAUSED"),
        ({"state": "voided"}, "VOIDED"),
        ({"starts_ms": -120_000, "ends_ms": -60_000}, "ENDED"),
    ],
)
def test_refusals_of_a_closed_desk_are_counted_by_their_reason(changes, name):
    now_ms = int(time.time() * 1000)  # the window is given by its distance from now
    load(**{field: now_ms + value if field.endswith("_ms") else value for field, value in changes.items()})
    press(1, 2)
    assert read().totals == {name: 2}


def test_nothing_is_written_by_a_seize_itself_and_a_count_changes_no_key_of_seizing(server):
    load()
    press(1)
    before = dumps(server)
    assert [server.exists(key) for key in count_keys(ACTIVITY)] == [0, 0, 0]
    counting.flush()
    assert dumps(server) == before
    assert [server.exists(key) for key in count_keys(ACTIVITY)] == [1, 1, 1]


def test_an_activity_that_is_not_there_leaves_no_key(server):
    declare_loaded()
    assert press(1)[0].refusal == Refusal.UNKNOWN_ACTIVITY
    assert read() == Counts()
    assert server.exists(*count_keys(ACTIVITY)) == 0


def test_counts_of_an_activity_whose_rules_are_away_wait_for_the_rebuild(server):
    load()
    press(1)
    server.delete(rules_key(ACTIVITY))
    assert press(2)[0].refusal == Refusal.NOT_READY
    assert read() == Counts()
    load()
    press(3)
    assert read().totals == {"WON": 2, "NOT_READY": 1}


def test_made_up_ids_take_no_more_memory_than_a_hundred_activities():
    load()
    for number in range(UNKNOWN_MAX + 50):
        told(activity_id=1000 + number, is_known=False, NOT_READY=1)
    counting.flush()
    assert len(counting.counter._batches) == UNKNOWN_MAX
    told(activity_id=5000, is_known=False, NOT_READY=1)
    told(WON=2)
    assert read().totals == {"WON": 2}
    assert 5000 not in counting.counter._batches


def test_keys_go_by_themselves_a_week_after_the_last_write(server):
    load()
    press(1)
    counting.flush()
    for key in count_keys(ACTIVITY):
        assert TTL_S - PATIENCE_S <= server.ttl(key) <= TTL_S


def test_counts_of_an_earlier_activity_with_this_id_are_forgotten():
    load()
    press(1, 2)
    counting.flush()
    load(uid="another")
    press(3)
    assert read() == Counts()
    assert read(uid="another").totals == {"WON": 1}


def test_the_ring_keeps_twelve_minutes_and_an_old_second_never_replaces_a_newer_one(server):
    load()
    for second in range(SECOND, SECOND + 1500):
        told(second, WON=1, SOLD_OUT=2)
    counting.flush()
    told(SECOND, WON=5)
    told(SECOND + 1499, WON=1, PAUSED=1)
    counts = read()
    assert server.hlen(count_keys(ACTIVITY).seconds) == 720
    assert [s.second for s in counts.seconds] == list(range(SECOND + 780, SECOND + 1500))
    assert counts.seconds[-1][:3] == (SECOND + 1499, 2, 3)
    assert counts.seconds[0][:3] == (SECOND + 780, 1, 2)
    assert counts.totals == {"WON": 1506, "SOLD_OUT": 3000, "PAUSED": 1}


@pytest.mark.parametrize(("hours", "width"), [(1, 10), (4, 10), (5, 60), (24, 60), (48, 600), (300, 3600)])
def test_buckets_are_as_wide_as_the_window_asks_and_lie_around_it(hours, width):
    start = SECOND - SECOND % 3600
    load(starts_ms=start * 1000, ends_ms=(start + hours * 3600) * 1000)
    last = start + hours * 3600 - 1
    for second in (start - 3601, start - 3600, start, start + 1, last, last + 3600, last + 3601):
        told(second, WON=1, NOT_STARTED=2)
    counts = read()
    assert counts.width_s == width
    firsts = [second - second % width for second in (start - 3600, start, last, last + 3600)]
    assert counts.buckets == [Bucket(first, 2 if first == start else 1, 4 if first == start else 2) for first in firsts]
    assert counts.totals == {"WON": 7, "NOT_STARTED": 14}


def test_a_bucket_keeps_its_width_when_the_end_is_moved():
    load()
    told(int(time.time()), WON=1)
    counting.flush()
    load(ends_ms=int(time.time() * 1000) + 86_400_000 * 30, version=2)
    told(int(time.time()), WON=1)
    assert read().width_s == 10


def test_a_write_whose_answer_was_lost_is_sent_again_and_counts_once(monkeypatch, caplog):
    load(total=3)
    press(1, 2, 3, 4)
    real = counting.script_call

    def lost(*arguments):
        real(*arguments)
        raise store.OutcomeUnknown("the answer was lost")

    with monkeypatch.context() as patched:
        patched.setattr(counting, "script_call", lost)
        counting.flush()
        press(5)
        counting.flush()
    assert caplog.text.count("counts wait") == 1
    press(6)
    assert read().totals == {"WON": 3, "SOLD_OUT": 3}
    assert counting.counter._batches == {}


def test_counts_wait_while_redis_is_away_and_a_seize_never_does(settings, caplog, monkeypatch):
    load(total=3)
    press(1, 2)
    there = settings.REDIS_URL
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    for _try in range(3):
        counting.flush()
    assert caplog.text.count("counts wait") == 1
    settings.REDIS_URL = there
    assert read().totals == {"WON": 2}


def test_what_cannot_be_written_for_ten_minutes_is_dropped(settings, monkeypatch):
    load()
    told(WON=1)
    there = settings.REDIS_URL
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    counting.flush()
    later = time.monotonic() + counting.KEEP_S + 1
    monkeypatch.setattr(counting.time, "monotonic", lambda: later)
    counting.flush()
    settings.REDIS_URL = there
    assert read() == Counts()
    assert counting.counter._batches == {}


def test_one_activity_that_cannot_be_written_keeps_no_other_back(server):
    load()
    load(activity_id=12)
    server.set(count_keys(ACTIVITY).seconds, "not a hash")
    told(WON=1)
    told(activity_id=12, WON=1)
    counting.flush()
    assert counts_read(activity_id=12, uid=UID).totals == {"WON": 1}
    assert server.exists(count_keys(ACTIVITY).counts) == 0
    server.delete(count_keys(ACTIVITY).seconds)
    assert read().totals == {"WON": 1}


def test_switched_off_it_counts_nothing(settings):
    settings.SEIZE_COUNTS = False
    load()
    press(1)
    assert read() == Counts()


def test_thread_writes_by_itself_within_a_second():
    load()
    counting.counter.forget()
    counting.counter.every_s = 0.05
    press(1)
    wait_until(lambda: counts_read(activity_id=ACTIVITY, uid=UID).totals, what="the thread to write")
    assert counts_read(activity_id=ACTIVITY, uid=UID).totals == {"WON": 1}
    thread = next(each for each in threading.enumerate() if each.name == "seize-counts")
    counting.counter.every_s = 0  # which ends it: a thread that goes on would write in the middle of later tests
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_process_that_ends_writes_what_it_has(settings):
    load()
    code = (
        "import django; django.setup()\n"
        "from seize.services import coupons_seize\n"
        f"coupons_seize(activity_id={ACTIVITY}, shoppers=[(1, 1), (2, 1), (2, 1)])\n"
    )
    env = {**_environment(), "REDIS_URL": settings.REDIS_URL}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=PATIENCE_S)
    assert counts_read(activity_id=ACTIVITY, uid=UID).totals == {"WON": 2, "REPLAY": 1}


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "CELERY_BROKER_URL": "redis://127.0.0.1:1/0", "CACHE_URL": "redis://127.0.0.1:1/0"}


def test_a_forked_process_counts_what_is_its_own():
    load()
    press(1)
    process = counting.counter.process
    before = counting.counter._pending
    counting.counter.forget()  # what fork does in the child
    assert (counting.counter._pending, before != {}) == ({}, True)
    assert counting.counter.process != process


def test_many_threads_lose_no_count():
    load(total=500, per_user=1)
    answers: Counter[str] = Counter()
    lock = threading.Lock()

    def crowd(first: int) -> None:
        for user in range(first, first + 100):
            outcome = coupon_seize(wanted=SeizeRequest(activity_id=ACTIVITY, seq=0), user_id=user)
            with lock:
                answers["WON" if isinstance(outcome, Won) else outcome.refusal.name] += 1
            if user % 17 == 0:
                counting.flush()

    threads = [threading.Thread(target=crowd, args=(1 + 100 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read().totals == dict(answers) == {"WON": 500, "SOLD_OUT": 300}
