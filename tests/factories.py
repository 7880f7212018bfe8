"""Activities as tests need them: saved drafts, or on offer in the ledger and in Redis."""

from datetime import datetime, timedelta
from decimal import Decimal

import factory
from django.utils import timezone
from services import PATIENCE_S

from activities import services
from activities.admission import unix_ms
from activities.coupons import coupon_of
from activities.models import Activity, Coupon
from seize.claims import Claim
from seize.keys import shard_of
from sync.comparison import ledger_compare
from sync.drain import DrainResult, queue_drain
from sync.rebuild import activity_rebuild


class DraftFactory(factory.django.DjangoModelFactory):
    """A valid draft that runs from a minute ago for an hour."""

    class Meta:
        model = Activity

    name = factory.Sequence(lambda n: f"Sale {n}")
    kind = "FIXED"
    min_spend = Decimal("100.00")
    amount_off = Decimal("20.00")
    valid_days = 7
    starts_at = factory.LazyFunction(lambda: timezone.now() - timedelta(minutes=1))
    ends_at = factory.LazyFunction(lambda: timezone.now() + timedelta(hours=1))
    stock_total = 10
    per_user_limit = 1


def percent_terms() -> dict[str, object]:
    """Fields that make a draft a percentage."""
    return {"kind": "PERCENT", "amount_off": None, "pay_percent": 80, "max_off": Decimal("50.00")}


def moments_from(now: datetime, fields: dict[str, object]) -> dict[str, object]:
    """The same fields, where each that is so long from now is the moment."""
    return {name: now + value if isinstance(value, timedelta) else value for name, value in fields.items()}


def approved(**fields: object) -> Activity:
    """An activity that may be published."""
    return DraftFactory(status="APPROVED", **fields)


def offer(**fields: object) -> Activity:
    """A published activity that is loaded in Redis and listed; a fixed ``id`` puts it in a chosen shard."""
    activity = approved(**fields)
    services.activity_publish(activity_id=activity.pk, now=min(timezone.now(), activity.ends_at - timedelta(seconds=1)))
    activity_rebuild(activity_id=activity.pk)
    activity.refresh_from_db()
    return activity


def shards_declare_loaded() -> None:
    """Compare until every shard is declared loaded, as the dispatcher does each second."""
    for _round in range(3):
        ledger_compare(rebuild=lambda activity_id: activity_rebuild(activity_id=activity_id))


def issued(
    activity: Activity, *, user_id: int = 7, seq: int = 1, seized_at: datetime | None = None, **fields: object
) -> Coupon:
    """A coupon's row as the drain would have written it, with ``fields`` set otherwise."""
    claim = Claim(activity.pk, user_id, seq, unix_ms(seized_at or timezone.now()), activity.uid)
    coupon = coupon_of(claim, activity)
    for name, value in fields.items():
        setattr(coupon, name, value)
    coupon.save()
    return coupon


def drain(activity: Activity, *, batch_size: int = 500) -> DrainResult:
    """Drain the queue that the activity's claims lie in."""
    return queue_drain(shard=shard_of(activity.pk), batch_size=batch_size, lease_ms=5000, budget_s=PATIENCE_S)
