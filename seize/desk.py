"""What the admission desk knows of activities: rules, stock, holders, shards, and the public list.

Faults are those of :mod:`seize.store`.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import orjson

from seize import store
from seize.keys import (
    LIST_KEY,
    LIST_STAMP_KEY,
    SHARDS,
    holders_key,
    listed_key,
    marker_key,
    rules_key,
    seize_keys,
    shard_of,
    staff_key,
    stock_key,
)
from seize.store import client, faults_translated, script_call

# -- Rules, preheat, rebuild --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask for an activity's coupons, and how fast; what is None or False limits nobody.

    ``asks`` a shopper in any ``window_ms``; ``rate`` coupons in any second, growing from a tenth during ``ramp_ms``;
    ``challenge`` is always or pressure (above ``pressure`` asks a second) and takes ``effort`` hashes at most;
    ``percent`` of shoppers by a stable share, or ``staff`` alone; ``lists``: the version of who is let in and kept out
    by name.
    """

    asks: int | None = None
    window_ms: int | None = None
    rate: int | None = None
    ramp_ms: int | None = None
    challenge: str | None = None
    effort: int | None = None
    pressure: int | None = None
    percent: int | None = None
    staff: bool = False
    lists: int | None = None

    def text(self) -> str:
        """As ``seize.lua`` reads it; '' when it limits nobody."""
        every = ((name, getattr(self, name)) for name in self.__slots__)
        given = {
            name: value for name, value in every if value is not None and value is not False
        }  # 0 percent is a limit
        return orjson.dumps(given).decode() if given else ""


NO_LIMITS = Access()


@dataclass(frozen=True, slots=True)
class Rules:
    """What Redis needs to know of an activity. Times are Unix ms; ``state`` is open, paused or voided."""

    activity_id: int
    uid: str
    epoch: int
    version: int
    state: str
    starts_ms: int
    ends_ms: int
    per_user: int
    total: int
    settled: bool = False
    access: Access = NO_LIMITS

    def arguments(self) -> list[str | int]:
        return [
            self.uid,
            self.epoch,
            self.version,
            self.state,
            self.starts_ms,
            self.ends_ms,
            self.per_user,
            self.total,
            self.access.text(),
        ]


def preheat(rules: Rules) -> str:
    """Run ``preheat.lua``; returns 'applied', 'current', 'lists', 'fenced' or 'rebuild'."""
    keys = seize_keys(rules.activity_id)
    arguments = [rules.activity_id, *rules.arguments(), rules.access.lists or "", int(rules.settled)]
    return cast(str, script_call("preheat", (keys.rules, keys.stock, keys.holders, keys.listed), arguments))


def close(*, activity_id: int, uid: str, state: str) -> bool:
    """Run ``close.lua``; False when Redis holds no such activity."""
    return bool(script_call("close", (seize_keys(activity_id).rules,), (uid, state)))


def rebuild_begin(*, activity_id: int, token: str, lease_ms: int) -> int:
    """Fence the activity; 0, or the ms for which another owner's lease still runs."""
    return int(script_call("rebuild_begin", (seize_keys(activity_id).rules,), (token, lease_ms)))


def rebuild_holders(
    *, activity_id: int, token: str, lease_ms: int, reset: bool, holders: Mapping[int, int] | None = None
) -> bool:
    """Write user id → highest seq; False when the fence was lost and the rebuild must stop."""
    keys = seize_keys(activity_id)
    pairs = [value for pair in (holders or {}).items() for value in pair]
    return bool(script_call("rebuild_holders", (keys.rules, keys.holders), (token, lease_ms, int(reset), *pairs)))


def rebuild_finish(*, rules: Rules, token: str, claims: int) -> bool:
    """Stamp the rebuilt activity and open it; False when the fence was lost."""
    keys = seize_keys(rules.activity_id)
    arguments = [token, rules.activity_id, *rules.arguments(), claims]
    return bool(script_call("rebuild_finish", (keys.rules, keys.stock, keys.holders), arguments))


def settle(*, activity_id: int, uid: str, epoch: int) -> bool:
    """Forget the holders of an activity that is over; False when Redis' clock or rules say otherwise."""
    keys = seize_keys(activity_id)
    return bool(script_call("settle", (keys.rules, keys.stock, keys.holders, keys.listed), (activity_id, uid, epoch)))


def effort_read(*, activity_id: int) -> tuple[int | None, int]:
    """Hashes that an activity's challenge takes at most, None while it asks for none; and Redis' clock, Unix ms."""
    text, now_ms = script_call("effort", (rules_key(activity_id),), ())
    return (orjson.loads(text).get("effort") if text else None), int(now_ms)


# -- Who is let in or kept out by name ------------------------------------------------------------------

LISTED_CHUNK = 1000
_LISTED_TTL_S = 60  # of one that nobody went on writing


class ListBroken(store.StoreUnavailable):
    """A list did not arrive whole; the one before is in place, and it is written again."""


def listed_write(
    *, activity_id: int, uid: str, version: int, listed: Sequence[tuple[int, str]], force: bool = False
) -> bool:
    """Replace the list of (user id, 'allow' or 'deny') at once; False when one as new was there already.

    :param force: also in the place of one as new, as after a loss.
    :raises ListBroken: Redis was emptied meanwhile.
    """
    key = listed_key(activity_id)
    making = f"{key}:{secrets.token_hex(8)}"
    for start in range(0, len(listed), LISTED_CHUNK):
        with faults_translated():
            pipeline = client().pipeline(transaction=False)
            pipeline.hset(making, mapping=dict(listed[start : start + LISTED_CHUNK]))
            pipeline.expire(making, _LISTED_TTL_S)
            pipeline.execute()
    done = int(script_call("listed_finish", (key, making), (uid, version, len(listed), int(force))))
    if done < 0:
        raise ListBroken(f"the list of activity {activity_id} did not arrive whole")
    return bool(done)


