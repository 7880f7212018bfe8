"""A shopper's coupons: those in the ledger, and those won that are still on their way."""

import re
from datetime import datetime

from activities.admission import terms_body, unix_ms
from activities.coupons import coupon_of
from activities.models import Activity, Coupon
from activities.statuses import CouponStatus
from seize import queue
from seize.claims import Claim, claims_lookup
from seize.keys import SHARDS
from seize.responses import rfc3339

PAGE_SIZE = 20
STATUSES = tuple(status.lower() for status in CouponStatus.values)


class CursorInvalid(Exception):
    """The cursor is not one that this server gave out; start again without one."""


def wallet_page(*, user_id: int, status: str | None = None, cursor: str | None, now: datetime) -> dict[str, object]:
    """One page of a shopper's coupons: pending claims first, then rows, newest first.

    The queue is read before the rows, and the page last: a claim that is drained at any moment in
    between is then seen twice and dropped once, while any other order can miss it.

    :param status: of ``STATUSES``: only coupons whose effective status at ``now`` is this; None for all.
    :param cursor: the last page's ``next_cursor``, None for the first page.
    :raises CursorInvalid: not a cursor of ours.
    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    before = _cursor_parse(cursor)
    pending = pending_claims(user_id=user_id) if before is None else []
    rows = Coupon.objects.filter(user_id=user_id).select_related("activity").order_by("-id")
    if status is not None:
        rows = rows.effective(status.upper(), now=now)
    waiting = _without_rows(pending, user_id=user_id)
    page = list((rows if before is None else rows.filter(id__lt=before))[: PAGE_SIZE + 1])
    more = len(page) > PAGE_SIZE
    page = page[:PAGE_SIZE]
    arrived = {(coupon.activity_id, coupon.seq) for coupon in page}
    waiting = [pair for pair in waiting if (pair[0].activity_id, pair[0].seq) not in arrived]
    results = [coupon_body(coupon_of(claim, activity), now=now) for claim, activity in waiting]
    results = [body for body in results if status in (None, body["status"])]
    results += [coupon_body(coupon, now=now) for coupon in page]
    return {
        "server_time": rfc3339(unix_ms(now)),
        "results": results,
        "next_cursor": f"c{page[-1].pk}" if more else None,
    }


def _cursor_parse(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not re.fullmatch(r"c[1-9][0-9]{0,17}", cursor):
        raise CursorInvalid("'cursor' must be the next_cursor of the page before.")
    return int(cursor[1:])


def pending_claims(*, user_id: int) -> list[tuple[Claim, Activity]]:
    """The shopper's claims that wait in a queue, newest first, each with its activity."""
    lengths = queue.queue_lengths(range(SHARDS))
    busy = [shard for shard, waiting in enumerate(lengths) if waiting]
    if not busy:  # most of the time, and then nothing else is asked
        return []
    activities = {activity.pk: activity for activity in Activity.objects.watched().in_shards(busy)}
    wanted = [
        (activity.pk, user_id, seq) for activity in activities.values() for seq in range(1, activity.per_user_limit + 1)
    ]
    claims = [claim for claim in claims_lookup(wanted) if claim.uid == activities[claim.activity_id].uid]
    claims.sort(key=lambda claim: (-claim.seized_ms, -claim.activity_id, -claim.seq))
    return [(claim, activities[claim.activity_id]) for claim in claims]


def _without_rows(pending: list[tuple[Claim, Activity]], *, user_id: int) -> list[tuple[Claim, Activity]]:
    """Drop claims that became rows since the queue was read."""
    if not pending:
        return []
    of_pending = Coupon.objects.filter(user_id=user_id, activity__in=[activity for _claim, activity in pending])
    rows = set(of_pending.values_list("activity_id", "seq"))
    return [(claim, activity) for claim, activity in pending if (claim.activity_id, claim.seq) not in rows]


def coupon_detail(*, user_id: int, coupon_id: int, now: datetime) -> dict[str, object] | None:
    """One coupon of the shopper with its activity's rules; None when there is none, or it is another's."""
    coupon = Coupon.objects.select_related("activity").filter(pk=coupon_id, user_id=user_id).first()
    if coupon is None:
        return None
    return {
        "server_time": rfc3339(unix_ms(now)),
        **coupon_body(coupon, now=now),
        "rules_text": coupon.activity.rules_text,
    }


def coupon_body(coupon: Coupon, *, now: datetime) -> dict[str, object]:
    """A coupon as a shopper and a service see it; without a row it is pending and has no id yet."""
    return {
        "id": None if coupon.pk is None else str(coupon.pk),
        "activity_id": str(coupon.activity.pk),
        "activity_name": coupon.activity.name,
        "seq": coupon.seq,
        "state": "pending" if coupon.pk is None else "issued",
        "status": coupon.effective_status(now=now).value.lower(),
        **terms_body(coupon),
        "seized_at": rfc3339(unix_ms(coupon.seized_at)),
        "expires_at": rfc3339(unix_ms(coupon.expires_at)),
        "redeemed_at": None if coupon.redeemed_at is None else rfc3339(unix_ms(coupon.redeemed_at)),
    }
