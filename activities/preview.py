"""An activity as a shopper will see it, in both languages, beside the checklist with what it has to ask for."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.utils import translation
from django.utils.translation import gettext as _

from activities.admission import redis_state
from activities.checklist import Facts, Item, checklist_of
from activities.models import Activity
from activities.moments import moment_text, validity_text
from activities.offer_text import offer_text

OVERLAPS_MAX = 20


@dataclass(frozen=True, slots=True)
class Card:
    """What a shopper reads in ``language``; ``facts`` are labels and values."""

    language: str
    language_name: str
    name: str
    offer: str
    facts: tuple[tuple[str, str], ...]
    rules: str


def preview_cards(*, activity: Activity) -> list[Card]:
    """The activity in each language that shoppers have; times in the site's zone, named."""
    return [_card(activity, language) for language, _name in settings.LANGUAGES]


def _card(activity: Activity, language: str) -> Card:
    with translation.override(language):
        facts = (
            (_("Starts"), moment_text(activity.starts_at)),
            (_("Ends"), moment_text(activity.ends_at)),
            (_("Coupons"), f"{activity.stock_total:,}"),
            (_("For each shopper"), _("at most %(limit)s") % {"limit": activity.per_user_limit}),
            (_("Valid"), validity_text(valid_until=activity.valid_until, valid_days=activity.valid_days)),
        )
        return Card(
            language=language,
            language_name=str(translation.get_language_info(language)["name_local"]),
            name=activity.name,
            offer=offer_text(terms=activity, language=language),
            facts=facts,
            rules=activity.rules_text,
        )


def activity_checklist(*, activity: Activity, now: datetime) -> list[Item]:
    """The checklist with its facts: one query for what overlaps, one call of Redis."""
    others = Activity.objects.overlapping(activity, now=now).order_by("starts_at", "id")
    overlaps = list(others.values_list("id", "name")[:OVERLAPS_MAX])
    return checklist_of(activity=activity, facts=Facts(now=now, overlaps=overlaps, redis=redis_state(activity)))
