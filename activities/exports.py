"""Winners, redemptions and lists of shoppers of one activity as CSV: a stream, however long the list is.

Rows are read in chunks, each by its own statement that goes on behind the last row of the chunk before, along an index.
Nothing is held between two chunks: no cursor, no transaction, and no more rows than one chunk.
"""

import csv
import heapq
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import chain
from operator import itemgetter
from typing import Any

from django.db import close_old_connections, connection
from django.db.models import Q, QuerySet
from django.http import StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from activities.models import Activity, Coupon, Listed, Redemption
from activities.statuses import CouponStatus, coupon_status
from activities.text import shopper_masked, spreadsheet_safe

CHUNK = 2_000  # rows a statement
PIECE = 64 * 1024  # characters that are sent at once, about
BOM = "\ufeff"  # by which spreadsheets know UTF-8

LISTED_NAMES = {Listed.Verdict.ALLOW: "let-in", Listed.Verdict.DENY: "kept-out"}

Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Export:
    """A list to be sent. ``rows`` are read as they are asked for; ``expected`` is how many there are now."""

    what: str
    header: list[str]
    rows: Iterator[Row]
    expected: int

    def file_name(self, *, activity_id: int, now: datetime) -> str:
        """``winners-12-2026-11-11.csv``, with the date in the site's zone."""
        return f"{self.what}-{activity_id}-{timezone.localtime(now):%Y-%m-%d}.csv"


def winners_export(*, activity: Activity, in_full: bool, now: datetime) -> Export:
    """Everybody who has a coupon of the activity, by shopper and seq, which never change: each coupon comes once.

    :param in_full: shoppers' ids as they are; else masked.
    """
    header = [_("Coupon"), _("Activity"), _("Name"), _("Shopper"), _("Seq"), _("Status"), _("Seized at"),
              _("Expires at"), _("Order"), _("Redeemed at"), _("Uses")]  # fmt: skip
    rows = _winner_rows(activity, in_full=in_full, now=now, labels=_labels(CouponStatus))
    return Export("winners", header, rows, activity.issued)


def _winner_rows(activity: Activity, *, in_full: bool, now: datetime, labels: dict[str, str]) -> Iterator[Row]:
    zone, shown = timezone.get_default_timezone(), str if in_full else shopper_masked
    for pk, user_id, seq, status, seized_at, expires_at, order_id, redeemed_at, uses in _coupons(activity.pk):
        effective = coupon_status(status=status, activity_stored=activity.status, expires_at=expires_at, now=now)
        yield (pk, activity.pk, activity.name, shown(user_id), seq, labels[effective], _moment(seized_at, zone),
               _moment(expires_at, zone), order_id, _moment(redeemed_at, zone), uses)  # fmt: skip


def _coupons(activity_id: int) -> Iterator[Row]:
    """Along ``coupon_once``: no index has an activity's coupons in the order of their ids, nor may there be one."""
    rows = Coupon.objects.filter(activity_id=activity_id).order_by("user_id", "seq")
    fields = ("id", "user_id", "seq", "status", "seized_at", "expires_at", "order_id", "redeemed_at", "uses")
    behind = Q()
    while chunk := _chunk(rows.filter(behind).values_list(*fields)[:CHUNK]):
        yield from chunk
        _pk, user_id, seq, *_rest = chunk[-1]
        behind = Q(user_id=user_id, seq__gt=seq) | Q(user_id__gt=user_id)


def redemptions_export(*, activity: Activity, in_full: bool, now: datetime) -> Export:
    """Every entry of the ledger of uses that the activity has now, in the order in which they were made.

    :param in_full: shoppers' ids as they are; else masked.
    """
    header = [_("Ledger entry"), _("Activity"), _("Name"), _("Coupon"), _("Shopper"), _("Kind"), _("Turn"), _("Order"),
              _("Order amount"), _("Discount"), _("Payable"), _("Restored to"), _("Reason"), _("Made by"),
              _("At")]  # fmt: skip
    labels = {"": "", **_labels(CouponStatus)}
    rows = _redemption_rows(activity, in_full=in_full, kinds=_labels(Redemption.Entry), labels=labels)
    return Export("redemptions", header, rows, Redemption.objects.filter(activity=activity).count())


