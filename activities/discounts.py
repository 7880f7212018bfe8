"""What a coupon takes off an order: pure arithmetic in Decimal yuan, quantised once, to the cent.

The rules, in this order; each amount is in yuan with at most two decimals:

1. below ``min_spend`` the coupon does not apply;
2. FIXED takes ``amount_off``; PERCENT takes what is above ``pay_percent``, at most ``max_off``;
3. at least ``min_payable`` stays to be paid, so a discount never exceeds the order;
4. half a cent is rounded away from zero, once, at the end;
5. a discount of nothing is none: the coupon is not spent for it.
"""

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Protocol

CENT = Decimal("0.01")
NOTHING = Decimal("0.00")
EXACT = Context(prec=28)  # whatever the caller's own context is


class Terms(Protocol):
    """What a coupon is worth: an activity's offer, or a coupon's frozen terms."""

    kind: str
    min_spend: Decimal
    amount_off: Decimal | None
    pay_percent: int | None
    max_off: Decimal | None
    min_payable: Decimal


@dataclass(frozen=True, slots=True)
class Quote:
    """An order's ``amount`` split in two; ``discount + payable == amount``, neither is negative."""

    amount: Decimal
    discount: Decimal
    payable: Decimal


def discount_quote(*, terms: Terms, amount: Decimal) -> Quote:
    """What the terms take off an order of ``amount`` yuan; a discount of 0.00 where they do not apply.

    :raises ValueError: the amount is not positive, or has fractions of a cent.
    """
    with localcontext(EXACT):
        return _quote(terms, amount)


def _quote(terms: Terms, amount: Decimal) -> Quote:
    if not (amount.is_finite() and amount > 0 and amount == amount.quantize(CENT)):
        raise ValueError(f"an order's amount is positive and whole in cents, not {amount}")
    if amount < terms.min_spend:
        return Quote(amount, NOTHING, amount)
    if terms.kind == "FIXED":
        assert terms.amount_off is not None  # the constraint kind_amount
        off = terms.amount_off
    else:
        assert terms.pay_percent is not None  # the constraint kind_amount
        off = amount * (100 - terms.pay_percent) / 100
        if terms.max_off is not None:
            off = min(off, terms.max_off)
    off = min(off, amount - terms.min_payable)
    discount = max(off.quantize(CENT, ROUND_HALF_UP), NOTHING)
    return Quote(amount, discount, amount - discount)
