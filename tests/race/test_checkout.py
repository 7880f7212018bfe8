"""Orders in the same instant on real MariaDB. First: that the harness can see a coupon used twice."""

import threading
import time
from collections import Counter
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection, transaction
from django.utils import timezone
from services import PATIENCE_S

from activities import checkout, services
from activities.audit import Actor
from activities.checkout import Entered, Refused
from activities.contention import ContentionLost
from activities.expiry import coupons_expire
from activities.models import Activity, Coupon, Redemption
from tests.factories import DraftFactory, issued, offer
from tests.race.conftest import crowd, harm_seen

pytestmark = pytest.mark.django_db(transaction=True)
D = Decimal


@pytest.fixture
def coupon() -> Coupon:
    return issued(DraftFactory(status="ACTIVE"))


def in_a_thread(call, *arguments, **named):
    """Run it, and let go of the thread's own connection."""
    try:
        return call(*arguments, **named)
    finally:
        connection.close()


def redeem(coupon: Coupon, order_id: str):
    return in_a_thread(
        checkout.coupon_redeem,
        coupon_id=coupon.pk, user_id=7, order_id=order_id, order_amount=D("199.00"), by=Actor("x"), now=timezone.now(),
    )  # fmt: skip


def give_back(coupon: Coupon, order_id: str):
    return in_a_thread(
        checkout.coupon_roll_back,
        coupon_id=coupon.pk, order_id=order_id, reason="x", by=Actor("x"), now=timezone.now(),
    )  # fmt: skip


def outcome(result: object) -> str:
    if isinstance(result, Refused):
        return result.why.name
    assert isinstance(result, Entered)
    return "again" if result.replay else "entered"


def ledger_is_consistent(coupon: Coupon) -> None:
    """Each turn was redeemed once and given back at most once, only the last may be open, and the row says the same."""
    coupon.refresh_from_db()
    redeems = list(Redemption.objects.filter(coupon=coupon, entry="REDEEM").order_by("turn"))
    returned = list(
        Redemption.objects.filter(coupon=coupon, entry="ROLL_BACK").order_by("turn").values_list("turn", "order_id")
    )
    assert [entry.turn for entry in redeems] == list(range(1, coupon.uses + 1))
    closed = [(entry.turn, entry.order_id) for entry in redeems]
    if coupon.status == "REDEEMED":
        assert closed.pop() == (coupon.uses, coupon.order_id)
    assert returned == closed


@pytest.mark.controls
def test_l19_control_read_then_update_uses_one_coupon_for_several_orders(coupon, record_property):
    """The way of the source's lineage: look, then save. The same crowd must see it fail."""

    def naive(number: int) -> bool:
        try:
            row = Coupon.objects.get(pk=coupon.pk)
            if row.status != "UNUSED":
                return False
            time.sleep(0.001)  # what a checkout does between reading and writing
            row.status, row.order_id, row.redeemed_at, row.uses = "REDEEMED", f"order-{number}", timezone.now(), 1
            row.save()
            return True
        finally:
            connection.close()

    def orders_that_use_it() -> int:
        Coupon.objects.filter(pk=coupon.pk).update(status="UNUSED", order_id="", redeemed_at=None, uses=0)
        return sum(crowd(16, naive))

    used = harm_seen(orders_that_use_it, over=1)
    record_property("harm", f"without the conditional update, orders that used one coupon: {used}")


def test_l19_p01_two_parallel_orders_on_one_coupon_make_one_redemption(coupon):
    for _round in range(10):
        Coupon.objects.filter(pk=coupon.pk).update(status="UNUSED", order_id="", redeemed_at=None)
        before = Redemption.objects.count()
        turn = coupon.uses
        results = crowd(2, lambda number, turn=turn: redeem(coupon, f"order-{turn}-{number}"))
        assert sorted(map(outcome, results)) == ["COUPON_REDEEMED", "entered"]
        assert Redemption.objects.count() == before + 1
        coupon.refresh_from_db()


