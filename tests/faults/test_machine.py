"""R9, at random: staff, shoppers, drains, rebuilds and losses in any order, against a small model."""

import contextlib
import logging
import time
from datetime import timedelta

import pytest
import redis
from django.conf import settings
from django.utils import timezone
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from activities import services
from activities.audit import Actor
from activities.models import Coupon
from seize.keys import queue_key, seize_keys, shard_of
from seize.outcomes import Refusal, Won
from seize.queue import Entry
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync.comparison import activity_mend
from sync.letters import LetterRefused, letter_discard, letter_replay
from sync.models import DeadLetter
from sync.rebuild import activity_rebuild
from tests.factories import drain, offer

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]


class Sale(RuleBasedStateMachine):
    """The model: what was promised to whom, what was lost with an emptied queue, and the state staff put it in."""

    @initialize(stock=st.integers(1, 6), limit=st.integers(1, 3))
    def publish(self, stock: int, limit: int) -> None:
        self.activity = offer(stock_total=stock, per_user_limit=limit)
        self.stock, self.limit = stock, limit
        self.state = "open"
        self.promised: set[tuple[int, int]] = set()
        self.lost: set[tuple[int, int]] = set()
        self.given_up: set[tuple[int, int]] = set()  # discarded by staff: no coupon, and the seq is never reused

    # Shoppers

    @rule(user=st.integers(1, 5), seq=st.integers(0, 4))
    def press(self, user: int, seq: int) -> None:
        outcome = coupon_seize(wanted=SeizeRequest(activity_id=self.activity.pk, seq=seq), user_id=user)
        if isinstance(outcome, Won):
            if not outcome.replay:
                assert self.state == "open"
                assert outcome.seq <= self.limit
                assert (user, outcome.seq) not in self.promised - self.lost
            self.promised.add((user, outcome.seq))
            self.lost.discard((user, outcome.seq))
        elif outcome.refusal is Refusal.PAUSED:
            # After a resume the desk may say so until the rebuild that is due, a second at most.
            assert self.state == "paused" or self._rebuild_is_due()
        elif outcome.refusal is Refusal.VOIDED:
            assert self.state == "voided"

    # Staff

    @precondition(lambda self: self.state == "open")
    @rule()
    def pause(self) -> None:
        services.activity_pause(activity_id=self.activity.pk, now=timezone.now())
        self.state = "paused"

    @precondition(lambda self: self.state == "paused")
    @rule()
    def resume(self) -> None:
        services.activity_resume(activity_id=self.activity.pk, now=timezone.now())
        self.state = "open"

    @precondition(lambda self: self.state != "voided")
    @rule(amount=st.integers(1, 3))
    def add_stock(self, amount: int) -> None:
        services.activity_add_stock(activity_id=self.activity.pk, amount=amount, now=timezone.now())
        self.stock += amount

    @precondition(lambda self: self.state != "voided")
    @rule(hours=st.integers(2, 9))
    def move_the_end(self, hours: int) -> None:
        ends_at = timezone.now() + timedelta(hours=hours)
        services.activity_change_end(activity_id=self.activity.pk, ends_at=ends_at, now=timezone.now())

    @precondition(lambda self: self.state != "voided" and len(self.promised) > 3)
    @rule()
    def void(self) -> None:
        services.activity_void(activity_id=self.activity.pk, reason="x", now=timezone.now())
        self.state = "voided"

    @precondition(lambda self: DeadLetter.objects.filter(activity_id=self.activity.pk, state="WAITING").exists())
    @rule(replay=st.booleans())
    def decide(self, replay: bool) -> None:
        letter = DeadLetter.objects.filter(activity_id=self.activity.pk, state="WAITING").first()
        with contextlib.suppress(LetterRefused):  # no room, or no such activity: one right end
            (letter_replay if replay else letter_discard)(
                letter_id=letter.pk, reason="x", by=Actor("x"), now=timezone.now()
            )
            if not replay and letter.uid == self.activity.uid:
                self.given_up.add((letter.user_id, letter.seq))

    # Sync, and what befalls it

    @rule()
    def drain(self) -> None:
        drain(self.activity)

    @rule()
    def rebuild(self) -> None:
        activity_rebuild(activity_id=self.activity.pk)

    @rule()
    def compare(self) -> None:
        activity_mend(activity_id=self.activity.pk)
        services.admission.activity_admit(activity_id=self.activity.pk)

    @rule(user=st.integers(6, 7))
    def stray_claim(self, user: int) -> None:
        """A claim that nobody was promised, of another uid: it becomes a letter and takes no coupon."""
        with self._raw() as raw:
            raw.hset(queue_key(shard_of(self.activity.pk)), f"{self.activity.pk}:{user}:1", "1700000000000:str4y")

    @precondition(lambda self: self.promised - self.lost - self._rows() - self.given_up)
    @rule()
    def promised_claim_dies(self) -> None:
        """As when the database refuses it: a letter in place of the queue entry. It goes on counting as claimed."""
        key = queue_key(shard_of(self.activity.pk))
        with self._raw() as raw:
            entries = [Entry(*pair) for pair in raw.hgetall(key).items() if pair[1].endswith(self.activity.uid)]
            if entries:
                DeadLetter.of(entries[0], reason="DATA").save()
                raw.hdel(key, entries[0].field)

    @rule()
    def flushall(self) -> None:
        with self._raw() as raw:
            waiting, _flushed = raw.pipeline().hgetall(queue_key(shard_of(self.activity.pk))).flushall().execute()
        for field, value in waiting.items():
            if value.endswith(self.activity.uid):
                _activity, user, seq = (int(part) for part in field.split(":"))
                self.lost.add((user, seq))
        self.lost -= self._rows()

    @rule()
    def another_process(self) -> None:
        """As after a restart: the rules are those of another gen."""
        with self._raw() as raw:
            key = f"COUPON:ACTIVITY:RULES:{{{shard_of(self.activity.pk)}}}:{self.activity.pk}"
            if raw.exists(key):
                raw.hset(key, "gen", "0" * 40)

    # What must hold at every moment

    @invariant()
    def never_more_than_the_stock(self) -> None:
        if hasattr(self, "activity"):
            rows = self._rows()
            self.activity.refresh_from_db()
            assert len(rows) == self.activity.issued <= self.activity.stock_total == self.stock
            assert len(self.promised - self.lost - self.given_up) <= self.stock

    def teardown(self) -> None:
        """In the end it comes to rest: every promise that was not lost is a row, and it reopens by itself."""
        if not hasattr(self, "activity"):
            return
        for letter in DeadLetter.objects.filter(
            activity_id=self.activity.pk, uid=self.activity.uid, state=DeadLetter.State.WAITING
        ):
            letter_replay(letter_id=letter.pk, reason="x", by=Actor("x"), now=timezone.now())
        for _second in range(3):
            activity_mend(activity_id=self.activity.pk)
            services.admission.activity_admit(activity_id=self.activity.pk)
            drain(self.activity)
        assert self.promised - self.lost - self.given_up <= self._rows() <= self.promised
        assert not self._rows() & self.given_up
        outcome = coupon_seize(wanted=SeizeRequest(activity_id=self.activity.pk, seq=0), user_id=999)
        wanted = {"paused": Refusal.PAUSED, "voided": Refusal.VOIDED}.get(self.state)
        if wanted is not None:
            assert outcome.refusal is wanted
        elif isinstance(outcome, Won):
            assert len(self.promised - self.lost - self.given_up) < self.stock
        else:
            assert outcome.refusal is Refusal.SOLD_OUT
            assert len(self._rows()) == self.stock

    def _rows(self) -> set[tuple[int, int]]:
        return set(Coupon.objects.filter(activity=self.activity).values_list("user_id", "seq"))

    def _rebuild_is_due(self) -> bool:
        epoch = self._raw().hget(seize_keys(self.activity.pk).rules, "epoch")
        self.activity.refresh_from_db()
        return epoch != str(self.activity.epoch)

    @staticmethod
    def _raw():
        return redis.Redis.from_url(settings.REDIS_URL, decode_responses=True)


def settings_for(*, examples: int) -> hypothesis_settings:
    """So many histories of up to 40 steps."""
    return hypothesis_settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        database=None,
    )


def test_r09_any_order_of_events_keeps_every_promise():
    logging.disable(logging.CRITICAL)
    try:
        run_state_machine_as_test(Sale, settings=settings_for(examples=60))
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.soak
def test_soak_random_orders_of_events_keep_every_promise(minutes, record_property):
    """The state machine of R9 with new examples until the time is over."""
    deadline = time.monotonic() + 60 * minutes
    rounds = 0
    logging.disable(logging.CRITICAL)
    try:
        while time.monotonic() < deadline:
            run_state_machine_as_test(Sale, settings=settings_for(examples=30))
            rounds += 1
    finally:
        logging.disable(logging.NOTSET)
    record_property("soak", f"{30 * rounds} random histories of up to 40 steps")
