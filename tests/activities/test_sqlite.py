"""The embedded database: what the suite tries on MariaDB holds for the ledger on SQLite, too."""

import os
import subprocess
import sys
from pathlib import Path

from services import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

SWEEP = """
import random
from decimal import Decimal

from django.utils import timezone

from activities.audit import Actor
from activities.checkout import Entered, coupon_redeem, coupon_roll_back
from activities.models import Coupon, Redemption
from tests.factories import DraftFactory, issued, percent_terms

random.seed(7)
activity = DraftFactory(status="ACTIVE", min_spend=0, **{**percent_terms(), "max_off": None})
coupon = issued(activity)
for number in range(300):
    amount = Decimal(random.randint(100, 10_000_000)) / 100
    named = {"coupon_id": coupon.pk, "order_id": f"order-{number}", "by": Actor("x"), "now": timezone.now()}
    redeemed = coupon_redeem(user_id=7, order_amount=amount, **named)
    assert isinstance(redeemed, Entered), (amount, redeemed)
    assert redeemed.entry.discount + redeemed.entry.payable == amount
    assert isinstance(coupon_roll_back(reason="x", **named), Entered)
for entry in Redemption.objects.all():
    assert entry.discount + entry.payable == entry.order_amount
print(Redemption.objects.count(), Coupon.objects.get().status)
"""


def test_any_amount_can_be_redeemed_and_given_back_where_decimals_are_binary_fractions(tmp_path):
    """SQLite adds decimals as floats: a constraint on their sum refused every fourth order."""
    servers = ("REDIS_URL", "CELERY_BROKER_URL", "CACHE_URL")
    env = {name: value for name, value in os.environ.items() if name not in servers}
    env |= {"DATABASE_URL": f"sqlite:///{tmp_path}/ledger.sqlite3", "ENV_FILE": os.devnull, "PYTHONPATH": "script/lib"}

    def manage(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    manage("migrate", "-v", "0")
    assert manage("shell", "-v", "0", "-c", SWEEP) == "600 UNUSED"
