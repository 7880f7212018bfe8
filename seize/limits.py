"""Limits that each process keeps by itself: per shopper, per client address, for the whole site, for log-ins.

They shed what would only cost, before it costs, and never need Redis: they hold while it is away. A client that spreads
over several connections may reach several processes and so get that many times as much; what must hold exactly is
judged by ``seize.lua``. Only the site's limit is divided by the number of processes.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from django.conf import settings

from seize.addresses import network_of
from seize.frozen import settings_cached
from seize.outcomes import Pace

KEYS_MAX = 100_000  # remembered in a window; beyond it the oldest are forgotten, and have their quota anew


class Quota(NamedTuple):
    """``number`` requests in any window of ``window_s``, half of them at once."""

    number: int
    window_s: int


class Limit:
    """GCRA by key, as ``seize.lua`` counts, too; times are whole µs of the monotonic clock."""

    def __init__(
        self, name: str, quota: Quota, *, now_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000
    ) -> None:
        self.name, self.quota, self._now_us = name, quota, now_us
        burst = -(-quota.number // 2)
        self._window_us = quota.window_s * 1_000_000
        self._step_us = -(-self._window_us // (quota.number - burst + 1))
        self._room_us = burst * self._step_us
        self._turn_ends_us = 0
        self._due_us: dict[object, int] = {}
        self._due_before_us: dict[object, int] = {}

    def pace(self, key: object, *, counts: bool = True) -> Pace | None:
        """Count a request; None while there is room, else how long to wait. A request that is refused counts not.

        :param counts: False only looks.
        """
        now_us = self._now_us()
        if now_us >= self._turn_ends_us or len(self._due_us) >= KEYS_MAX:
            self._turn(now_us)
        due_us = self._due_us.get(key) or self._due_before_us.get(key, 0)
        due_us = max(due_us, now_us) + self._step_us
        over_us = due_us - now_us - self._room_us
        if over_us > 0:
            return Pace(self.name, self.quota.number, self.quota.window_s * 1000, -(-over_us // 1000))
        if counts:
            self._due_us[key] = due_us
        return None

    def _turn(self, now_us: int) -> None:
        """Nothing that is due lies further ahead than a window, so what two turns ago was noted says nothing now."""
        is_recent = now_us < self._turn_ends_us + self._window_us
        self._due_before_us = self._due_us if is_recent else {}
        self._due_us = {}
        self._turn_ends_us = now_us + self._window_us


class _Limits(NamedTuple):
    shopper: Limit | None
    address: Limit | None
    site: Limit | None
    log_in: Limit | None


@settings_cached
def _limits() -> _Limits:
    def limit(name: str, text: str, *, parts: int = 1) -> Limit | None:
        """``text``: ``"30/10"``, 30 requests in any 10 seconds; '' for no limit."""
        number, _slash, window_s = text.partition("/")
        return Limit(name, Quota(max(1, int(number) // parts), int(window_s))) if text else None

    return _Limits(
        limit("shopper", settings.LIMIT_SHOPPER),
        limit("address", settings.LIMIT_ADDRESS),
        limit("site", settings.LIMIT_SITE, parts=settings.WEB_WORKERS),
        limit("log-in", settings.LIMIT_LOG_IN),
    )


def limits_forget() -> None:
    """Begin anew, with the settings as they are."""
    _limits.cache_clear()


def press_pace(*, user_id: int, address: str) -> Pace | None:
    """Whether this shopper, this client and the site have room for one more press; it is counted where all have."""
    shopper = _limits().shopper
    if shopper is None:
        return visit_pace(address=address)
    pace = shopper.pace(user_id, counts=False) or visit_pace(address=address)
    if pace is None:
        shopper.pace(user_id)
    return pace


def visit_pace(*, address: str) -> Pace | None:
    """Whether this client and the site have room for one more request of any kind; it is counted where both have."""
    limits, network = _limits(), network_of(address)
    if limits.address is None or network is None:
        return None if limits.site is None else limits.site.pace("")
    pace = limits.address.pace(network, counts=False) or (None if limits.site is None else limits.site.pace(""))
    if pace is None:
        limits.address.pace(network)
    return pace


def log_in_pace(*, address: str) -> Pace | None:
    """Whether this client may try another password. Those that are right are not counted: many share an address."""
    return _log_in(address, counts=False)


def log_in_failed(*, address: str) -> None:
    """Count a password that was wrong."""
    _log_in(address, counts=True)


def _log_in(address: str, *, counts: bool) -> Pace | None:
    limit, network = _limits().log_in, network_of(address)
    return None if limit is None or network is None else limit.pace(network, counts=counts)
