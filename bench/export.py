"""Section ``export``: the winners and the redemptions of one activity as CSV, from the view to the last byte.

``.venv/bin/python -m bench.export [--quick] [--rounds N] [--only NAME]``. Each list is taken by a process of its own,
so that its peak of memory is that of one export beside Django itself, which is given as ``before_mb``.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from bench import stage
from bench.options import Options, Progress

ROWS, ROWS_QUICK = 1_000_000, 100_000
LISTS = ("winners", "redemptions")


def measure(options: Options, progress: Progress) -> dict[str, Any]:
    """Medians over the rounds: rows a second, s in all, MB of the file and of the process at its peak."""
    names = [name for name in LISTS if options.wants(name)]
    rows = ROWS_QUICK if options.quick else ROWS
    progress.expect(1 + len(names) * options.rounds)
    with stage.servers():
        progress.step(f"laying out {rows:,} coupons and as many redemptions")
        activity_id = _fill(rows)
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for number in range(options.rounds):
            for name in names:
                progress.step(f"{name}, round {number + 1}")
                taken[name].append(_taken(name, activity_id, rows=rows))
    return {name: _medians(runs) for name, runs in taken.items()}


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {column: round(statistics.median(run[column] for run in runs), 1) for column in runs[0]}


def _taken(name: str, activity_id: int, *, rows: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.export", "--take", name, str(activity_id)]
    done = subprocess.run(command, cwd=stage.ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("rows") == rows, f"{name}: not {rows} rows"
    return found


def _take(name: str, activity_id: int) -> dict[str, float]:
    """In the process of one export: log in, ask as a browser does, and read to the end."""
    import django

    django.setup()
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.test import Client

    settings.ALLOWED_HOSTS = ["testserver"]
    user, _made = get_user_model().objects.get_or_create(username="boss", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(user)
    client.get("/admin/")  # everything that a process loads once
    before_mb = _peak_mb()
    began = time.perf_counter()
    lines = size = 0
    for piece in client.get(f"/admin/activities/activity/{activity_id}/{name}/").streaming_content:
        lines += piece.count(b"\r\n")
        size += len(piece)
    took = time.perf_counter() - began
    return {
        "rows": lines - 1,
        "rows_per_s": (lines - 1) / took,
        "took_s": took,
        "file_mb": size / 1_000_000,
        "before_mb": before_mb,
        "peak_mb": _peak_mb(),
    }


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1_000_000 if sys.platform == "darwin" else peak / 1_000  # bytes there, KiB elsewhere


def _fill(rows: int) -> int:
    """One activity, so many coupons of as many shoppers in no order, each redeemed; the activity's id."""
    from django.db import connection

    from activities.models import Activity

    now = datetime.now(UTC)
    activity = Activity.objects.create(
        name="双十一", starts_at=now - timedelta(hours=1), ends_at=now + timedelta(hours=1), stock_total=rows,
        issued=rows, amount_off=20, valid_days=7, status="ACTIVE",
    )  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION unique_checks = 0, foreign_key_checks = 0")
        cursor.execute(
            _COUPONS, {"activity": activity.pk, "rows": rows, "expires": now + timedelta(days=7), "now": now}
        )
        cursor.execute(_REDEMPTIONS)
        cursor.execute("SET SESSION unique_checks = 1, foreign_key_checks = 1")
        cursor.execute("ANALYZE TABLE activities_coupon, activities_redemption")
        cursor.fetchall()
    return activity.pk


_COUPONS = """
INSERT INTO activities_coupon (kind, min_spend, amount_off, min_payable, user_id, seq, status, seized_at, expires_at,
                               activity_id, order_id, redeemed_at, uses)
SELECT 'FIXED', 0, 20, 0, seq * 2654435761 %% POW(2, 40) + 1, 1, 'REDEEMED', %(now)s, %(expires)s, %(activity)s,
       CONCAT('A-', seq), %(now)s, 1
FROM seq_1_to_10000000 LIMIT %(rows)s
"""
_REDEMPTIONS = """
INSERT INTO activities_redemption (coupon_id, activity_id, user_id, entry, turn, order_id, order_amount, discount,
                                   payable, restored_to, reason, made_by, created_at)
SELECT id, activity_id, user_id, 'REDEEM', 1, order_id, 199, 20, 179, '', '', 'Api-Key checkout', seized_at
FROM activities_coupon ORDER BY id
"""


if __name__ == "__main__":
    if sys.argv[1:2] == ["--take"]:
        print(json.dumps(_take(sys.argv[2], int(sys.argv[3]))))
    else:
        from bench.sync import Lines, options_read

        print(json.dumps(measure(options_read(), Lines()), indent=2))
