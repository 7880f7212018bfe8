"""Slots of time, by each database in its own words."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from services import PATIENCE_S

from activities.models import Coupon
from sync.slots import Slot
from tests.factories import issued, offer

ROOT = Path(__file__).resolve().parents[2]
MOMENT = datetime(2027, 3, 2, 12, 0, 7, 999_000, tzinfo=UTC)
SECOND = 1_803_988_807

ON_SQLITE = """
from datetime import UTC, date, datetime
from sync.days import days_read
from sync.report import facts_of
from tests.factories import DraftFactory, issued
activity = DraftFactory(status="ACTIVE", valid_days=900)
moment = datetime(2027, 3, 2, 12, 0, 7, 999_000, tzinfo=UTC)
for user in (1, 2, 3):
    issued(activity, user_id=user, seized_at=moment)
facts = facts_of(activity=activity)
day = days_read(today=date(2027, 3, 2), days=1)[0]
print(facts.peak, int(facts.peak_at.timestamp()), facts.wins, facts.given, day.won)
"""


@pytest.mark.django_db
@pytest.mark.parametrize("width_s", [1, 10, 900])
def test_slot_is_the_moments_second_by_its_width(width_s):
    activity = offer()
    issued(activity, user_id=1, seized_at=MOMENT)
    issued(activity, user_id=2, seized_at=MOMENT + timedelta(hours=1))
    rows = Coupon.objects.order_by("pk").annotate(slot=Slot("seized_at", width_s=width_s))
    assert int(MOMENT.timestamp()) == SECOND
    assert list(rows.values_list("slot", flat=True)) == [SECOND // width_s, (SECOND + 3600) // width_s]


def test_sqlite_says_the_same(tmp_path):
    servers = ("REDIS_URL", "CELERY_BROKER_URL", "CACHE_URL")
    env = {name: value for name, value in os.environ.items() if name not in servers}
    env |= {"DATABASE_URL": f"sqlite:///{tmp_path}/ledger.sqlite3", "ENV_FILE": os.devnull, "PYTHONPATH": "script/lib"}
    said = ""
    for arguments in (("migrate", "-v", "0"), ("shell", "-v", "0", "-c", ON_SQLITE)):
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        said = done.stdout.strip()
    assert said == f"3 {SECOND} [({SECOND}, 3)] 60.00 3"
