"""Names of every Redis key. Braces are literal hash tags: all keys of one shard lie in one cluster slot."""

from typing import NamedTuple

SHARDS = 10  # S16, S19: activity id % 10; a constant, since changing it orphans every key

LIST_KEY = "ACTIVITY:LIST"
LIST_STAMP_KEY = "{ACTIVITY:LIST}:STAMP"


class SeizeKeys(NamedTuple):
    """The keys of one activity, in the order that ``seize.lua`` takes them."""

    marker: str
    rules: str
    stock: str
    holders: str
    queue: str
    listed: str
    staff: str
    asked_even: str
    asked_odd: str


def shard_of(activity_id: int) -> int:
    """The shard, 0 to 9, that an activity's keys lie in."""
    return activity_id % SHARDS


def seize_keys(activity_id: int) -> SeizeKeys:
    """The keys of an activity."""
    shard = shard_of(activity_id)
    tail = f"{{{shard}}}:{activity_id}"
    return SeizeKeys(
        marker=marker_key(shard),
        rules=rules_key(activity_id),
        stock=stock_key(shard),
        holders=holders_key(activity_id),
        queue=queue_key(shard),
        listed=listed_key(activity_id),
        staff=staff_key(shard),
        asked_even=f"COUPON:ASKED:{tail}:0",
        asked_odd=f"COUPON:ASKED:{tail}:1",
    )


def rules_key(activity_id: int) -> str:
    """Hash of an activity's rules, and of its fence during a rebuild."""
    return f"COUPON:ACTIVITY:RULES:{{{shard_of(activity_id)}}}:{activity_id}"


def holders_key(activity_id: int) -> str:
    """Hash of an activity's holders: user id to highest seq."""
    return f"COUPON:SEIZE:LIST:{{{shard_of(activity_id)}}}:{activity_id}"


def listed_key(activity_id: int) -> str:
    """Hash of those whom staff have let in or kept out: user id to ``allow`` or ``deny``; ``_`` is its version."""
    return f"COUPON:LISTED:{{{shard_of(activity_id)}}}:{activity_id}"


def staff_key(shard: int) -> str:
    """Set of the back office's people, who see what is not for everybody yet."""
    return f"COUPON:STAFF:{{{shard}}}"


def marker_key(shard: int) -> str:
    """Hash that says whether all rules of a shard are there."""
    return f"COUPON:SHARD:{{{shard}}}"


def stock_key(shard: int) -> str:
    """Hash of coupons left per activity."""
    return f"COUPON:RESOURCE:STOCK:{{{shard}}}"


def queue_key(shard: int) -> str:
    """Hash of claims that are not yet in the ledger."""
    return f"QUEUE:COUPON:SEIZE:SYNC:{{{shard}}}"


def drained_key(shard: int) -> str:
    """Hash that counts what left the queue: for the drain rate."""
    return f"COUPON:DRAINED:{{{shard}}}"


class CountKeys(NamedTuple):
    """The keys in which an activity's outcomes are counted, in the order that ``count.lua`` takes them."""

    counts: str
    seconds: str
    buckets: str


def count_keys(activity_id: int) -> CountKeys:
    """Hashes: how often each outcome; a ring of the last minutes by the second; the whole sale in buckets."""
    tail = f"{{{shard_of(activity_id)}}}:{activity_id}"
    return CountKeys(f"COUPON:COUNTS:{tail}", f"COUPON:COUNTS:SECONDS:{tail}", f"COUPON:COUNTS:BUCKETS:{tail}")


def probe_key(shard: int) -> str:
    """String that probes write, to see that the shard's master takes writes."""
    return f"COUPON:PROBE:{{{shard}}}"


def lease_key(name: str) -> str:
    """String that one process at a time may hold; see ``store.Lease``."""
    return f"LEASE:{{{name}}}"
