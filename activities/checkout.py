"""Coupons at checkout: which one, what it takes off, redeem it for an order, give it back.

Every write is one conditional UPDATE of the coupon's row, which only one of many parallel orders can win, and then one
entry of the ledger in the same transaction. An order that asks again gets the answer that it got.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum, auto

from django.db import IntegrityError, transaction

from activities.admission import STORE_FAULTS
from activities.audit import Action, Actor, event_record
from activities.contention import ContentionLost, contention_retried
from activities.coupons import coupon_of
from activities.discounts import Quote, discount_quote
from activities.models import Coupon, Redemption
from activities.statuses import CouponStatus
from activities.wallet import pending_claims

log = logging.getLogger(__name__)

HELD_MAX = 500  # unused coupons of one shopper that a checkout looks at, those that expire first
PAST_MAX = 20  # coupons no longer unused that it explains, newest first
TRIES = 5

Entry = Redemption.Entry


class Unusable(Enum):
    """Why a coupon cannot be used, or not given back. Names are the API's codes."""

    UNKNOWN_COUPON = auto()
    COUPON_PENDING = auto()
    COUPON_EXPIRED = auto()
    COUPON_VOIDED = auto()
    COUPON_REDEEMED = auto()
    BELOW_MIN_SPEND = auto()
    NO_DISCOUNT = auto()
    ORDER_ROLLED_BACK = auto()
    ORDER_DIFFERS = auto()
    NOT_REDEEMED = auto()


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was changed; ``facts`` are members of the problem that help the caller (text, never a Decimal)."""

    why: Unusable
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entered:
    """An entry of the ledger: made now, or (``replay``) when the same order asked before."""

    entry: Redemption
    replay: bool = False


Written = Entered | Refused


# -- Looking ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Available:
    """A shopper's coupons held against an order.

    :param usable: with their quotes, the largest discount first, then what expires first.
    :param unusable: with why not; unused ones first, then the newest of the others.
    :param complete: False when there were more than are looked at, or pending ones could not be asked for.
    """

    usable: list[tuple[Coupon, Quote]]
    unusable: list[tuple[Coupon, Refused]]
    complete: bool


def coupons_available(*, user_id: int, amount: Decimal, now: datetime) -> Available:
    """Which of a shopper's coupons an order of ``amount`` yuan can use.

    The queue is read before the rows: a claim that is drained in between is seen twice and shown once.
    """
    complete = True
    try:
        pending = [coupon_of(claim, activity) for claim, activity in pending_claims(user_id=user_id)]
    except STORE_FAULTS as fault:
        log.warning("coupons on their way to shopper %s cannot be asked for: %s", user_id, fault)
        pending, complete = [], False
    rows = Coupon.objects.filter(user_id=user_id).select_related("activity")
    # In this order: what is given back in between is seen twice, and shown once; only a use in between hides a coupon.
    past = list(rows.exclude(status=CouponStatus.UNUSED).order_by("-id")[:PAST_MAX])
    held = list(rows.filter(status=CouponStatus.UNUSED).order_by("expires_at", "id")[: HELD_MAX + 1])
    unused = {coupon.pk for coupon in held}
    past = [coupon for coupon in past if coupon.pk not in unused]
    complete = complete and len(held) <= HELD_MAX

    usable: list[tuple[Coupon, Quote]] = []
    unusable: list[tuple[Coupon, Refused]] = []
    for coupon in [*held[:HELD_MAX], *past]:
        quoted = _quote(coupon, amount=amount, now=now)
        if isinstance(quoted, Quote):
            usable.append((coupon, quoted))
        else:
            unusable.append((coupon, quoted))
    usable.sort(key=lambda pair: (-pair[1].discount, pair[0].expires_at, pair[0].pk))
    arrived = {(coupon.activity_id, coupon.seq) for coupon in (*held, *past)}
    waiting = [coupon for coupon in pending if (coupon.activity_id, coupon.seq) not in arrived]
    unusable = [(coupon, _not_yet(coupon, now=now)) for coupon in waiting] + unusable
    return Available(usable, unusable, complete)


def _not_yet(coupon: Coupon, *, now: datetime) -> Refused:
    """Why a coupon without a row cannot be used: it is on its way, unless it will be void or expired on arrival."""
    match coupon.effective_status(now=now):
        case CouponStatus.VOIDED:
            return Refused(Unusable.COUPON_VOIDED)
        case CouponStatus.EXPIRED:
            return Refused(Unusable.COUPON_EXPIRED)
    return Refused(Unusable.COUPON_PENDING)


def coupon_quote(*, coupon_id: int, user_id: int, order_amount: Decimal, now: datetime) -> Quote | Refused:
    """What redeeming this coupon would take off; changes nothing and holds nothing."""
    coupon = Coupon.objects.select_related("activity").filter(pk=coupon_id, user_id=user_id).first()
    if coupon is None:
        return Refused(Unusable.UNKNOWN_COUPON)
    return _quote(coupon, amount=order_amount, now=now)


def _quote(coupon: Coupon, *, amount: Decimal, now: datetime) -> Quote | Refused:
    match coupon.effective_status(now=now):
        case CouponStatus.REDEEMED:
            return Refused(Unusable.COUPON_REDEEMED)
        case CouponStatus.VOIDED:
            return Refused(Unusable.COUPON_VOIDED)
        case CouponStatus.EXPIRED:
            return Refused(Unusable.COUPON_EXPIRED)
    if amount < coupon.min_spend:
        return Refused(Unusable.BELOW_MIN_SPEND, {"min_spend": f"{coupon.min_spend:.2f}"})
    quote = discount_quote(terms=coupon, amount=amount)
    return quote if quote.discount else Refused(Unusable.NO_DISCOUNT)


# -- Redeeming and giving back ---------------------------------------------------------------------------


def coupon_redeem(
    *, coupon_id: int, user_id: int, order_id: str, order_amount: Decimal, by: Actor, now: datetime
) -> Written:
    """Use a shopper's coupon for an order: of many parallel orders exactly one gets it.

    The same order again gets the same entry. An order that gave the coupon back cannot have it again: a retry that
    arrives late must not use it for an order that is no more. A coupon that can be used rarely knows the order already,
    and the ledger's own constraint says so then: only what cannot be used is looked up first.

    :raises activities.contention.ContentionLost: others kept changing this coupon; nothing was changed.
    """
    is_known = False  # the ledger has refused a second entry of this order

    def attempt() -> Written | None:
        nonlocal is_known
        coupon = Coupon.objects.select_related("activity").filter(pk=coupon_id, user_id=user_id).first()
        if coupon is None:
            return Refused(Unusable.UNKNOWN_COUPON)
        quote = _quote(coupon, amount=order_amount, now=now)
        if is_known or isinstance(quote, Refused):
            if (known := _known_order(coupon, order_id, order_amount)) is not None:
                return known
            if isinstance(quote, Refused):
                return quote
        turn = coupon.uses + 1
        unused = Coupon.objects.filter(
            pk=coupon.pk, status=CouponStatus.UNUSED, uses=coupon.uses, user_id=user_id, expires_at__gt=now
        )
        if not unused.update(status=CouponStatus.REDEEMED, order_id=order_id, redeemed_at=now, uses=turn):
            return None
        try:
            entry = Redemption.objects.create(
                coupon=coupon, activity_id=coupon.activity_id, user_id=user_id, entry=Entry.REDEEM, turn=turn,
                order_id=order_id, order_amount=order_amount, discount=quote.discount, payable=quote.payable,
                made_by=by.name[:150], created_at=now,
            )  # fmt: skip
        except IntegrityError:
            if is_known:
                raise
            is_known = True
            raise _OrderKnown from None
        return Entered(entry)

    return _won(attempt)


def _known_order(coupon: Coupon, order_id: str, order_amount: Decimal) -> Written | None:
    """The answer for an order that this coupon knows, None for a new one."""
    if not coupon.uses:
        return None
    entries = {entry.entry: entry for entry in coupon.redemptions.filter(order_id=order_id)}
    if Entry.ROLL_BACK in entries:
        return Refused(Unusable.ORDER_ROLLED_BACK)
    redeemed = entries.get(Entry.REDEEM)
    if redeemed is None:
        return None
    if redeemed.order_amount != order_amount:
        return Refused(Unusable.ORDER_DIFFERS, {"order_amount": f"{redeemed.order_amount:.2f}"})
    return Entered(redeemed, replay=True)


def coupon_roll_back(*, coupon_id: int, order_id: str, reason: str, by: Actor, now: datetime) -> Written:
    """Give a coupon back that this order redeemed: once, whatever the path (the shopper, a time-out, staff, a refund).

    It becomes what it would be by now: unused, expired by the clock, or void with its activity.

    :raises activities.contention.ContentionLost: others kept changing this coupon; nothing was changed.
    """

    def attempt() -> Written | None:
        coupon = Coupon.objects.select_related("activity").filter(pk=coupon_id).first()
        if coupon is None:
            return Refused(Unusable.UNKNOWN_COUPON)
        entries = {entry.entry: entry for entry in coupon.redemptions.filter(order_id=order_id)}
        if Entry.ROLL_BACK in entries:
            return Entered(entries[Entry.ROLL_BACK], replay=True)
        redeemed = entries.get(Entry.REDEEM)
        if redeemed is None:
            return Refused(Unusable.NOT_REDEEMED)
        restored = coupon.status_when_unused(now=now)
        by_this_order = Coupon.objects.filter(
            pk=coupon.pk, status=CouponStatus.REDEEMED, order_id=order_id, uses=redeemed.turn
        )
        if not by_this_order.update(status=restored, order_id="", redeemed_at=None):
            return None
        entry = Redemption.objects.create(
            coupon=coupon, activity_id=coupon.activity_id, user_id=coupon.user_id, entry=Entry.ROLL_BACK,
            turn=redeemed.turn, order_id=order_id, order_amount=redeemed.order_amount,
            discount=redeemed.discount, payable=redeemed.payable, restored_to=restored,
            reason=reason, made_by=by.name[:150], created_at=now,
        )  # fmt: skip
        if by.user_id is not None:  # a person; what services do is all in the ledger
            event_record(
                action=Action.ROLL_BACK,
                subject=coupon,
                by=by,
                now=now,
                before={"status": CouponStatus.REDEEMED, "order_id": order_id},
                after={"status": restored},
                reason=reason,
            )
        return Entered(entry)

    return _won(attempt)


class _OrderKnown(Exception):
    """The ledger has this order already: what was written is undone, and the order is looked up."""


@contention_retried
def _won(attempt: Callable[[], Written | None]) -> Written:
    """Read, decide and write in one transaction; once more where the row was changed between reading and writing.

    :raises ContentionLost: it was changed each time.
    """
    for _try in range(TRIES):
        result = None
        with suppress(_OrderKnown), transaction.atomic():
            result = attempt()
        if result is not None:
            return result
    raise ContentionLost("the coupon was changed by others each time")