def test_p01_fifty_parallel_orders_on_one_coupon_make_one_redemption(coupon):
    results = crowd(50, lambda number: redeem(coupon, f"order-{number}"))
    assert Counter(map(outcome, results)) == {"entered": 1, "COUPON_REDEEMED": 49}
    winner = next(result.entry.order_id for result in results if isinstance(result, Entered))
    entry = Redemption.objects.get()
    coupon.refresh_from_db()
    assert (entry.order_id, coupon.order_id, coupon.uses) == (winner, winner, 1)


def test_p04_same_order_twenty_times_at_once_gets_one_entry_and_everybody_the_same_answer(coupon):
    results = crowd(20, lambda _number: redeem(coupon, "A"))
    assert Counter(map(outcome, results)) == {"entered": 1, "again": 19}
    assert {result.entry.pk for result in results} == {Redemption.objects.get().pk}


def test_l20_twenty_parallel_roll_backs_give_the_coupon_back_once(coupon):
    redeem(coupon, "A")
    results = crowd(20, lambda _number: give_back(coupon, "A"))
    assert Counter(map(outcome, results)) == {"entered": 1, "again": 19}
    ledger_is_consistent(coupon)
    assert (coupon.status, coupon.uses, Redemption.objects.count()) == ("UNUSED", 1, 2)


def test_checkout_does_not_wait_on_a_drain_that_holds_the_activity(coupon):
    """A lock on the activity's row, as a drain has it, that is let go only after the coupon was used and returned."""
    locked, used = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Activity.objects.select_for_update().get(pk=coupon.activity_id)
            locked.set()
            used.wait(PATIENCE_S)
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(PATIENCE_S)
    try:
        assert outcome(redeem(coupon, "A")) == "entered"
        assert outcome(give_back(coupon, "A")) == "entered"
        assert holder.is_alive()  # and so has the lock
    finally:
        used.set()
        holder.join(PATIENCE_S)
    ledger_is_consistent(coupon)


def test_redeem_and_roll_back_racing_leave_one_consistent_ledger(coupon):
    """Order A's roll-back against its own retry and two other orders, thirty times over."""
    for round_number in range(30):
        first, others = f"A-{round_number}", [f"B-{round_number}", f"C-{round_number}"]
        assert outcome(redeem(coupon, first)) == "entered"
        calls = [
            lambda _n, first=first: give_back(coupon, first),
            lambda _n, first=first: redeem(coupon, first),
            *(lambda _n, order=order: redeem(coupon, order) for order in others),
        ]
        results = [outcome(result) for result in crowd(4, lambda number, calls=calls: calls[number - 1](number))]
        assert results[0] == "entered"
        assert results[1] in ("again", "ORDER_ROLLED_BACK")
        assert results[2:].count("entered") <= 1
        ledger_is_consistent(coupon)
        if coupon.status == "REDEEMED":
            give_back(coupon, coupon.order_id)
        assert Coupon.objects.get(pk=coupon.pk).status == "UNUSED"


def test_redeem_roll_back_void_and_expiry_at_once_end_in_a_consistent_ledger():
    for round_number in range(8):
        activity = offer()
        end = timezone.now() + timedelta(hours=1)
        coupon = issued(activity, expires_at=end)

        def act(number: int, activity=activity, coupon=coupon, end=end) -> object:
            try:
                match number:
                    case 1:
                        return redeem(coupon, "A")
                    case 2:
                        return give_back(coupon, "A")
                    case 3:
                        return services.activity_void(activity_id=activity.pk, reason="x", now=timezone.now())
                    case 4:
                        return coupons_expire(now=end)
            except ContentionLost:
                return None
            finally:
                connection.close()

        crowd(4, act)
        ledger_is_consistent(coupon)
        if round_number % 2:
            redeem(coupon, "A")
        give_back(coupon, "A")
        coupons_expire(now=end)
        ledger_is_consistent(coupon)
        assert coupon.effective_status(now=end) in ("EXPIRED", "VOIDED")
        assert coupon.status in ("EXPIRED", "VOIDED")
