"""What the read mixes read: 20 activities on offer, shoppers with coupons in the ledger and one on its way.

``python -m bench.reading SHOPPERS`` fills the servers that DATABASE_URL and REDIS_URL name; a process of its own,
so that no Django lives in the one that measures.
"""

import os
import sys
from datetime import timedelta

from bench.sale import FIRST_USER

ACTIVITIES = 20
CLAIM_ID = 22  # on offer, won by every shopper, not yet a row
# The shard of the sale that is emptied before each run (ids that end in 1) is left alone.
ACTIVITY_IDS = [number for number in range(2, 40) if number % 10 != 1][:ACTIVITIES]


def fill(shoppers: int) -> None:
    """Create, publish and load everything."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")
    django.setup()
    from django.core.management import call_command
    from django.utils import timezone

    from activities import services
    from activities.models import Activity, Coupon
    from seize.services import coupons_seize
    from sync.comparison import ledger_compare
    from sync.rebuild import activity_rebuild

    call_command("migrate", verbosity=0, interactive=False)
    now = timezone.now()
    users = range(FIRST_USER, FIRST_USER + shoppers)
    for activity_id in ACTIVITY_IDS:
        with_rows = activity_id in ACTIVITY_IDS[:3]
        activity = Activity.objects.create(
            id=activity_id, name=f"Sale {activity_id}", starts_at=now - timedelta(minutes=1),
            ends_at=now + timedelta(hours=2), stock_total=1_000_000, min_spend=100, amount_off=20, valid_days=7,
            status="APPROVED",
        )  # fmt: skip
        services.activity_publish(activity_id=activity.pk, now=now)
        if with_rows:
            rows = (
                Coupon(activity=activity, user_id=user, seq=1, seized_at=now, expires_at=now + timedelta(days=7),
                       min_spend=100, amount_off=20)
                for user in users
            )  # fmt: skip
            Coupon.objects.bulk_create(rows, batch_size=1000)
            Activity.objects.filter(pk=activity_id).update(issued=shoppers)
        activity_rebuild(activity_id=activity_id)
    for first in range(0, shoppers, 250):
        coupons_seize(activity_id=CLAIM_ID, shoppers=[(user, 1) for user in users[first : first + 250]])
    for _round in range(3):
        ledger_compare(rebuild=lambda activity_id: activity_rebuild(activity_id=activity_id))


if __name__ == "__main__":
    fill(int(sys.argv[1]))