def listed_read(*, activity_ids: Sequence[int], user_id: int) -> list[str | None]:
    """What the lists of these activities say of a shopper: 'allow', 'deny', or None."""
    with faults_translated():
        pipeline = client().pipeline(transaction=False)
        for activity_id in activity_ids:
            pipeline.hget(listed_key(activity_id), str(user_id))
        return list(pipeline.execute())


def staff_has(user_id: int) -> bool:
    """Whether a shopper belongs to the back office."""
    with faults_translated():
        return bool(client().sismember(staff_key(0), str(user_id)))


def staff_write(user_ids: Iterable[int]) -> None:
    """Say in every shard who belongs to the back office."""
    members = [str(user_id) for user_id in user_ids]
    for shard in range(SHARDS):
        script_call("staff_write", (staff_key(shard),), members)


# -- Inspection ---------------------------------------------------------------------------------------


class ActivityState(NamedTuple):
    """What Redis holds of one activity; every field a string, '' when absent."""

    uid: str
    epoch: str
    gen: str
    version: str
    fence: str
    fence_until_ms: str
    fence_gen: str
    holders_epoch: str
    stock: str
    listed: str


class ShardState(NamedTuple):
    """What Redis holds of a shard: its clock, its generation, whether it is declared loaded, its activities."""

    now_ms: int
    gen: str
    loaded: bool
    activities: dict[int, ActivityState]


def shard_inspect(*, shard: int, activity_ids: Sequence[int]) -> ShardState:
    """Read many activities of one shard in one instant; callers pass at most some hundreds at a time."""
    keys = [marker_key(shard), stock_key(shard)]
    for activity_id in activity_ids:
        keys += (rules_key(activity_id), holders_key(activity_id), listed_key(activity_id))
    now_ms, gen, loaded, *found = script_call("shard_inspect", keys, activity_ids)
    activities = {i: ActivityState(*fields) for i, fields in zip(activity_ids, found, strict=True)}
    return ShardState(now_ms=now_ms, gen=gen, loaded=loaded == gen, activities=activities)


def shard_token_write(*, shard: int, token: str) -> None:
    """Leave a token that only survives while nobody empties Redis."""
    with faults_translated():
        client().hset(marker_key(shard), "token", token)


def shard_declare_loaded(*, shard: int, token: str) -> bool:
    """Run ``shard_loaded.lua``; False when the token is gone."""
    return bool(script_call("shard_loaded", (marker_key(shard),), (token,)))


def shard_unload(*, shard: int) -> None:
    """Withdraw the declaration: unknown ids get 503 until the shard has been compared again."""
    with faults_translated():
        client().hdel(marker_key(shard), "loaded", "token")


def stock_left(activity_ids: Sequence[int]) -> dict[int, int]:
    """Coupons left per activity, of those that Redis knows; one HMGET a shard in one round trip."""
    by_shard: dict[int, list[int]] = {}
    for activity_id in activity_ids:
        by_shard.setdefault(shard_of(activity_id), []).append(activity_id)
    with faults_translated():
        pipeline = client().pipeline(transaction=False)
        for shard, ids in by_shard.items():
            pipeline.hmget(stock_key(shard), [str(i) for i in ids])
        replies = pipeline.execute()
    left: dict[int, int] = {}
    for ids, values in zip(by_shard.values(), replies, strict=True):
        left.update({i: int(value) for i, value in zip(ids, values, strict=True) if value is not None})
    return left


def list_read() -> tuple[str | None, int]:
    """The activity list's JSON text (None when absent) and Redis' clock, Unix time in ms."""
    text, seconds, micros = script_call("list_read", (LIST_KEY,), ())
    return text or None, int(seconds) * 1000 + int(micros) // 1000


def list_exists() -> bool:
    """Whether the activity list is there; its text may be megabytes."""
    with faults_translated():
        return bool(client().exists(LIST_KEY))


def list_write(*, stamp_us: int, text: str) -> bool:
    """Replace the activity list; False when a later reader of the database has already written."""
    return bool(script_call("list_write", (LIST_KEY, LIST_STAMP_KEY), (stamp_us, text)))


# -- For reconciliation -------------------------------------------------------------------------------


class Sold(NamedTuple):
    """How much is sold, in one instant: coupons, and shoppers that hold any."""

    epoch: str
    sold: int
    holders: int


def sold_read(*, activity_id: int) -> Sold | None:
    """Run ``sold.lua``; None when the activity is missing, fenced, or of another process."""
    keys = seize_keys(activity_id)
    reply = script_call("sold", (keys.rules, keys.stock, keys.holders), (activity_id,))
    return Sold(*reply) if reply else None


def holders_read(*, activity_id: int) -> dict[int, int]:
    """Every holder's highest seq; one who is added meanwhile may or may not be among them."""
    key, cursor = seize_keys(activity_id).holders, 0
    holders: dict[int, int] = {}
    while True:
        with faults_translated():
            reply = client().hscan(key, cursor=cursor, count=1000)
        cursor, found = cast("tuple[int, dict[str, str]]", reply)
        holders.update({int(user): int(seq) for user, seq in found.items() if user != "_"})
        if int(cursor) == 0:
            return holders
