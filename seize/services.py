"""Seizing, as the rest of the code sees it."""

from collections.abc import Sequence
from datetime import UTC, datetime

from seize import counting, store
from seize.demand import demand_note
from seize.outcomes import Outcome, Pace, Refusal, Refused, Won
from seize.requests import SeizeRequest

BATCH_MAX = 256  # shoppers per script call: keeps a call below a millisecond and Lua's unpack within its stack


def coupon_seize(*, wanted: SeizeRequest, user_id: int) -> Outcome:
    """Claim one coupon for one shopper; losing is a value.

    :raises seize.store.StoreUnavailable: nothing happened, ask again.
    :raises seize.store.OutcomeUnknown: it may have happened, ask again with the same seq.
    """
    return coupons_seize(activity_id=wanted.activity_id, shoppers=[(user_id, wanted.seq)])[0]


def coupons_seize(*, activity_id: int, shoppers: Sequence[store.Shopper]) -> list[Outcome]:
    """Claim coupons of one activity for up to 256 shoppers, as :func:`seize.store.seize` takes them, in order.

    :raises ValueError: more than 256 shoppers.
    :raises seize.store.StoreUnavailable: nothing happened.
    :raises seize.store.OutcomeUnknown: it may have happened.
    """
    if len(shoppers) > BATCH_MAX:
        raise ValueError(f"at most {BATCH_MAX} shoppers a call, not {len(shoppers)}")
    demand = demand_note(activity_id, len(shoppers))
    return outcomes_of(activity_id, store.seize(activity_id=activity_id, shoppers=shoppers, demand=demand))


def outcomes_of(activity_id: int, reply: store.SeizeReply) -> list[Outcome]:
    """What each shopper of a call gets, in order; counted here, where every way to seize comes by, once a call."""
    outcomes: list[Outcome] = []
    told: counting.Told = {}
    for entry in reply.entries:
        if len(entry) == 4:
            outcomes.append(Won(activity_id, entry[1], entry[2], entry[3] == 1, reply.now_ms))
            code = entry[3]  # 0 WON, 1 REPLAY
        else:
            code = entry[0]
            pace = Pace(entry[5], quota=entry[3], window_ms=entry[4], wait_ms=entry[2]) if len(entry) > 2 else None
            outcomes.append(Refused(activity_id, Refusal(code), entry[1], reply.starts_ms, reply.now_ms, pace))
        told[code] = told.get(code, 0) + 1
    counting.count(activity_id, now_ms=reply.now_ms, told=told, is_known=reply.starts_ms > 0)
    return outcomes


def server_time() -> datetime:
    """Redis' clock, the one that decides; with zone.

    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    return datetime.fromtimestamp(store.time_us() / 1_000_000, tz=UTC)
