"""The public list and detail of activities, read from Redis alone: an unknown id costs MySQL nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from activities.release import Release, release_read
from activities.statuses import EffectiveStatus, activity_status
from seize import desk, store
from seize.responses import rfc3339

_NEVER_MS = 2**62
TABS = {"ongoing": EffectiveStatus.ONGOING, "upcoming": EffectiveStatus.UPCOMING}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The list as it is in one moment by Redis' clock (Unix ms): what a shopper sees of each activity, by id.

    ``read_s`` is that moment by this process' monotonic clock. Running ones come first, then by start. At
    ``changes_ms`` the next one starts or ends, and a status is another. ``activities`` is what everybody sees,
    ``every`` what there is, with those to whom it is open; ``is_personal``: some shoppers see more than others.
    """

    now_ms: int
    read_s: float
    changes_ms: int
    activities: dict[str, dict[str, Any]]
    every: dict[str, tuple[dict[str, Any], Release | None]]
    is_personal: bool


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
    every = {
        element["id"]: (_shown(element, left.get(int(element["id"]))), release_read(element)) for element in elements
    }
    is_personal = any(release is not None for _shown_, release in every.values())
    return Snapshot(now_ms, read_s, changes_ms, _seen(every, _is_open_to_everybody), every, is_personal)


def snapshot_for(snapshot: Snapshot, *, user_id: int) -> Snapshot:
    """The snapshot as this shopper sees it: with what is open to them, without what they are kept out of.

    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    if not snapshot.is_personal:
        return snapshot
    released = {name: release for name, (_body, release) in snapshot.every.items() if release is not None}
    listed = [name for name, release in released.items() if release.has_lists]
    read = desk.listed_read(activity_ids=[int(name) for name in listed], user_id=user_id) if listed else []
    verdicts = dict(zip(listed, read, strict=True))
    is_staff = any(release.is_for_staff for release in released.values()) and desk.staff_has(user_id)

    def is_open(name: str, release: Release) -> bool:
        return release.is_open_to(user_id, verdict=verdicts.get(name), is_staff=is_staff)

    return replace(snapshot, activities=_seen(snapshot.every, is_open))


def _is_open_to_everybody(_name: str, release: Release) -> bool:
    return release.is_for_everybody


def _seen(
    every: dict[str, tuple[dict[str, Any], Release | None]], is_open: Callable[[str, Release], bool]
) -> dict[str, dict[str, Any]]:
    """What is open as it is; what is announced to others as coming soon; and nothing else."""
    seen: dict[str, dict[str, Any]] = {}
    for name, (shown, release) in every.items():
        if release is None or is_open(name, release):
            seen[name] = shown
        elif release.is_announced and shown["status"] in _STILL_TO_COME:
            seen[name] = {**shown, "status": EffectiveStatus.UPCOMING.value, "stock_left": None, "coming_soon": True}
    return seen


_STILL_TO_COME = {EffectiveStatus.UPCOMING.value, EffectiveStatus.ONGOING.value, EffectiveStatus.PAUSED.value}


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
        "challenge": element.get("challenge", "off"),
        "coming_soon": False,
        "rules_text": element["rules_text"],
        "valid_days": element["valid_days"],
        "valid_until": None if valid_until_ms is None else rfc3339(valid_until_ms),
    }
