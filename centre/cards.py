"""Activities and coupons as pages show them: what the API says of them, in words and in the site's time zone."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from activities.moments import validity_text
from activities.offer_text import offer_condition, offer_headline, offer_text
from activities.statuses import CouponStatus, EffectiveStatus


@dataclass(slots=True)
class Terms:
    """What a coupon is worth, read back from an answer of the API. Money in yuan."""

    kind: str
    min_spend: Decimal
    amount_off: Decimal | None
    pay_percent: int | None
    max_off: Decimal | None
    min_payable: Decimal


def terms_of(body: Mapping[str, Any]) -> Terms:
    """The terms in an activity's or a coupon's body, whose money is text."""

    def money(name: str) -> Decimal | None:
        return None if body[name] is None else Decimal(body[name])

    return Terms(
        body["kind"], Decimal(body["min_spend"]), money("amount_off"), body["pay_percent"], money("max_off"),
        Decimal(body["min_payable"]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Offer:
    """A discount in the words of a language: large, its condition, and in full."""

    headline: str
    condition: str
    text: str


def offer_of(body: Mapping[str, Any], *, language: str) -> Offer:
    """The offer in an activity's or a coupon's body."""
    terms = terms_of(body)
    return Offer(
        offer_headline(terms=terms, language=language),
        offer_condition(terms=terms, language=language),
        offer_text(terms=terms, language=language),
    )


@dataclass(frozen=True, slots=True)
class Card:
    """An activity on a page. ``left_percent`` is for the bar, None where Redis does not know the stock."""

    body: Mapping[str, Any]
    offer: Offer
    starts_at: datetime
    ends_at: datetime
    button: str
    validity: str

    @property
    def left_percent(self) -> int | None:
        left, total = self.body["stock_left"], self.body["stock_total"]
        return None if left is None else min(100, -(-100 * left // total))

    @property
    def closed(self) -> str:
        """Why nobody can press; nothing while it is open."""
        is_open = self.body["status"] == EffectiveStatus.ONGOING and self.body["stock_left"] != 0
        return "" if is_open else self.button

    @property
    def moments_ms(self) -> tuple[int, int]:
        """Start and end as scripts count, Unix ms."""
        return int(self.starts_at.timestamp() * 1000), int(self.ends_at.timestamp() * 1000)


def card_of(body: Mapping[str, Any], *, language: str, is_known: bool) -> Card:
    """A card in the active language, which is ``language``; for somebody who has logged in, or not."""
    starts_at, ends_at = moment_read(body["starts_at"]), moment_read(body["ends_at"])
    valid_until = body["valid_until"]
    return Card(
        body,
        offer_of(body, language=language),
        starts_at,
        ends_at,
        _button(body, is_known=is_known),
        validity_text(valid_until=valid_until and moment_read(valid_until), valid_days=body["valid_days"]),
    )


def _button(body: Mapping[str, Any], *, is_known: bool) -> str:
    """What the button says before a script has looked; the same words that the script uses."""
    if body["coming_soon"]:
        return _("Coming soon")
    match body["status"]:
        case EffectiveStatus.UPCOMING:
            return _("Not started")
        case EffectiveStatus.PAUSED:
            return _("Paused")
        case EffectiveStatus.ONGOING:
            if body["stock_left"] == 0:
                return _("Sold out")
            return _("Seize") if is_known else _("Log in to seize")
    return _("Ended")


@dataclass(frozen=True, slots=True)
class Held:
    """A coupon in a shopper's wallet."""

    body: Mapping[str, Any]
    offer: Offer
    seized_at: datetime
    expires_at: datetime
    status: str


def held_of(body: Mapping[str, Any], *, language: str) -> Held:
    """A coupon in the active language, which is ``language``."""
    return Held(
        body, offer_of(body, language=language), moment_read(body["seized_at"]), moment_read(body["expires_at"]),
        str(CouponStatus(body["status"].upper()).label),
    )  # fmt: skip


def moment_read(text: str) -> datetime:
    """An RFC 3339 time in the site's zone."""
    return timezone.localtime(datetime.fromisoformat(text), timezone.get_default_timezone())
