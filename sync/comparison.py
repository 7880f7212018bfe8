"""The comparison: every second Redis is held against the ledger, and what differs is mended.

Nothing else has to work for an activity to be right in Redis: a publish whose message got lost,
a Redis that was emptied, restored or replaced, a rebuild whose owner died, are all found here.
"""

import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from activities.admission import activity_preheat, list_publish, staff_publish
from activities.models import Activity, Listed
from activities.querysets import ActivityQuerySet
from seize import desk
from seize.keys import SHARDS, shard_of
from sync.rebuild import activity_rebuild

log = logging.getLogger(__name__)

INSPECT_CHUNK = 200  # activities a script call


class Watched(NamedTuple):
    """What the comparison needs of an activity's row: ten thousand model objects would cost more than all else."""

    pk: int
    uid: str
    epoch: int
    version: int
    listed_version: int


@dataclass(slots=True)
class ComparisonResult:
    """What was found and mended; activity ids."""

    preheated: list[int] = field(default_factory=list)
    rebuild: list[int] = field(default_factory=list)
    fenced: list[int] = field(default_factory=list)
    loaded: list[int] = field(default_factory=list)
    list_written: bool = False

    def as_dict(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value}


def ledger_compare(*, rebuild: Callable[[int], object]) -> ComparisonResult:
    """Compare all watched activities with Redis; preheat, rebuild, write the list, declare shards loaded.

    :param rebuild: called with each activity id that must be rebuilt: at once, or by a message.
    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    result = ComparisonResult()
    rows = _rows_by_shard(_watched(Activity.objects.watched()))
    for shard in range(SHARDS):
        state = _inspect(shard, rows.get(shard, []))
        if state.loaded:
            _shard_mend(rows.get(shard, []), state, result, rebuild)
        else:
            _shard_load(shard, result, rebuild)
    if not desk.list_exists() or result.preheated or result.rebuild:
        result.list_written = list_publish()
    return result


def activity_mend(*, activity_id: int) -> dict[str, object]:
    """Rebuild one activity if it needs it at this moment: a message may be old, or one of several.

    :return: what :func:`sync.rebuild.activity_rebuild` says, or ``{"state": "current"}``.
    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    rows = _watched(Activity.objects.watched().filter(pk=activity_id))
    if not rows:
        return {"state": "gone"}
    if verdict(rows[0], _inspect(shard_of(activity_id), rows)) in ("nothing", "preheat"):
        return {"state": "current"}
    return activity_rebuild(activity_id=activity_id)


def _watched(activities: ActivityQuerySet) -> list[Watched]:
    return list(map(Watched._make, activities.order_by("id").values_list(*Watched._fields)))


def _rows_by_shard(activities: Iterable[Watched]) -> dict[int, list[Watched]]:
    rows: dict[int, list[Watched]] = {}
    for activity in activities:
        rows.setdefault(shard_of(activity.pk), []).append(activity)
    return rows


def _inspect(shard: int, rows: list[Watched]) -> desk.ShardState:
    """What Redis holds of these activities; an empty list still tells whether the shard is loaded."""
    ids = [activity.pk for activity in rows]
    state = desk.shard_inspect(shard=shard, activity_ids=ids[:INSPECT_CHUNK])
    for start in range(INSPECT_CHUNK, len(ids), INSPECT_CHUNK):
        more = desk.shard_inspect(shard=shard, activity_ids=ids[start : start + INSPECT_CHUNK])
        state.activities.update(more.activities)
    return state


def _shard_mend(
    rows: list[Watched], state: desk.ShardState, result: ComparisonResult, rebuild: Callable[[int], object]
) -> bool:
    """Mend what differs; True when nothing has to be rebuilt or waited for."""
    complete = True
    for activity in rows:
        match verdict(activity, state):
            case "rebuild":
                if state.loaded and not state.activities[activity.pk].uid:
                    # Shoppers must not be told that a published activity does not exist.
                    desk.shard_unload(shard=shard_of(activity.pk))
                result.rebuild.append(activity.pk)
                rebuild(activity.pk)
                complete = False
            case "fenced":
                result.fenced.append(activity.pk)
                complete = False
            case "preheat":
                result.preheated.append(activity.pk)
                row = Activity.objects.get(pk=activity.pk)  # after publishing no activity is ever deleted
                complete = activity_preheat(row) in ("applied", "current") and complete
    return complete


def _shard_load(shard: int, result: ComparisonResult, rebuild: Callable[[int], object]) -> None:
    """Make a shard complete and declare it loaded, unless Redis is emptied under our hands.

    The token goes first: the rows are read, and Redis inspected, only after it is there.
    """
    token = secrets.token_hex(16)
    desk.shard_token_write(shard=shard, token=token)
    staff_publish()
    rows = _watched(Activity.objects.watched().in_shards([shard]))
    complete = _shard_mend(rows, _inspect(shard, rows), result, rebuild)
    for activity in Activity.objects.published().in_shards([shard]).exclude(settled_at=None).iterator():
        activity_preheat(activity)
    if complete and desk.shard_declare_loaded(shard=shard, token=token):
        result.loaded.append(shard)
        log.info("shard %s is loaded", shard)


def verdict(activity: Watched | Activity, state: desk.ShardState) -> str:
    """What an activity in Redis needs: 'nothing', 'preheat', 'rebuild', or 'fenced' (somebody is at it)."""
    there = state.activities[activity.pk]
    if there.fence:
        alive = there.fence_gen == state.gen and state.now_ms < int(there.fence_until_ms)
        return "fenced" if alive else "rebuild"
    epoch = str(activity.epoch)
    stamps = (there.uid, there.epoch, there.gen, there.holders_epoch)
    if stamps != (activity.uid, epoch, state.gen, epoch) or there.stock == "":
        return "rebuild"
    is_behind = int(there.version) < activity.version
    return "preheat" if is_behind or not _has_list(activity, there) else "nothing"


def _has_list(activity: Watched | Activity, there: desk.ActivityState) -> bool:
    """Whether the list that the row speaks of is in Redis, or none is: of lists that were emptied nothing is kept."""
    uid, _colon, version = there.listed.partition(":")
    is_there = uid == activity.uid and version.isdigit() and int(version) >= activity.listed_version
    return activity.listed_version == 0 or is_there or not Listed.objects.filter(activity_id=activity.pk).exists()


def preheat_all() -> dict[str, object]:
    """S23: bring the rules of every watched activity up to date and write the list anew."""
    answers: dict[str, int] = {}
    staff_publish()
    for activity in Activity.objects.watched():
        answer = activity_preheat(activity)
        answers[answer] = answers.get(answer, 0) + 1
    return {**answers, "list_written": list_publish(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
