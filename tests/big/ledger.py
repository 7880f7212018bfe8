"""A ledger of a million coupons, laid out by the database itself, and taken away again.

As in life ids follow time: activity after activity, the oldest first, so that old coupons are the expired ones. Of the
thousand activities the last 300 have coupons that are still valid, the last 20 are still selling, and every twentieth
is voided. A shopper has at most one coupon of an activity. Of a hundred coupons 30 are redeemed, three of them for the
second time, and five were given back.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from activities.models import Activity

ACTIVITIES, COUPONS = 1_000, 1_000_000
VALID, SELLING = 300, 20  # of the activities, the youngest
VOIDED_EVERY = 20
BIG_SHOPPER, BIG_COUPONS = 7, 600
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where things are. Activities are numbered 0 (the oldest) to 999; their ids begin at ``first``."""

    first: int
    now: datetime

    def activity_id(self, number: int) -> int:
        """The id of the activity with this number."""
        return self.first + number


def shopper(number: int) -> int:
    """User ids as they come in life, in no order; shopper ``number`` has ``number % 20 + 1`` coupons."""
    return number * 2_654_435_761 % 2**40 + 1


def fill(*, now: datetime, coupons: int = COUPONS) -> Ledger:
    """Lay everything out in empty tables; with fewer ``coupons`` of as many activities, for a comparison.

    By INSERT … SELECT with the session's checks off: MariaDB then builds the indexes by sorting, in a tenth of the time
    that row after row would take. CHECK constraints are held as ever.
    """
    first = 1 + (Activity.objects.order_by("-id").values_list("id", flat=True).first() or 0)
    Activity.objects.bulk_create(_activity(number, first=first, now=now) for number in range(ACTIVITIES))
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION unique_checks = 0, foreign_key_checks = 0")
        cursor.execute(_COUPONS.replace("SHOPPERS_COUPONS", str(coupons - BIG_COUPONS)), {"first": first})
        cursor.execute(_REDEMPTIONS, {"first": first})
        cursor.execute("SET SESSION unique_checks = 1, foreign_key_checks = 1")
        cursor.execute(_ISSUED)
        cursor.execute("ANALYZE TABLE activities_activity, activities_coupon, activities_redemption")
        cursor.fetchall()
    return Ledger(first=first, now=now)


def empty() -> None:
    """Take everything away: truncated, since deleting a million rows takes longer than making them."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION foreign_key_checks = 0")
        for table in ("activities_redemption", "activities_coupon", "activities_activity"):
            cursor.execute(f"TRUNCATE TABLE {table}")
        cursor.execute("SET SESSION foreign_key_checks = 1")


def _activity(number: int, *, first: int, now: datetime) -> Activity:
    starts_at = now - (ACTIVITIES - number) * HOUR
    percent = number % 4 == 3
    return Activity(
        id=first + number,
        name=f"Sale {number}",
        kind="PERCENT" if percent else "FIXED",
        amount_off=None if percent else 20,
        pay_percent=80 if percent else None,
        min_spend=100,
        starts_at=starts_at,
        ends_at=starts_at + SELLING * HOUR + HOUR / 2,
        valid_until=now + (number - (ACTIVITIES - VALID)) * HOUR + HOUR / 2,
        stock_total=2_000,
        status="VOIDED" if number % VOIDED_EVERY == VOIDED_EVERY - 1 else "ACTIVE",
        settled_at=now if number < ACTIVITIES - SELLING else None,
    )


# 20 shoppers have 210 coupons: 1, 2, … 20 of them. ``nth`` tells a shopper's coupons apart.
_COUPONS = f"""
INSERT INTO activities_coupon (kind, min_spend, amount_off, pay_percent, max_off, min_payable, user_id, seq, status,
                               seized_at, expires_at, activity_id, order_id, redeemed_at, uses)
SELECT a.kind, a.min_spend, a.amount_off, a.pay_percent, a.max_off, a.min_payable, c.user_id, 1,
       IF(c.chance < 30, 'REDEEMED', IF(a.status = 'VOIDED', 'VOIDED',
                                        IF(c.number < {ACTIVITIES - VALID}, 'EXPIRED', 'UNUSED'))),
       a.starts_at + INTERVAL c.chance SECOND, a.valid_until, a.id,
       IF(c.chance < 30, CONCAT(IF(c.chance < 3, 'B-', 'A-'), c.number, '-', c.user_id), ''),
       IF(c.chance < 30, a.starts_at + INTERVAL c.chance + 600 SECOND, NULL),
       IF(c.chance < 3, 2, IF(c.chance < 30 OR c.chance >= 95, 1, 0))
FROM (SELECT {BIG_SHOPPER} AS user_id, seq * 7 %% {ACTIVITIES} AS number, CRC32(seq) %% 100 AS chance
      FROM seq_1_to_{BIG_COUPONS}
      UNION ALL
      SELECT shopper * 2654435761 %% POW(2, 40) + 1, (shopper * 7919 + nth * 37) %% {ACTIVITIES}, CRC32(seq) %% 100
      FROM (SELECT seq, block * 20 + rung AS shopper, place - rung * (rung + 1) DIV 2 AS nth
            FROM (SELECT seq, block, place, FLOOR((SQRT(8 * place + 1) - 1) / 2) AS rung
                  FROM (SELECT seq, (seq - 1) DIV 210 AS block, (seq - 1) %% 210 AS place
                        FROM seq_1_to_SHOPPERS_COUPONS) AS counted) AS placed) AS owned) AS c
JOIN activities_activity AS a ON a.id = %(first)s + c.number
ORDER BY c.number, c.chance
"""
_REDEMPTIONS = """
INSERT INTO activities_redemption (coupon_id, activity_id, user_id, entry, turn, order_id, order_amount, discount,
                                   payable, restored_to, reason, made_by, created_at)
SELECT c.id, c.activity_id, c.user_id, e.entry, e.turn,
       CONCAT(e.letter, '-', c.activity_id - %(first)s, '-', c.user_id),
       199, IF(c.kind = 'FIXED', 20, 39.80), IF(c.kind = 'FIXED', 179, 159.20),
       IF(e.entry = 'ROLL_BACK', 'UNUSED', ''), IF(e.entry = 'ROLL_BACK', 'refund', ''), 'Api-Key checkout', c.seized_at
FROM activities_coupon AS c
JOIN (SELECT 1 AS turn, 'REDEEM' AS entry, 'A' AS letter
      UNION ALL SELECT 1, 'ROLL_BACK', 'A'
      UNION ALL SELECT 2, 'REDEEM', 'B') AS e
  ON c.uses >= e.turn AND (e.entry = 'REDEEM' OR c.uses = 2 OR c.status <> 'REDEEMED')
ORDER BY c.id, e.turn, e.entry
"""
_ISSUED = """
UPDATE activities_activity AS a
JOIN (SELECT activity_id, COUNT(*) AS coupons FROM activities_coupon GROUP BY activity_id) AS c ON c.activity_id = a.id
SET a.issued = c.coupons
"""
