"""What a coupon takes off: worked cases to the cent, those of the documents, and what holds for any."""

import re
from dataclasses import dataclass
from decimal import ROUND_UP, Context, Decimal, localcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.discounts import Quote, discount_quote

D = Decimal
NONE = D("0.00")
CHECKOUT = Path(__file__).resolve().parents[2] / "docs/checkout.md"


@dataclass
class Terms:
    kind: str = "FIXED"
    min_spend: Decimal = NONE
    amount_off: Decimal | None = None
    pay_percent: int | None = None
    max_off: Decimal | None = None
    min_payable: Decimal = NONE


def fixed(off: str, **more: object) -> Terms:
    return Terms(amount_off=D(off), **more)


def percent(pay: int, **more: object) -> Terms:
    return Terms(kind="PERCENT", pay_percent=pay, **more)


@pytest.mark.parametrize(
    ("terms", "amount", "discount", "payable"),
    [
        (fixed("20.00", min_spend=D("100.00")), "100.00", "20.00", "80.00"),
        (fixed("20.00", min_spend=D("100.00")), "99.99", "0.00", "99.99"),
        (fixed("100.00"), "60.00", "60.00", "0.00"),  # L18: never more than the order
        (fixed("100.00", min_payable=D("0.01")), "60.00", "59.99", "0.01"),
        (fixed("5.00", min_payable=D("10.00")), "9.00", "0.00", "9.00"),
        (percent(75), "19.99", "5.00", "14.99"),  # 4.9975
        (percent(90), "3.65", "0.37", "3.28"),  # 0.365: half a cent is rounded away from zero
        (percent(80), "0.02", "0.00", "0.02"),  # 0.004
        (percent(80, max_off=D("50.00")), "1000.00", "50.00", "950.00"),
        (percent(1), "99999999.99", "98999999.99", "1000000.00"),
        (percent(99), "0.50", "0.01", "0.49"),  # 0.005
        (percent(99), "0.49", "0.00", "0.49"),
        (percent(80, max_off=D("0.01")), "0.03", "0.01", "0.02"),
    ],
)
def test_l18_discount_is_capped_and_rounded_once_to_the_cent(terms, amount, discount, payable):
    quote = discount_quote(terms=terms, amount=D(amount))
    assert (str(quote.discount), str(quote.payable)) == (discount, payable)


@pytest.mark.parametrize("amount", ["0", "0.00", "-1", "1.001", "NaN", "Infinity", "0.005"])
def test_amount_that_is_none_is_an_error_not_a_discount(amount):
    with pytest.raises(ValueError, match="positive and whole in cents"):
        discount_quote(terms=fixed("1.00"), amount=D(amount))


cents = st.integers(1, 9_999_999_999).map(lambda n: D(n) / 100)
small = st.integers(0, 100_000).map(lambda n: D(n) / 100)
shared = {"min_spend": small, "min_payable": small}
anything = st.one_of(
    st.builds(Terms, amount_off=cents, **shared),
    st.builds(Terms, kind=st.just("PERCENT"), pay_percent=st.integers(1, 99), max_off=st.none() | cents, **shared),
)


@given(terms=anything, amount=cents)
def test_discount_and_payable_add_up_and_neither_is_negative(terms, amount):
    quote = discount_quote(terms=terms, amount=amount)
    assert quote.discount + quote.payable == amount
    assert 0 <= quote.discount <= amount
    assert quote.discount == quote.discount.quantize(D("0.01"))
    if terms.max_off is not None:
        assert quote.discount <= terms.max_off
    if quote.discount:
        assert amount >= terms.min_spend
        assert quote.payable >= terms.min_payable


@given(terms=anything, amount=cents, more=st.integers(1, 100_000))
def test_larger_order_never_gets_less_off_nor_pays_less_where_the_coupon_applies(terms, amount, more):
    smaller = discount_quote(terms=terms, amount=amount)
    larger = discount_quote(terms=terms, amount=amount + D(more) / 100)
    assert larger.discount >= smaller.discount
    if amount >= terms.min_spend:
        assert larger.payable >= smaller.payable


@given(terms=anything, amount=cents)
def test_arithmetic_does_not_depend_on_the_callers_precision_or_rounding(terms, amount):
    expected = discount_quote(terms=terms, amount=amount)
    for context in (Context(prec=50), Context(prec=3), Context(prec=28, rounding=ROUND_UP)):
        with localcontext(context):
            assert discount_quote(terms=terms, amount=amount) == expected


def test_worked_cases_of_the_documents_are_computed():
    """Each row of the table: kind, terms, order, discount, payable."""
    rows = re.findall(
        r"^\| (FIXED|PERCENT) \| ([^|]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", CHECKOUT.read_text(), re.MULTILINE
    )
    assert len(rows) >= 10
    for kind, terms, amount, discount, payable in rows:
        given_terms = dict(term.split("=") for term in terms.replace("`", "").split(", "))
        numbers = {name: int(value) if name == "pay_percent" else D(value) for name, value in given_terms.items()}
        expected = Quote(D(amount), D(discount), D(payable))
        assert discount_quote(terms=Terms(kind=kind, **numbers), amount=D(amount)) == expected, (kind, terms, amount)
        assert str(D(amount) - D(discount)) == payable
