"""How long a rebuild takes: ``.venv/bin/python -m bench.rebuild [HOLDERS ...]`` (default 100000 1000000)."""

import sys
import time
from datetime import timedelta

from bench import stage


def main(sizes: list[int]) -> None:
    """Measure and print."""
    with stage.servers():
        from django.utils import timezone

        from activities.models import Activity, Coupon
        from sync.rebuild import activity_rebuild

        now = timezone.now()
        for size in sizes:
            activity = Activity.objects.create(
                name=f"{size} holders", starts_at=now - timedelta(hours=1), ends_at=now + timedelta(hours=1),
                stock_total=size, issued=size, amount_off=20, valid_days=7, status="ACTIVE",
            )  # fmt: skip
            for first in range(1, size + 1, 10_000):
                users = range(first, min(first + 10_000, size + 1))
                Coupon.objects.bulk_create(
                    Coupon(activity=activity, user_id=user, seq=1, seized_at=now, expires_at=now, amount_off=20)
                    for user in users
                )
            began = time.monotonic()
            result = activity_rebuild(activity_id=activity.pk)
            print(f"{size:>9} holders: {time.monotonic() - began:6.2f} s  {result}")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [100_000, 1_000_000])
