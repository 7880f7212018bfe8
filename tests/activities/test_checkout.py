"""Redeem and roll back: once, for one order, to the cent, and a ledger that says so whatever raced."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from activities import checkout, services
from activities.audit import Actor
from activities.checkout import Entered, Refused, Unusable, coupon_quote, coupon_redeem, coupon_roll_back
from activities.contention import ContentionLost
from activities.expiry import coupons_expire
from activities.models import Activity, Coupon, Redemption
from tests.factories import DraftFactory, issued, moments_from, offer, percent_terms

pytestmark = pytest.mark.django_db(transaction=True)
D = Decimal
HOUR = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)
REDEEMED_AT = datetime(2026, 11, 11, tzinfo=UTC)


@pytest.fixture
def coupon() -> Coupon:
    """满100减20 of shopper 7."""
    return issued(DraftFactory(status="ACTIVE"))


def redeem(coupon: Coupon, order_id: str = "A", *, amount: str = "199.00", user_id: int = 7, now=None):
    return coupon_redeem(
        coupon_id=coupon.pk, user_id=user_id, order_id=order_id, order_amount=D(amount), by=Actor("shop"),
        now=now or timezone.now(),
    )  # fmt: skip


def give_back(coupon: Coupon, order_id: str = "A", *, reason: str = "refund", now=None):
    return coupon_roll_back(
        coupon_id=coupon.pk, order_id=order_id, reason=reason, by=Actor("shop"), now=now or timezone.now()
    )


def state(coupon: Coupon) -> tuple[str, str, int]:
    coupon.refresh_from_db()
    return coupon.status, coupon.order_id, coupon.uses


def ledger() -> list[tuple[str, int, str]]:
    return list(Redemption.objects.order_by("id").values_list("entry", "turn", "order_id"))


def refused(result: object, why: Unusable) -> bool:
    return isinstance(result, Refused) and result.why is why


# -- Redeem ----------------------------------------------------------------------------------------------


def test_order_redeems_a_coupon_and_the_ledger_has_every_amount(coupon):
    now = timezone.now()
    result = redeem(coupon, now=now)
    assert isinstance(result, Entered)
    assert not result.replay
    entry = Redemption.objects.get()
    assert (entry.order_amount, entry.discount, entry.payable) == (D("199.00"), D("20.00"), D("179.00"))
    assert (entry.user_id, entry.activity_id, entry.made_by, entry.created_at) == (7, coupon.activity_id, "shop", now)
    assert state(coupon) == ("REDEEMED", "A", 1)
    assert coupon.redeemed_at == now


def test_p04_same_order_asked_twice_in_sequence_gets_the_same_entry_and_counts_once(coupon):
    first, second = redeem(coupon), redeem(coupon, now=timezone.now() + HOUR)
    assert (second.replay, second.entry.pk, second.entry.discount) == (True, first.entry.pk, first.entry.discount)
    assert ledger() == [("REDEEM", 1, "A")]


def test_p04_same_order_is_answered_the_same_after_the_coupon_would_have_expired(coupon):
    first = redeem(coupon)
    late = redeem(coupon, now=coupon.expires_at + HOUR)
    assert (late.replay, late.entry.pk) == (True, first.entry.pk)


def test_same_order_with_another_amount_is_refused_with_the_first_one(coupon):
    redeem(coupon, amount="199.00")
    result = redeem(coupon, amount="299.00")
    assert refused(result, Unusable.ORDER_DIFFERS)
    assert result.facts == {"order_amount": "199.00"}
    assert ledger() == [("REDEEM", 1, "A")]


def test_second_order_finds_the_coupon_used(coupon):
    redeem(coupon, "A")
    assert refused(redeem(coupon, "B"), Unusable.COUPON_REDEEMED)
    assert state(coupon) == ("REDEEMED", "A", 1)


def test_order_ids_that_differ_in_case_are_two_orders(coupon):
    redeem(coupon, "order-a")
    assert refused(redeem(coupon, "ORDER-A"), Unusable.COUPON_REDEEMED)
    assert refused(give_back(coupon, "ORDER-A"), Unusable.NOT_REDEEMED)
    give_back(coupon, "order-a")
    assert isinstance(redeem(coupon, "ORDER-A"), Entered)
    assert ledger() == [("REDEEM", 1, "order-a"), ("ROLL_BACK", 1, "order-a"), ("REDEEM", 2, "ORDER-A")]


@pytest.mark.parametrize(
    ("change", "amount", "why"),
    [
        ({"status": "EXPIRED"}, "199.00", Unusable.COUPON_EXPIRED),
        ({"status": "VOIDED"}, "199.00", Unusable.COUPON_VOIDED),
        ({"expires_at": -MILLISECOND}, "199.00", Unusable.COUPON_EXPIRED),  # from now
        ({}, "99.99", Unusable.BELOW_MIN_SPEND),
        ({"min_payable": D("199.00")}, "199.00", Unusable.NO_DISCOUNT),
    ],
)
def test_coupon_that_does_not_apply_is_refused_and_nothing_changes(coupon, change, amount, why):
    now = timezone.now()
    Coupon.objects.filter(pk=coupon.pk).update(**moments_from(now, change))
    before = Coupon.objects.filter(pk=coupon.pk).values().get()
    assert refused(redeem(coupon, amount=amount, now=now), why)
    quote = coupon_quote(coupon_id=coupon.pk, user_id=7, order_amount=D(amount), now=now)
    assert refused(quote, why)
    assert Coupon.objects.filter(pk=coupon.pk).values().get() == before
    assert ledger() == []


def test_p17_coupon_of_another_shopper_does_not_exist(coupon):
    assert refused(redeem(coupon, user_id=8), Unusable.UNKNOWN_COUPON)
    assert refused(
        coupon_quote(coupon_id=coupon.pk, user_id=8, order_amount=D(199), now=timezone.now()), Unusable.UNKNOWN_COUPON
    )
    assert state(coupon) == ("UNUSED", "", 0)


def test_l15_boundary_of_expiry_is_the_same_for_quote_redeem_and_status(coupon):
    end = coupon.expires_at
    for now, usable in ((end - MILLISECOND, True), (end, False)):
        quoted = coupon_quote(coupon_id=coupon.pk, user_id=7, order_amount=D(199), now=now)
        assert isinstance(quoted, Refused) is not usable
        assert (coupon.effective_status(now=now) == "UNUSED") is usable
    assert refused(redeem(coupon, now=end), Unusable.COUPON_EXPIRED)
    assert isinstance(redeem(coupon, now=end - MILLISECOND), Entered)


def test_void_activity_makes_its_coupons_unusable_before_any_job_ran():
    activity = offer()
    coupon = issued(activity)
    services.activity_void(activity_id=activity.pk, reason="x", now=timezone.now())
    assert Coupon.objects.get().status == "UNUSED"
    assert refused(redeem(coupon), Unusable.COUPON_VOIDED)


def test_p16_terms_of_the_moment_of_seizing_decide_at_checkout():
    activity = DraftFactory(status="ACTIVE")
    coupons = [issued(activity, user_id=user_id) for user_id in range(1, 11)]
    Activity.objects.filter(pk=activity.pk).update(amount_off=D("1.00"), min_spend=D("999.00"), min_payable=D(100))
    for coupon in coupons:
        assert redeem(coupon, f"order-{coupon.user_id}", user_id=coupon.user_id).entry.discount == D("20.00")


def test_p15_limit_of_two_gives_two_redemptions_and_the_third_coupon_does_not_exist():
    activity = DraftFactory(status="ACTIVE", per_user_limit=2)
    first, second = (issued(activity, seq=seq) for seq in (1, 2))
    assert isinstance(redeem(first, "A"), Entered)
    assert isinstance(redeem(second, "B"), Entered)
    third = Coupon(pk=second.pk + 1)
    assert refused(redeem(third, "C"), Unusable.UNKNOWN_COUPON)
    assert ledger() == [("REDEEM", 1, "A"), ("REDEEM", 1, "B")]


# -- The write decides -------------------------------------------------------------------------------------


def test_l19_p02_coupon_that_another_order_takes_between_check_and_write_is_not_taken_twice(coupon, monkeypatch):
    """The barrier: everything was checked, then the other order commits, then we write."""
    quote, others = checkout._quote, []

    def then_another_order_comes(coupon, **arguments):
        quoted = quote(coupon, **arguments)
        if not others:
            others.append("B")
            others.append(redeem(coupon, "B"))
        return quoted

    monkeypatch.setattr(checkout, "_quote", then_another_order_comes)
    assert refused(redeem(coupon, "A"), Unusable.COUPON_REDEEMED)
    assert isinstance(others[1], Entered)
    assert ledger() == [("REDEEM", 1, "B")]
    assert state(coupon) == ("REDEEMED", "B", 1)


def test_p03_update_that_matches_no_row_enters_nothing_and_is_said(coupon, monkeypatch):
    """Somebody changes the row each time between reading and writing: no entry without its coupon."""
    quote = checkout._quote

    def changed_meanwhile(coupon, **arguments):
        Coupon.objects.filter(pk=coupon.pk).update(uses=coupon.uses + 5)
        return quote(coupon, **arguments)

    monkeypatch.setattr(checkout, "_quote", changed_meanwhile)
    with pytest.raises(ContentionLost):
        redeem(coupon)
    assert ledger() == []
    assert state(coupon)[:2] == ("UNUSED", "")


def test_ledger_that_cannot_be_written_leaves_the_coupon_unused(coupon, monkeypatch):
    def full(**_arguments):
        raise IntegrityError(1062, "Duplicate entry")

    monkeypatch.setattr(Redemption.objects, "create", full)
    with pytest.raises(IntegrityError):
        redeem(coupon)
    assert state(coupon) == ("UNUSED", "", 0)


# -- Roll back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["the shopper cancelled", "payment timed out", "operator", "refund"])
def test_p13_every_path_gives_the_coupon_back_once(coupon, path):
    redeem(coupon)
    first = give_back(coupon, reason=path)
    second = give_back(coupon, reason="another path comes later", now=timezone.now() + HOUR)
    assert (first.replay, second.replay, second.entry.pk) == (False, True, first.entry.pk)
    assert (second.entry.reason, second.entry.restored_to) == (path, "UNUSED")
    assert ledger() == [("REDEEM", 1, "A"), ("ROLL_BACK", 1, "A")]
    assert state(coupon) == ("UNUSED", "", 1)
    assert coupon.redeemed_at is None


def test_l20_coupon_given_back_after_its_end_is_expired(coupon):
    redeem(coupon)
    result = give_back(coupon, now=coupon.expires_at)
    assert result.entry.restored_to == "EXPIRED"
    assert state(coupon) == ("EXPIRED", "", 1)
    assert refused(redeem(coupon, "B"), Unusable.COUPON_EXPIRED)


def test_l20_coupon_given_back_after_a_void_is_void():
    activity = offer()
    coupon = issued(activity)
    redeem(coupon)
    services.activity_void(activity_id=activity.pk, reason="x", now=timezone.now())
    assert give_back(coupon).entry.restored_to == "VOIDED"
    assert state(coupon) == ("VOIDED", "", 1)
    assert refused(redeem(coupon, "B"), Unusable.COUPON_VOIDED)


def test_l20_giving_back_twice_adds_no_use(coupon):
    redeem(coupon)
    for _ in range(3):
        give_back(coupon)
    assert isinstance(redeem(coupon, "B"), Entered)
    assert refused(redeem(coupon, "C"), Unusable.COUPON_REDEEMED)
    assert ledger() == [("REDEEM", 1, "A"), ("ROLL_BACK", 1, "A"), ("REDEEM", 2, "B")]
    assert state(coupon) == ("REDEEMED", "B", 2)


def test_order_that_gave_the_coupon_back_cannot_take_it_again_by_a_late_retry(coupon):
    redeem(coupon, "A")
    give_back(coupon, "A")
    assert refused(redeem(coupon, "A"), Unusable.ORDER_ROLLED_BACK)
    assert state(coupon) == ("UNUSED", "", 1)


def test_first_order_asking_to_give_back_again_does_not_take_the_coupon_from_the_second(coupon):
    redeem(coupon, "A")
    give_back(coupon, "A")
    redeem(coupon, "B")
    assert give_back(coupon, "A").replay
    assert state(coupon) == ("REDEEMED", "B", 2)


def test_order_that_never_redeemed_gives_nothing_back(coupon):
    assert refused(give_back(coupon, "X"), Unusable.NOT_REDEEMED)
    redeem(coupon, "A")
    assert refused(give_back(coupon, "X"), Unusable.NOT_REDEEMED)
    assert refused(give_back(Coupon(pk=coupon.pk + 1), "A"), Unusable.UNKNOWN_COUPON)
    assert state(coupon) == ("REDEEMED", "A", 1)


def test_void_that_passes_a_roll_back_leaves_a_coupon_that_is_void_all_the_same(monkeypatch):
    """The roll-back read the activity before the void: stored as unused, shown as void, and swept."""
    activity = offer()
    coupon = issued(activity)
    redeem(coupon)
    when_unused = Coupon.status_when_unused

    def then_the_void_commits(self, *, now):
        status = when_unused(self, now=now)
        services.activity_void(activity_id=activity.pk, reason="x", now=timezone.now())
        return status

    monkeypatch.setattr(Coupon, "status_when_unused", then_the_void_commits)
    give_back(coupon)
    assert Coupon.objects.get().status == "UNUSED"
    assert Coupon.objects.get().effective_status(now=timezone.now()) == "VOIDED"
    assert coupons_expire(now=timezone.now()) == {"expired": 0, "voided": 1}


# -- The ledger --------------------------------------------------------------------------------------------


def test_l20_ledger_is_append_only(coupon):
    entry = redeem(coupon).entry
    for change in (
        lambda: Redemption.objects.all().update(discount=D(1)),
        lambda: Redemption.objects.all().delete(),
        lambda: Redemption.objects.bulk_update([entry], ["discount"]),
        entry.save,
        lambda: entry.save(update_fields=["discount"]),
        entry.delete,
        lambda: Redemption.objects.bulk_create(
            [entry], update_conflicts=True, update_fields=["discount"], unique_fields=["id"]
        ),
    ):
        with pytest.raises(TypeError, match="neither changed nor deleted"):
            change()
    assert ledger() == [("REDEEM", 1, "A")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"payable": D("1.00")},
        {"discount": D("0.00"), "payable": D("199.00")},
        {"discount": D("299.00"), "payable": D("-100.00")},
        {"entry": "ROLL_BACK", "restored_to": ""},
        {"restored_to": "UNUSED"},
        {"turn": 1},
        {"turn": 2, "order_id": "A"},
    ],
)
def test_database_itself_refuses_an_entry_that_does_not_add_up(coupon, wrong):
    redeem(coupon)
    fields = {
        "coupon": coupon, "activity_id": coupon.activity_id, "user_id": 7, "entry": "REDEEM", "turn": 2,
        "order_id": "B", "order_amount": D("199.00"), "discount": D("20.00"), "payable": D("179.00"),
        "made_by": "x", "created_at": timezone.now(), **wrong,
    }  # fmt: skip
    with pytest.raises(IntegrityError), transaction.atomic():
        Redemption.objects.create(**fields)
    assert ledger() == [("REDEEM", 1, "A")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "REDEEMED", "order_id": "", "redeemed_at": REDEEMED_AT, "uses": 1},
        {"status": "REDEEMED", "order_id": "A", "redeemed_at": None, "uses": 1},
        {"status": "REDEEMED", "order_id": "A", "redeemed_at": REDEEMED_AT, "uses": 0},
        {"status": "UNUSED", "order_id": "A"},
        {"status": "EXPIRED", "redeemed_at": REDEEMED_AT},
    ],
)
def test_database_itself_refuses_a_coupon_that_contradicts_its_order(coupon, wrong):
    with pytest.raises(IntegrityError), transaction.atomic():
        Coupon.objects.filter(pk=coupon.pk).update(**wrong)


# -- Available -------------------------------------------------------------------------------------------


def test_available_says_best_first_and_of_the_rest_why_not():
    now = timezone.now()
    ten = issued(DraftFactory(status="ACTIVE", amount_off=D(10)))
    soon = issued(DraftFactory(status="ACTIVE", amount_off=D(20)), expires_at=now + HOUR)
    later = issued(DraftFactory(status="ACTIVE", amount_off=D(20)), expires_at=now + 2 * HOUR)
    third = issued(DraftFactory(status="ACTIVE", **percent_terms()))
    high = issued(DraftFactory(status="ACTIVE", min_spend=D("199.01")))
    overdue = issued(DraftFactory(status="ACTIVE"), expires_at=now)
    void = issued(DraftFactory(status="VOIDED"))
    used = issued(DraftFactory(status="ACTIVE"))
    redeem(used, "A")
    issued(DraftFactory(status="ACTIVE"), user_id=8)
    found = checkout.coupons_available(user_id=7, amount=D("199.00"), now=now)
    assert [(coupon.pk, str(quote.discount)) for coupon, quote in found.usable] == [
        (third.pk, "39.80"), (soon.pk, "20.00"), (later.pk, "20.00"), (ten.pk, "10.00"),
    ]  # fmt: skip
    assert {coupon.pk: refused.why for coupon, refused in found.unusable} == {
        high.pk: Unusable.BELOW_MIN_SPEND,
        overdue.pk: Unusable.COUPON_EXPIRED,
        void.pk: Unusable.COUPON_VOIDED,
        used.pk: Unusable.COUPON_REDEEMED,
    }
    assert found.complete


def test_available_shows_what_is_won_and_not_yet_a_row():
    from seize.requests import SeizeRequest
    from seize.services import coupon_seize
    from tests.factories import drain

    activity = offer()
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
    found = checkout.coupons_available(user_id=7, amount=D(199), now=timezone.now())
    assert [(coupon.pk, refused.why) for coupon, refused in found.unusable] == [(None, Unusable.COUPON_PENDING)]
    drain(activity)
    found = checkout.coupons_available(user_id=7, amount=D(199), now=timezone.now())
    assert ([coupon.pk for coupon, _quote in found.usable], found.unusable) == ([Coupon.objects.get().pk], [])


def test_claim_drained_between_queue_and_rows_is_available_once(monkeypatch):
    from seize.requests import SeizeRequest
    from seize.services import coupon_seize
    from tests.factories import drain

    activity = offer()
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
    read_queue = checkout.pending_claims

    def and_then_the_drain_runs(*, user_id: int):
        pending = read_queue(user_id=user_id)
        drain(activity)
        return pending

    monkeypatch.setattr(checkout, "pending_claims", and_then_the_drain_runs)
    found = checkout.coupons_available(user_id=7, amount=D(199), now=timezone.now())
    assert (len(found.usable), found.unusable) == (1, [])


def test_checkout_goes_on_while_redis_is_away_and_says_what_it_cannot_know(settings, coupon):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    found = checkout.coupons_available(user_id=7, amount=D(199), now=timezone.now())
    assert ([pair[0].pk for pair in found.usable], found.complete) == ([coupon.pk], False)
    assert isinstance(redeem(coupon), Entered)
    assert isinstance(give_back(coupon), Entered)


def test_claim_of_a_voided_activity_is_void_and_not_on_its_way():
    from seize.requests import SeizeRequest
    from seize.services import coupon_seize

    activity = offer()
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
    services.activity_void(activity_id=activity.pk, reason="x", now=timezone.now())
    found = checkout.coupons_available(user_id=7, amount=D(199), now=timezone.now())
    assert [refused.why for _coupon, refused in found.unusable] == [Unusable.COUPON_VOIDED]


def test_available_looks_at_so_many_and_says_that_there_are_more(monkeypatch):
    monkeypatch.setattr(checkout, "HELD_MAX", 3)
    monkeypatch.setattr(checkout, "PAST_MAX", 2)
    activity, now = DraftFactory(status="ACTIVE", per_user_limit=20), timezone.now()
    coupons = [issued(activity, seq=seq, expires_at=now + seq * HOUR) for seq in range(1, 5)]
    for seq in range(5, 9):
        issued(activity, seq=seq, status="EXPIRED")
    found = checkout.coupons_available(user_id=7, amount=D(199), now=now)
    assert [coupon.pk for coupon, _quote in found.usable] == [coupon.pk for coupon in coupons[:3]]
    assert [coupon.seq for coupon, _refused in found.unusable] == [8, 7]
    assert not found.complete


def test_five_uses_and_returns_are_ten_entries_one_turn_after_the_other(coupon):
    """A life in full: every entry is one of redeem or roll-back, alternating, one turn after the other."""
    for turn in range(1, 6):
        redeem(coupon, f"order-{turn}")
        give_back(coupon, f"order-{turn}")
    entries = Counter(entry for entry, _turn, _order in ledger())
    assert entries == {"REDEEM": 5, "ROLL_BACK": 5}
    assert [turn for _entry, turn, _order in ledger()] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert state(coupon) == ("UNUSED", "", 5)
