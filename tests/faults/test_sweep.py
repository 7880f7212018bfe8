"""R9, systematically: X goes i steps, something happens, Y goes, X goes on; then all is sold out and counted.

Random schedules miss most removals, so every step of every pair is tried. The oracle is small: whoever was
told "yours", and was not in an emptied queue, has a coupon or a waiting letter; taken never exceeds the stock;
in the end exactly the stock is taken and the desk says so; a discarded seq is never given again.
"""

import itertools
import logging
from datetime import timedelta

import pytest
from django.utils import timezone
from services import wait_until

from activities import admission, audit, services
from activities.models import Activity, Coupon
from activities.statuses import ActivityStatus
from seize import queue
from seize.keys import queue_key, seize_keys, shard_of
from seize.outcomes import Refusal, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync import rebuild
from sync.comparison import activity_mend
from sync.drain import queue_drain
from sync.letters import LetterRefused, letter_discard, letter_replay
from sync.models import DeadLetter
from tests.factories import drain, offer
from tests.faults.actors import Actor, steps_hooked

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]

STOCK = 6


class Stage:
    """One activity: two coupons are rows, one claim waits in the queue, one letter waits for a decision."""

    def __init__(self, raw) -> None:
        self.raw = raw
        self.activity = offer(stock_total=STOCK, per_user_limit=2)
        self.shard = shard_of(self.activity.pk)
        self.acked: set[tuple[int, int]] = set()
        self.lost: set[tuple[int, int]] = set()
        self.users = itertools.count(100)
        for user_id in (1, 2, 3):
            self.press(user_id)
        drain(self.activity)
        Coupon.objects.filter(activity=self.activity, user_id=3).delete()
        Activity.objects.filter(pk=self.activity.pk).update(issued=2)
        self.activity.refresh_from_db()
        entry = queue.Entry(f"{self.activity.pk}:3:1", f"1700000000000:{self.activity.uid}")
        DeadLetter.of(entry, reason="DATA").save()
        self.letter = DeadLetter.objects.get(activity_id=self.activity.pk)
        self.acked.discard((3, 1))  # what becomes of it is the staff's decision
        self.press(4)

    def press(self, user_id: int) -> bool:
        outcome = coupon_seize(wanted=SeizeRequest(activity_id=self.activity.pk, seq=0), user_id=user_id)
        if isinstance(outcome, Won):
            self.acked.add((user_id, outcome.seq))
        return isinstance(outcome, Won)

    def flushall(self) -> None:
        """Empty Redis, and write down who is lost with it: what waited in the queue at that moment."""
        waiting, _flushed = self.raw.pipeline().hgetall(queue_key(self.shard)).flushall().execute()
        for field in waiting:
            _activity, user_id, seq = (int(part) for part in field.split(":"))
            self.lost.add((user_id, seq))

    def work(self, name: str):
        """A piece of the product's work on this activity."""
        decision = {"letter_id": self.letter.pk, "reason": "x", "by": audit.SYSTEM, "now": timezone.now()}
        return {
            "drain": self.drain,
            "rebuild": lambda: rebuild.activity_rebuild(activity_id=self.activity.pk),
            "mend": lambda: activity_mend(activity_id=self.activity.pk),
            "preheat": lambda: admission.activity_admit(activity_id=self.activity.pk),
            "discard": lambda: letter_discard(**decision),
            "replay": lambda: letter_replay(**decision),
            "add_stock": self.add_stock,
            "seize": lambda: self.press(next(self.users)),
            "pause": lambda: services.activity_pause(activity_id=self.activity.pk, now=timezone.now()),
            "void": lambda: services.activity_void(activity_id=self.activity.pk, reason="x", now=timezone.now()),
            "move_end": lambda: services.activity_change_end(
                activity_id=self.activity.pk, ends_at=timezone.now() + timedelta(hours=5), now=timezone.now()
            ),
        }[name]

    def add_stock(self) -> None:
        """One coupon more; the oracle learns of it from the row."""
        services.activity_add_stock(activity_id=self.activity.pk, amount=1, now=timezone.now())

    def settle(self) -> list[str]:
        """Let it come to rest by itself, sell out, drain; what is wrong then."""
        for _second in range(3):
            # A killed owner's fence has to run out first.
            wait_until(self.mended, what="the rebuild")
            admission.activity_admit(activity_id=self.activity.pk)
            self.drain()
        at_the_desk = self.desk_complaints()
        if Activity.objects.get(pk=self.activity.pk).status == ActivityStatus.PAUSED:
            services.activity_resume(activity_id=self.activity.pk, now=timezone.now())
        for _ in range(2 * STOCK):
            self.press(next(self.users))
        wait_until(lambda: self.drain() is None and queue.queue_lengths([self.shard]) == [0], what="rest")
        return at_the_desk + self.complaints()

    def mended(self) -> bool:
        return activity_mend(activity_id=self.activity.pk)["state"] == "current"

    def desk_complaints(self) -> list[str]:
        """Redis says of the state and the end what the row says."""
        self.activity.refresh_from_db()
        wanted = admission.rules_of(self.activity)
        there = self.raw.hmget(seize_keys(self.activity.pk).rules, "state", "ends_ms", "version")
        stands = [wanted.state, str(wanted.ends_ms), str(wanted.version)]
        return [] if there == stands else [f"the row says {stands}, the desk {there}"]

    def drain(self) -> None:
        """With a lease that a dead or slow drain does not keep for long."""
        queue_drain(shard=self.shard, batch_size=500, lease_ms=10, budget_s=5)

    def complaints(self) -> list[str]:
        rows = set(Coupon.objects.filter(activity=self.activity).values_list("user_id", "seq"))
        letters = DeadLetter.objects.filter(activity_id=self.activity.pk)
        waiting = set(letters.filter(state="WAITING").values_list("user_id", "seq"))
        discarded = set(letters.filter(state="DISCARDED").values_list("user_id", "seq"))
        self.activity.refresh_from_db()
        found = []
        if missing := self.acked - self.lost - rows - {(3, 1)}:
            found.append(f"promised and not kept: {missing}")
        voided = self.activity.status == ActivityStatus.VOIDED
        stock = self.activity.stock_total
        if len(rows | waiting) > stock or (len(rows | waiting) < stock and not voided):
            found.append(f"{len(rows)} rows and {len(waiting - rows)} letters of {stock}")
        if again := rows & discarded:
            found.append(f"discarded seqs given again: {again}")
        if self.activity.issued != len(rows):
            found.append(f"issued {self.activity.issued}, rows {len(rows)}")
        last = coupon_seize(wanted=SeizeRequest(activity_id=self.activity.pk, seq=0), user_id=99_999)
        if isinstance(last, Won) or last.refusal is not (Refusal.VOIDED if voided else Refusal.SOLD_OUT):
            found.append(f"in the end the desk says {last}")
        return found


