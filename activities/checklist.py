"""What to look at before an activity is submitted: a dry run that changes nothing.

Pure: everything that has to be asked for comes in as :class:`Facts`. Money in yuan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from activities.discounts import CENT, Quote, discount_quote
from activities.models import Activity

SHORT_WINDOW = timedelta(minutes=1)
SHORT_VALIDITY = timedelta(hours=1)
EXAMPLE = Decimal("100.00")  # an order to show a percentage by, where nothing else suggests one


class Level(StrEnum):
    """How bad: an error refuses to submit, a warning asks to look again."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Redis(StrEnum):
    """Whether Redis would sell the activity's coupons now."""

    READY = "ready"
    LOADING = "loading"  # it answers, but is still being compared with the ledger
    AWAY = "away"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the row does not say.

    :param overlaps: id and name of other activities approved or on offer whose windows meet this one's.
    :param redis: None when it was not asked.
    """

    now: datetime
    overlaps: Sequence[tuple[int, str]] = ()
    redis: Redis | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that was looked at; ``text`` says what to do. ``activities`` are ids and names to look at."""

    title: str
    level: Level
    text: str
    activities: tuple[tuple[int, str], ...] = ()


def checklist_of(*, activity: Activity, facts: Facts) -> list[Item]:
    """Everything that was looked at, in the order in which a form asks for it. Nothing is asked of any server."""
    if (fields := _fields(activity)).level is Level.ERROR:
        return [*_window_over(activity, facts), fields]  # the rest could only be guessed from fields that are wrong
    items = [
        fields,
        *_discount(activity),
        *_window(activity, facts),
        _validity(activity),
        _stock(activity),
        _risk(activity),
        _overlaps(facts),
    ]
    return items if facts.redis is None else [*items, _redis(facts.redis)]


def checklist_errors(*, activity: Activity, now: datetime) -> list[str]:
    """What forbids to submit or to publish, as sentences; empty when nothing does."""
    items = checklist_of(activity=activity, facts=Facts(now=now))
    return [item.text for item in items if item.level is Level.ERROR]


def _fields(activity: Activity) -> Item:
    # Foreign keys and unique columns would ask the database.
    asking = {field.name for field in activity._meta.concrete_fields if field.is_relation or field.unique}
    try:
        activity.clean_fields(exclude=asking)
        activity.clean()
    except ValidationError as error:
        return Item(_("Fields"), Level.ERROR, " ".join(error.messages))
    return Item(_("Fields"), Level.OK, _("Every field is filled in and fits the others."))


# -- Window and validity -----------------------------------------------------------------------------------


def _window_over(activity: Activity, facts: Facts) -> list[Item]:
    if activity.ends_at is not None and facts.now >= activity.ends_at:
        return [Item(_("Window"), Level.ERROR, _("Its end has passed: move the end first."))]
    return []


def _window(activity: Activity, facts: Facts) -> list[Item]:
    if over := _window_over(activity, facts):
        return over
    found = []
    if facts.now >= activity.starts_at:
        text = _("Its start has passed: shoppers can seize from the instant at which it is published.")
        found.append(Item(_("Window"), Level.WARNING, text))
    left = activity.ends_at - max(activity.starts_at, facts.now)
    if left < SHORT_WINDOW:
        text = _("Shoppers have %(seconds)s seconds to seize: move the end if that is not meant.")
        found.append(Item(_("Window"), Level.WARNING, text % {"seconds": f"{left.total_seconds():.0f}"}))
    return found or [Item(_("Window"), Level.OK, _("It starts and ends in the future."))]


def _validity(activity: Activity) -> Item:
    if activity.valid_until is None:
        text = _("Each coupon is valid for %(days)s × 24 hours from seizing.") % {"days": activity.valid_days}
        return Item(_("Validity of coupons"), Level.OK, text)
    if activity.valid_until - activity.ends_at < SHORT_VALIDITY:
        text = _("A coupon seized at the end expires within an hour: move the end of validity if that is not meant.")
        return Item(_("Validity of coupons"), Level.WARNING, text)
    return Item(_("Validity of coupons"), Level.OK, _("Coupons outlast the end of the activity."))


# -- Stock and money ---------------------------------------------------------------------------------------


def _stock(activity: Activity) -> Item:
    numbers = {"stock": f"{activity.stock_total:,}", "limit": activity.per_user_limit}
    if activity.per_user_limit >= activity.stock_total > 1:
        text = _("One shopper may take all %(stock)s coupons: lower the limit, or add stock.")
        return Item(_("Stock"), Level.WARNING, text % numbers)
    return Item(_("Stock"), Level.OK, _("%(stock)s coupons, at most %(limit)s a shopper.") % numbers)


def _risk(activity: Activity) -> Item:
    most = activity.amount_off if activity.kind == Activity.Kind.FIXED else activity.max_off
    if most is None:
        text = _("What it may cost has no limit: give “at most off” to cap what one coupon takes off.")
        return Item(_("Sum at risk"), Level.WARNING, text)
    text = _("If every coupon is used it costs at most %(sum)s yuan: %(stock)s × %(most)s.")
    numbers = {
        "sum": f"{most * activity.stock_total:,.2f}",
        "stock": f"{activity.stock_total:,}",
        "most": f"{most:.2f}",
    }
    return Item(_("Sum at risk"), Level.OK, text % numbers)


def _discount(activity: Activity) -> list[Item]:
    """A worked example; whether an order can become free, and whether the smallest one gets anything."""
    smallest = discount_quote(terms=activity, amount=max(activity.min_spend, CENT))
    # What is left to pay never falls as an order grows: when the smallest is not free, none is.
    if not smallest.payable:
        free = max(smallest.amount, activity.amount_off or CENT)
        text = _("An order of %(amount)s becomes free: give a minimum payable, or a higher minimum spend.")
        return [Item(_("Discount"), Level.WARNING, text % {"amount": f"{free:.2f}"})]
    if activity.min_spend and not smallest.discount:
        text = _("An order of %(amount)s gets nothing off, though the offer begins there: lower the minimum payable.")
        return [Item(_("Discount"), Level.WARNING, text % {"amount": f"{smallest.amount:.2f}"})]
    example = _example(activity)
    numbers = {"amount": example.amount, "discount": example.discount, "payable": example.payable}
    text = _("Of an order of %(amount)s it takes off %(discount)s; %(payable)s stay to be paid.") % numbers
    return [Item(_("Discount"), Level.OK, text)]


def _example(activity: Activity) -> Quote:
    amount = activity.min_spend or max(EXAMPLE, (activity.amount_off or CENT) + activity.min_payable)
    return discount_quote(terms=activity, amount=amount.quantize(CENT))


# -- Around it ---------------------------------------------------------------------------------------------


def _overlaps(facts: Facts) -> Item:
    if not facts.overlaps:
        return Item(_("Other activities"), Level.OK, _("No other activity is approved or on offer at the same time."))
    text = _("On offer at the same time, and shoppers may seize from each: look whether that is meant.")
    return Item(_("Other activities"), Level.WARNING, text, tuple(facts.overlaps))


def _redis(state: Redis) -> Item:
    match state:
        case Redis.READY:
            return Item(_("Redis"), Level.OK, _("Redis is ready to sell."))
        case Redis.LOADING:
            text = _("Redis is being loaded: what is published now can be seized within seconds.")
        case Redis.AWAY:
            text = _("Redis cannot be asked: nothing can be seized until it is back. Ask those who run it.")
    return Item(_("Redis"), Level.WARNING, text)
