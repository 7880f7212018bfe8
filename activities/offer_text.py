"""What a coupon is worth, in words: ``20.00 off orders from 100.00``, ``满100减20``. Pure; money in yuan.

Not by gettext: a page may show both languages at once, and Chinese says the minimum first and the discount as 折.
"""

from collections.abc import Callable
from decimal import Decimal

from activities.discounts import Terms


def offer_text(*, terms: Terms, language: str) -> str:
    """The discount as one line of ``language``, a code such as ``zh-hans``; English for all but Chinese."""
    words: Callable[[Terms], str] = _chinese if language.lower().startswith("zh") else _english
    return words(terms)


def offer_headline(*, terms: Terms, language: str) -> str:
    """The discount alone, as large as it may be written: ``¥20``, ``8折``, ``20% off``."""
    if terms.kind == "FIXED":
        assert terms.amount_off is not None  # the constraint kind_amount
        return f"¥{_short(terms.amount_off)}"
    assert terms.pay_percent is not None  # the constraint kind_amount
    if language.lower().startswith("zh"):
        return f"{_short(Decimal(terms.pay_percent) / 10)}折"
    return f"{100 - terms.pay_percent}% off"


def offer_condition(*, terms: Terms, language: str) -> str:
    """From which order on it holds: ``from ¥100``, ``满100可用``."""
    is_chinese = language.lower().startswith("zh")
    if terms.min_spend > 0:
        minimum = _short(terms.min_spend)
        return f"满{minimum}可用" if is_chinese else f"from ¥{minimum}"
    return "无门槛" if is_chinese else "any order"


def _english(terms: Terms) -> str:
    if terms.kind == "FIXED":
        assert terms.amount_off is not None  # the constraint kind_amount
        off = f"{terms.amount_off:.2f} off"
    else:
        assert terms.pay_percent is not None  # the constraint kind_amount
        off = f"{100 - terms.pay_percent}% off"
    orders = f"orders from {terms.min_spend:.2f}" if terms.min_spend > 0 else "any order"
    text = f"{off} {orders}"
    if terms.max_off is not None:
        text += f", at most {terms.max_off:.2f} off"
    if terms.min_payable > 0:
        text += f", at least {terms.min_payable:.2f} to pay"
    return text


def _chinese(terms: Terms) -> str:
    minimum = f"满{_short(terms.min_spend)}" if terms.min_spend > 0 else ""
    if terms.kind == "FIXED":
        assert terms.amount_off is not None  # the constraint kind_amount
        text = f"{minimum or '立'}减{_short(terms.amount_off)}"
    else:
        assert terms.pay_percent is not None  # the constraint kind_amount
        tenths = _short(Decimal(terms.pay_percent) / 10)
        text = f"{minimum}打{tenths}折" if minimum else f"{tenths}折"
    if terms.max_off is not None:
        text += f"，最多减{_short(terms.max_off)}"
    if terms.min_payable > 0:
        text += f"，最低实付{_short(terms.min_payable)}"
    return text


def _short(amount: Decimal) -> str:
    """As few digits as say it: 100, 19.9, 0.01."""
    text = f"{amount:.2f}"
    return text.rstrip("0").rstrip(".")
