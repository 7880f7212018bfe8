"""The public list and detail of activities, read from Redis alone: an unknown id costs MySQL nothing."""

import time
from dataclasses import dataclass
from typing import Any

import orjson

from activities.statuses import EffectiveStatus, activity_status
from seize import desk, store
from seize.responses import rfc3339

_NEVER_MS = 2**62
TABS = {"ongoing": EffectiveStatus.ONGOING, "upcoming": EffectiveStatus.UPCOMING}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The list as it is in one moment by Redis' clock (Unix ms): what a shopper sees of each activity, by id.

    ``read_s`` is that moment by this process' monotonic clock. Running ones come first, then by start. At
    ``changes_ms`` the next one starts or ends, and a status is another.
    """

    now_ms: int
    read_s: float
    changes_ms: int
    activities: dict[str, dict[str, Any]]


def snapshot_read() -> Snapshot:
    """Read the list and the stock of everything in it: two round trips, however many activities.

    :raises seize.store.StoreUnavailable: Redis, or the list in it, is not there.
    """
    text, now_ms = desk.list_read()
    read_s = time.monotonic()
    if text is None:
        raise store.StoreUnavailable("the activity list is not in Redis yet")
    elements: list[dict[str, Any]] = orjson.loads(text)
    for element in elements:
        element["effective"] = activity_status(
            status=element["status"], starts_at=element["starts_ms"], ends_at=element["ends_ms"], now=now_ms
        )
    elements.sort(key=lambda element: (element["effective"] is not EffectiveStatus.ONGOING, element["starts_ms"]))
    left = desk.stock_left([int(element["id"]) for element in elements])
    moments = (moment for element in elements for moment in (element["starts_ms"], element["ends_ms"]))
    changes_ms = min((moment for moment in moments if moment > now_ms), default=_NEVER_MS)
    return Snapshot(
        now_ms,
        read_s,
        changes_ms,
        {element["id"]: _shown(element, left.get(int(element["id"]))) for element in elements},
    )


def activities_list(snapshot: Snapshot, *, tab: str | None) -> list[dict[str, Any]]:
    """What the list shows of each activity.

    :param tab: 'ongoing', 'upcoming', or None for all.
    """
    return [
        {name: value for name, value in shown.items() if name not in _DETAILS}
        for shown in snapshot.activities.values()
        if tab is None or shown["status"] == TABS[tab].value
    ]


_DETAILS = ("rules_text", "valid_days", "valid_until")


def _shown(element: dict[str, Any], left: int | None) -> dict[str, Any]:
    """:param left: coupons left; None when Redis does not know, which is not the same as none."""
    valid_until_ms = element["valid_until_ms"]
    return {
        "id": element["id"],
        "name": element["name"],
        "kind": element["kind"],
        "min_spend": element["min_spend"],
        "amount_off": element["amount_off"],
        "pay_percent": element["pay_percent"],
        "max_off": element["max_off"],
        "min_payable": element.get("min_payable", "0.00"),  # a list written before there was one
        "status": element["effective"].value,
        "starts_at": rfc3339(element["starts_ms"]),
        "ends_at": rfc3339(element["ends_ms"]),
        "stock_total": element["stock_total"],
        "stock_left": None if left is None else max(left, 0),
        "per_user_limit": element["per_user_limit"],
        "rules_text": element["rules_text"],
        "valid_days": element["valid_days"],
        "valid_until": None if valid_until_ms is None else rfc3339(valid_until_ms),
    }