def _redemption_rows(
    activity: Activity, *, in_full: bool, kinds: dict[str, str], labels: dict[str, str]
) -> Iterator[Row]:
    zone, shown = timezone.get_default_timezone(), str if in_full else shopper_masked
    last = Redemption.objects.order_by("-id").values_list("id", flat=True).first() or 0
    walks = [_entries(activity.pk, entry=kind, until=last) for kind in kinds]
    for pk, kind, coupon_id, user_id, turn, *order, restored_to, reason, made_by, created_at in heapq.merge(
        *walks, key=itemgetter(0)
    ):
        yield (pk, activity.pk, activity.name, coupon_id, shown(user_id), kinds[kind], turn, *order,
               labels[restored_to], reason, made_by, _moment(created_at, zone))  # fmt: skip


def _entries(activity_id: int, *, entry: str, until: int) -> Iterator[Row]:
    """Along ``redemption_activity``, which has the entries of one kind in the order of their ids."""
    rows = Redemption.objects.filter(activity_id=activity_id, entry=entry, id__lte=until).order_by("id")
    fields = ("id", "entry", "coupon_id", "user_id", "turn", "order_id", "order_amount", "discount", "payable",
              "restored_to", "reason", "made_by", "created_at")  # fmt: skip
    last = 0
    while chunk := _chunk(rows.filter(id__gt=last).values_list(*fields)[:CHUNK]):
        yield from chunk
        last = chunk[-1][0]


def listed_export(*, verdict: Listed.Verdict, activity: Activity, in_full: bool, now: datetime) -> Export:
    """Who is let in to an activity, or kept out of it, by name; as a file that an upload takes, when ids are in full.

    :param in_full: shoppers' ids as they are; else masked.
    """
    there = Listed.objects.filter(activity=activity, verdict=verdict)
    shown = int if in_full else shopper_masked
    return Export(LISTED_NAMES[verdict], ["user_id"], ((shown(i),) for i in _listed(there)), there.count())


def _listed(there: QuerySet[Listed]) -> Iterator[int]:
    """Along ``listed_once``, which has an activity's shoppers in the order of their ids."""
    last = 0
    while chunk := _chunk(there.filter(user_id__gt=last).order_by("user_id").values_list("user_id")[:CHUNK]):
        yield from (user_id for (user_id,) in chunk)
        [last] = chunk[-1]


def _chunk(rows: Iterable[Row]) -> list[Row]:
    """So many rows, by a connection that is tried first: the client may have taken minutes for the chunk before."""
    if not connection.in_atomic_block:
        close_old_connections()
    return list(rows)


def _labels(choices: Any) -> dict[str, str]:
    """Labels in the language of whoever asks, while it is known: rows are read when the request is over."""
    return {value: str(label) for value, label in choices.choices}


def _moment(moment: datetime | None, zone: tzinfo) -> str:
    return "" if moment is None else moment.astimezone(zone).isoformat(sep=" ", timespec="milliseconds")


def csv_response(head: Iterable[Row], rows: Iterable[Row], *, file_name: str) -> StreamingHttpResponse:
    """A file to be saved, sent as its rows are read."""
    return StreamingHttpResponse(
        csv_stream(head, rows),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{file_name}"', "Cache-Control": "no-store"},
    )


def csv_stream(head: Iterable[Row], rows: Iterable[Row]) -> Iterator[bytes]:
    """RFC 4180 in UTF-8 with a byte order mark, in pieces; no cell begins as a formula does."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    buffer.write(BOM)
    for row in chain(head, rows):
        writer.writerow([spreadsheet_safe(value) if isinstance(value, str) else value for value in row])
        if buffer.tell() >= PIECE:
            yield buffer.getvalue().encode()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode()
