"""The discount in words, in both languages, for both kinds and all options."""

from decimal import Decimal

import pytest

from activities.models import Activity
from activities.offer_text import offer_text


def fixed(off: str, *, min_spend: str = "0.00", min_payable: str = "0.00") -> Activity:
    return Activity(
        kind="FIXED", amount_off=Decimal(off), min_spend=Decimal(min_spend), min_payable=Decimal(min_payable)
    )


def percent(pay: int, *, max_off: str | None = None, min_spend: str = "0.00", min_payable: str = "0.00") -> Activity:
    return Activity(
        kind="PERCENT",
        pay_percent=pay,
        max_off=None if max_off is None else Decimal(max_off),
        min_spend=Decimal(min_spend),
        min_payable=Decimal(min_payable),
    )


@pytest.mark.parametrize(
    ("terms", "english", "chinese"),
    [
        (fixed("20.00", min_spend="100.00"), "20.00 off orders from 100.00", "满100减20"),
        (fixed("20.00"), "20.00 off any order", "立减20"),
        (fixed("0.01", min_spend="0.10"), "0.01 off orders from 0.10", "满0.1减0.01"),
        (fixed("19.90", min_spend="99.95"), "19.90 off orders from 99.95", "满99.95减19.9"),
        (fixed("99999999.99", min_spend="1000.00"), "99999999.99 off orders from 1000.00", "满1000减99999999.99"),
        (
            fixed("20.00", min_spend="20.00", min_payable="1.00"),
            "20.00 off orders from 20.00, at least 1.00 to pay",
            "满20减20，最低实付1",
        ),
        (percent(80), "20% off any order", "8折"),
        (percent(80, max_off="50.00"), "20% off any order, at most 50.00 off", "8折，最多减50"),
        (percent(85, min_spend="100.00"), "15% off orders from 100.00", "满100打8.5折"),
        (percent(5), "95% off any order", "0.5折"),
        (percent(99), "1% off any order", "9.9折"),
        (percent(1), "99% off any order", "0.1折"),
        (
            percent(75, max_off="12.50", min_spend="10.00", min_payable="0.01"),
            "25% off orders from 10.00, at most 12.50 off, at least 0.01 to pay",
            "满10打7.5折，最多减12.5，最低实付0.01",
        ),
    ],
)
def test_discount_in_words(terms, english, chinese):
    assert offer_text(terms=terms, language="en") == english
    assert offer_text(terms=terms, language="zh-hans") == chinese


@pytest.mark.parametrize(
    ("language", "text"),
    [("zh", "立减5"), ("ZH-CN", "立减5"), ("en-gb", "5.00 off any order"), ("fr", "5.00 off any order")],
)
def test_language_is_a_code_and_english_for_all_but_chinese(language, text):
    assert offer_text(terms=fixed("5.00"), language=language) == text
