"""What a seize can end in. Losing is a value here; a fault is an exception of the store."""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Refusal(IntEnum):
    """Why a shopper gets no coupon; the numbers are those that ``seize.lua`` returns."""

    LIMIT_REACHED = -1
    SOLD_OUT = -2
    NOT_STARTED = -3
    ENDED = -4
    PAUSED = -5
    VOIDED = -6
    UNKNOWN_ACTIVITY = -7
    NOT_READY = -8
    TOO_MANY_REQUESTS = -9
    NOT_ELIGIBLE = -10
    CHALLENGE_REQUIRED = -11
    CHALLENGE_INVALID = -12


class Pace(NamedTuple):
    """A limit that is used up: ``quota`` requests a window, and the next one in ``wait_ms``."""

    name: str
    quota: int
    window_ms: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Won:
    """A coupon is the shopper's.

    ``seized_ms`` is Unix time in ms by Redis' clock; 0 for a replay whose claim has already
    left the queue. ``replay``: the same seq was won before and nothing changed now.
    """

    activity_id: int
    seq: int
    seized_ms: int
    replay: bool
    now_ms: int


@dataclass(frozen=True, slots=True)
class Refused:
    """No coupon. ``held`` is the highest seq that the shopper holds, ``starts_ms`` the start of the activity.

    ``pace``: how fast one may ask, where asking too fast was the reason.
    """

    activity_id: int
    refusal: Refusal
    held: int
    starts_ms: int
    now_ms: int
    pace: Pace | None = None


Outcome = Won | Refused
