"""``manage.py seed_demo``: a superuser and a few activities to try (development only)."""

from copy import copy
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils import timezone

from activities import drafts, services
from activities.audit import COMMAND_LINE
from activities.contention import contention_retried
from activities.models import Activity
from seize.management.base import Command as BaseCommand
from seize.management.base import UsageError

DAY = timedelta(days=1)
SOON = timedelta(minutes=2)  # to see a countdown come to its end


def demo_activities(*, now: datetime) -> list[tuple[Activity, datetime]]:
    """Unsaved demo activities, each with the moment at which it is to be published."""

    def activity(name: str, starts_at: datetime, ends_at: datetime, **fields: Any) -> Activity:
        fixed = {"kind": "FIXED", "min_spend": Decimal(100), "amount_off": Decimal(20), "valid_days": 7}
        return Activity(name=name, starts_at=starts_at, ends_at=ends_at, **{**fixed, **fields})

    percent = {"kind": "PERCENT", "amount_off": None, "pay_percent": 80, "max_off": Decimal(50)}
    return [
        (activity("满100减20", now - 2 * DAY, now + 365 * DAY, stock_total=100, per_user_limit=1), now),
        (activity("全场8折", now - DAY, now + 365 * DAY, stock_total=1000, per_user_limit=3, **percent), now),
        (activity("明日开抢 满50减10", now + DAY, now + 30 * DAY, stock_total=500,
                  min_spend=Decimal(50), amount_off=Decimal(10)), now),
        (activity("已结束 满200减30", now - 3 * DAY, now - DAY, stock_total=50,
                  min_spend=Decimal(200), amount_off=Decimal(30)), now - 2 * DAY),
        (activity("暂停中 7折", now - DAY, now + 30 * DAY, stock_total=200, **{**percent, "pay_percent": 70}), now),
        (activity("马上开抢 满30减5", now + SOON, now + 30 * DAY, stock_total=20,
                  min_spend=Decimal(30), amount_off=Decimal(5)), now),
    ]  # fmt: skip


@contention_retried
@transaction.atomic
def _activity_make(demo: Activity, *, published_at: datetime, now: datetime) -> Activity:
    """Save and publish an activity, or neither: the next run takes one that exists for published."""
    activity = copy(demo)
    activity.status = Activity.Status.APPROVED
    drafts.activity_draft_save(activity=activity, now=now, by=COMMAND_LINE)
    services.activity_publish(activity_id=activity.pk, now=published_at, by=COMMAND_LINE)
    if activity.name.startswith("暂停中"):
        services.activity_pause(activity_id=activity.pk, now=now, by=COMMAND_LINE)
    return activity


class Command(BaseCommand):
    help = "Create the superuser admin/admin and six demo activities unless they are there (development only)."

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.DEVELOPMENT:
            raise UsageError("seed_demo works in development only.")
        users = get_user_model().objects
        if not users.filter(username="admin").exists():
            users.create_superuser("admin", email="", password="admin")  # noqa: S106 - development only
        now = timezone.now()
        for activity, published_at in demo_activities(now=now):
            if Activity.objects.filter(name=activity.name).exists():
                continue
            made = _activity_make(activity, published_at=published_at, now=now)
            self.stdout.write(f"created activity {made.pk}: {made.name}")