def schedule_run(raw, monkeypatch, x: str, y: str, fault: str, steps: int) -> tuple[list[str], bool]:
    """X for ``steps``, the fault, Y, X on. What is wrong afterwards, and whether X had ended before the fault."""
    stage = Stage(raw)
    with steps_hooked(monkeypatch):
        first = Actor(stage.work(x))
        ended = not first.walk(steps)
        if fault == "kill":
            first.kill()
        elif fault == "flushall":
            stage.flushall()
        second = Actor(stage.work(y))
        while second.step():
            pass
        if fault != "kill":
            first.finish()
        second.finish()
    return stage.settle(), ended


def sweep(raw, monkeypatch, x: str, y: str, fault: str) -> list[str]:
    """Every step of X; the complaints, each with its schedule."""
    monkeypatch.setattr(rebuild, "LEASE_MS", 30)
    complaints: list[str] = []
    for steps in itertools.count():
        found, ended = schedule_run(raw, monkeypatch, x, y, fault, steps)
        complaints += [f"{x} for {steps} steps, {fault}, {y}: {complaint}" for complaint in found]
        if ended:
            break
        assert steps < 100, "X never ends"
    return complaints


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


ACTORS = ("drain", "rebuild", "preheat", "discard", "replay", "add_stock", "pause", "void", "move_end")
OTHERS = ("drain", "rebuild", "mend", "discard", "replay", "seize")


class EveryPair:
    """Three classes, since a class is what goes to one test process as a whole."""

    fault = ""

    @pytest.mark.parametrize("x", ACTORS)
    def test_r09_every_step_of_every_pair_keeps_every_promise(self, raw, monkeypatch, x):
        complaints = []
        for y in OTHERS:
            complaints += sweep(raw, monkeypatch, x, y, self.fault)
        assert complaints == []


class TestUndisturbed(EveryPair):
    fault = "nothing"


class TestRedisEmptiedMidway(EveryPair):
    fault = "flushall"


class TestFirstActorKilledMidway(EveryPair):
    fault = "kill"


@pytest.mark.controls
def test_r09_sweep_sees_a_drain_without_its_check(raw, monkeypatch, record_property):
    def blind(*, activity_id: int, entries):
        return str(Activity.objects.get(pk=activity_id).epoch), [True] * len(entries)

    monkeypatch.setattr(queue, "drain_check", blind)
    complaints = sweep(raw, monkeypatch, "drain", "rebuild", "flushall")
    record_property("harm", f"in the sweep, without the drain's check: {len(complaints)} schedules")
    assert complaints


@pytest.mark.controls
def test_r09_sweep_sees_a_rebuild_from_rows_alone(raw, monkeypatch, record_property):
    monkeypatch.setattr(rebuild.queue, "queue_entries", lambda **_arguments: iter(()))
    complaints = sweep(raw, monkeypatch, "rebuild", "seize", "nothing")
    record_property("harm", f"in the sweep, without the queue in a rebuild: {len(complaints)} schedules")
    assert complaints


def test_refused_decision_is_what_a_lost_race_ends_in(raw):
    stage = Stage(raw)
    stage.work("discard")()
    with pytest.raises(LetterRefused):
        stage.work("replay")()
