"""The public list and detail of activities, read from Redis alone: an unknown id costs MySQL nothing."""

from typing import Any

import orjson

from activities.statuses import EffectiveStatus, activity_status
from seize import desk, store
from seize.responses import rfc3339

TABS = {"ongoing": EffectiveStatus.ONGOING, "upcoming": EffectiveStatus.UPCOMING}


def activities_list(*, tab: str | None) -> dict[str, object]:
    """The list's answer: status by Redis' clock, live stock, running ones first, then by start.

    :param tab: 'ongoing', 'upcoming', or None for all.
    :raises seize.store.StoreUnavailable: Redis, or the list in it, is not there.
    """
    elements, now_ms = _elements_read()
    wanted = [element for element in elements if tab is None or element["effective"] is TABS[tab]]
    wanted.sort(key=lambda element: (element["effective"] is not EffectiveStatus.ONGOING, element["starts_ms"]))
    left = desk.stock_left([int(element["id"]) for element in wanted])
    results = [_summary(element, left.get(int(element["id"]))) for element in wanted]
    return {"server_time": rfc3339(now_ms), "results": results}


def activity_detail(*, activity_id: int) -> dict[str, object] | None:
    """One activity with its rules, or None when it is not in the list.

    :raises seize.store.StoreUnavailable: Redis, or the list in it, is not there.
    """
    elements, now_ms = _elements_read()
    for element in elements:
        if element["id"] == str(activity_id):
            valid_until_ms = element["valid_until_ms"]
            return {
                "server_time": rfc3339(now_ms),
                **_summary(element, desk.stock_left([activity_id]).get(activity_id)),
                "rules_text": element["rules_text"],
                "valid_days": element["valid_days"],
                "valid_until": None if valid_until_ms is None else rfc3339(valid_until_ms),
            }
    return None


def _elements_read() -> tuple[list[dict[str, Any]], int]:
    text, now_ms = desk.list_read()
    if text is None:
        raise store.StoreUnavailable("the activity list is not in Redis yet")
    elements: list[dict[str, Any]] = orjson.loads(text)
    for element in elements:
        element["effective"] = activity_status(
            status=element["status"], starts_at=element["starts_ms"], ends_at=element["ends_ms"], now=now_ms
        )
    return elements, now_ms


def _summary(element: dict[str, Any], left: int | None) -> dict[str, object]:
    """:param left: coupons left; None when Redis does not know, which is not the same as none."""
    return {
        "id": element["id"],
        "name": element["name"],
        "kind": element["kind"],
        "min_spend": element["min_spend"],
        "amount_off": element["amount_off"],
        "pay_percent": element["pay_percent"],
        "max_off": element["max_off"],
        "status": element["effective"].value,
        "starts_at": rfc3339(element["starts_ms"]),
        "ends_at": rfc3339(element["ends_ms"]),
        "stock_total": element["stock_total"],
        "stock_left": None if left is None else max(left, 0),
        "per_user_limit": element["per_user_limit"],
    }
