"""Dead letters: counted as claimed until discarded, replayed once, and a discarded seq is never reused."""

import pytest
from django.core.management import call_command
from django.utils import timezone

from activities import services
from activities.audit import Actor
from activities.models import Activity, Coupon
from seize import desk
from seize.keys import queue_key, shard_of
from seize.management.base import UsageError
from seize.outcomes import Refusal, Won
from seize.queue import Entry
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync.letters import LetterRefused, letter_discard, letter_replay
from sync.models import DeadLetter
from sync.rebuild import activity_rebuild
from sync.reconcile import activity_reconcile
from tests.factories import drain, offer

pytestmark = pytest.mark.django_db(transaction=True)


def press(activity: Activity, user_id: int, seq: int = 0):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=seq), user_id=user_id)


def left(activity: Activity) -> int:
    return desk.stock_left([activity.pk])[activity.pk]


@pytest.fixture
def overfull(raw):
    """Stock 2, both rows there, and a third claim that died for want of room; Redis rebuilt from all three."""
    activity = offer(stock_total=2, per_user_limit=2)
    for user_id in (1, 2):
        press(activity, user_id)
    raw.hset(queue_key(shard_of(activity.pk)), f"{activity.pk}:3:1", f"9999999999999:{activity.uid}")
    drain(activity)
    activity_rebuild(activity_id=activity.pk)
    assert left(activity) == -1
    return activity


def decide(call, letter: DeadLetter, reason: str = "looked into it") -> DeadLetter:
    return call(letter_id=letter.pk, reason=reason, by=Actor("support"), now=timezone.now())


def test_replay_waits_for_room_and_then_makes_the_coupon_once(overfull):
    letter = DeadLetter.objects.get()
    with pytest.raises(LetterRefused, match="add stock"):
        decide(letter_replay, letter)
    services.activity_add_stock(activity_id=overfull.pk, amount=1, now=timezone.now())
    decided = decide(letter_replay, letter)
    assert (decided.state, decided.decided_by, decided.decision_reason) == ("REPLAYED", "support", "looked into it")
    assert set(Coupon.objects.values_list("user_id", "seq")) == {(1, 1), (2, 1), (3, 1)}
    overfull.refresh_from_db()
    assert overfull.issued == 3
    with pytest.raises(LetterRefused, match="decided already"):
        decide(letter_replay, letter)
    with pytest.raises(LetterRefused, match="decided already"):
        decide(letter_discard, letter)
    assert left(overfull) == 0
    assert activity_reconcile(activity_id=overfull.pk, now=timezone.now(), names=True).state == "AGREES"


def test_discard_frees_the_coupon_by_a_rebuild_and_never_by_adding_to_the_stock(overfull):
    """Stock + 1 on a discard once sold 11 of 10."""
    letter = DeadLetter.objects.get()
    decide(letter_discard, letter)
    assert left(overfull) == -1
    overfull.refresh_from_db()
    assert overfull.epoch == 3
    activity_rebuild(activity_id=overfull.pk)
    assert left(overfull) == 0
    services.activity_add_stock(activity_id=overfull.pk, amount=1, now=timezone.now())
    won = press(overfull, 3)
    assert isinstance(won, Won)
    assert won.seq == 2
    assert press(overfull, 4).refusal is Refusal.SOLD_OUT
    drain(overfull)
    assert Coupon.objects.count() == 3


def test_claim_of_a_discarded_letter_that_returns_to_the_queue_makes_no_coupon(overfull, raw):
    letter = DeadLetter.objects.get()
    decide(letter_discard, letter)
    activity_rebuild(activity_id=overfull.pk)
    raw.hset(queue_key(shard_of(overfull.pk)), letter.field, letter.value)
    assert drain(overfull).existed == 1
    assert Coupon.objects.count() == 2


def test_letter_that_belongs_nowhere_can_only_be_discarded():
    letter = DeadLetter.of(Entry("garbage", "x"), reason="MALFORMED")
    letter.save()
    with pytest.raises(LetterRefused, match="only be discarded"):
        decide(letter_replay, letter)
    assert decide(letter_discard, letter).state == "DISCARDED"


def test_conflict_cannot_be_replayed(raw):
    activity = offer()
    press(activity, 7)
    drain(activity)
    raw.hset(queue_key(shard_of(activity.pk)), f"{activity.pk}:7:1", f"1700000000000:{activity.uid}")
    drain(activity)
    with pytest.raises(LetterRefused, match="another time"):
        decide(letter_replay, DeadLetter.objects.get())
    assert Coupon.objects.count() == 1


def test_decision_without_a_reason_is_refused(overfull):
    letter = DeadLetter.objects.get()
    for call in (letter_replay, letter_discard):
        with pytest.raises(LetterRefused, match="reason"):
            decide(call, letter, reason="  ")
    letter.refresh_from_db()
    assert letter.state == "WAITING"


def test_command_lists_and_decides(overfull, capsys):
    letter = DeadLetter.objects.get()
    call_command("dead_letters", "list")
    line = capsys.readouterr().out.strip().split("\t")
    assert (line[0], line[2], line[3]) == (str(letter.pk), "NO_ROOM", letter.field)
    with pytest.raises(UsageError, match="add stock"):
        call_command("dead_letters", "replay", letter.pk, reason="x")
    with pytest.raises(UsageError, match="--reason"):
        call_command("dead_letters", "discard", letter.pk)
    with pytest.raises(UsageError, match="no such"):
        call_command("dead_letters", "discard", 10**6, reason="x")
    call_command("dead_letters", "discard", letter.pk, reason="not needed")
    letter.refresh_from_db()
    assert (letter.state, letter.decided_by, letter.decision_reason) == ("DISCARDED", "command line", "not needed")


def test_rebuild_command_tells_what_it_did(capsys):
    activity = offer(stock_total=5)
    press(activity, 1)
    call_command("rebuild", activity=activity.pk)
    assert '"state":"rebuilt","claims":1,"holders":1' in capsys.readouterr().out
    with pytest.raises(UsageError):
        call_command("rebuild", activity=10**6)
