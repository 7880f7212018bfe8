"""A claim: a coupon won in Redis that is not yet a row, and how it is written in the queue."""

import functools
import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from seize import queue
from seize.keys import shard_of
from seize.requests import ID_MAX
from seize.times import moment_of

_FIELD = re.compile(r"([1-9][0-9]{0,18}):([1-9][0-9]{0,18}):([1-9][0-9]{0,6})")
_VALUE = re.compile(r"([1-9][0-9]{0,13}):([0-9A-Za-z]{1,32})")


class Claim(NamedTuple):
    """One waiting claim. ``seized_ms``: Unix ms by Redis' clock; ``uid``: the activity's random name."""

    activity_id: int
    user_id: int
    seq: int
    seized_ms: int
    uid: str

    @property
    def seized_at(self) -> datetime:
        """The instant of seizing, exactly to its millisecond."""
        return moment_of(self.seized_ms)


def claim_field(*, activity_id: int, user_id: int, seq: int) -> str:
    """The queue field of a claim."""
    return f"{activity_id}:{user_id}:{seq}"


# A drain asks three times for each of some hundred entries: to group them, to settle them, to write a letter.
@functools.lru_cache(maxsize=8192)
def claim_parse(entry: queue.Entry) -> Claim | None:
    """Read a queue entry; None when it is malformed, so that nothing but the script's own format passes."""
    field, value = _FIELD.fullmatch(entry.field), _VALUE.fullmatch(entry.value)
    if field is None or value is None:
        return None
    activity_id, user_id, seq = field.groups()
    claim = Claim(int(activity_id), int(user_id), int(seq), int(value[1]), value[2])
    if claim.activity_id > ID_MAX or claim.user_id > ID_MAX:
        return None
    return claim


def claims_lookup(wanted: Sequence[tuple[int, int, int]]) -> list[Claim]:
    """Of (activity id, user id, seq) triples, those that wait in a queue now; one HMGET a shard."""
    by_shard: dict[int, list[str]] = {}
    for activity_id, user_id, seq in wanted:
        field = claim_field(activity_id=activity_id, user_id=user_id, seq=seq)
        by_shard.setdefault(shard_of(activity_id), []).append(field)
    found = queue.queue_lookup(by_shard)
    claims = (claim_parse(entry) for entry in found)
    return [claim for claim in claims if claim is not None]
