"""How many won, how many were refused, and why: counted in each process, written to Redis once a second.

What is decided is counted by :func:`count` with the second in which Redis decided it, so the series of all processes
agree. A thread of the process writes; a seize only adds to a dict. Each write has a number of its process, so that one
whose answer was lost is sent again and counts once. What a killed process has not written, about a second's worth, is
lost, and so is all of it with Redis: these are figures to look at, the ledger knows who won.
"""

import atexit
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from django.conf import settings

from seize.keys import count_keys, seize_keys
from seize.outcomes import Refusal
from seize.store import OutcomeUnknown, StoreUnavailable, client, faults_translated, script_call

log = logging.getLogger(__name__)

WON, REPLAY = 0, 1  # beside the codes of ``Refusal``, which are below zero
NAMES = {WON: "WON", REPLAY: "REPLAY", **{refusal.value: refusal.name for refusal in Refusal}}
TTL_S = 7 * 86_400  # after the last write
KEEP_S = 600  # so long a write that fails is tried again
UNKNOWN_MAX = 100  # activities of which Redis has no rules (yet): whoever makes ids up must not fill this process

Told = dict[int, int]  # code → how often


@dataclass(slots=True)
class _Batch:
    """What is to be written of one activity: per second (Unix time) how often each code."""

    number: int
    since: float
    seconds: Mapping[int, Told] = field(default_factory=dict)


class Counter:
    """A process's counts: what is not written yet, and the thread that writes it."""

    def __init__(self) -> None:
        self.every_s = 1.0  # 0: no thread, somebody else calls ``flush``
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a process of its own: after a fork the parent's counts are the parent's."""
        self.process = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._pending: dict[int, dict[int, Told]] = {}
        self._batches: dict[int, deque[_Batch]] = {}
        self._thread: threading.Thread | None = None
        self._number = 0
        self._is_failing = False

    def count(self, activity_id: int, *, second: int, told: Told, is_known: bool) -> None:
        """Note what the shoppers of one script call were told.

        :param second: of Redis' clock, Unix time.
        :param told: code → how often; it is kept, or added to what is there.
        :param is_known: whether Redis had the activity's rules.
        """
        with self._lock:
            seconds = self._pending.get(activity_id)
            if seconds is None:
                if not is_known and len(self._pending) + len(self._batches) >= UNKNOWN_MAX:
                    return
                seconds = self._pending[activity_id] = {}
            there = seconds.get(second)
            if there is None:
                seconds[second] = told
            else:
                for code, number in told.items():
                    there[code] = there.get(code, 0) + number
            if self._thread is None and self.every_s:
                self._thread = threading.Thread(target=self._run, name="seize-counts", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while interval_s := self.every_s:
            time.sleep(interval_s)
            try:
                self.flush()
            except Exception:
                log.exception("counts could not be written")

    def flush(self) -> None:
        """Write what was counted; what cannot be written now stays for the next time. Raises nothing of Redis."""
        with self._writing:
            with self._lock:
                pending, self._pending = self._pending, {}
            now = time.monotonic()
            for activity_id, seconds in pending.items():
                self._number += 1
                self._batches.setdefault(activity_id, deque()).append(_Batch(self._number, now, seconds))
            faults = 0
            for activity_id in list(self._batches):
                batches = self._batches.pop(activity_id)
                if faults < 2:  # each may cost a time-out; those that had none are the first of the next time
                    faults += not self._written(activity_id, batches)
                while batches and now - batches[0].since > KEEP_S:
                    batches.popleft()
                if batches:
                    self._batches[activity_id] = batches

    def _written(self, activity_id: int, batches: deque[_Batch]) -> bool:
        """Write one activity's batches, the oldest first, and take out what is written; False: Redis is at fault."""
        try:
            while batches:
                # -1, no rules: they may come back with a rebuild. The order of numbers must hold, so all of them wait.
                if _batch_write(activity_id, self.process, batches[0]) < 0:
                    break
                batches.popleft()
        except (StoreUnavailable, OutcomeUnknown) as fault:
            if not self._is_failing:
                log.warning("counts wait, for %d s at most: %s", KEEP_S, fault)
            self._is_failing = True
            return False
        self._is_failing = False
        return True


def _batch_write(activity_id: int, process: str, batch: _Batch) -> int:
    arguments: list[str | int] = [activity_id, process, batch.number, TTL_S]
    for second, told in sorted(batch.seconds.items()):
        arguments += (second, len(told))
        for code, number in told.items():
            arguments += (NAMES[code], number)
    keys = seize_keys(activity_id)
    return int(script_call("count", (keys.rules, keys.stock, *count_keys(activity_id)), arguments))


counter = Counter()
os.register_at_fork(after_in_child=counter.forget)
atexit.register(counter.flush)


def count(activity_id: int, *, now_ms: int, told: Told, is_known: bool) -> None:
    """Count what one script call told its shoppers: ``WON``, ``REPLAY`` or a refusal's code → how often.

    Of an activity that is not there nothing is counted: whoever makes ids up would fill Redis with them.
    """
    if settings.SEIZE_COUNTS and Refusal.UNKNOWN_ACTIVITY not in told:
        counter.count(activity_id, second=now_ms // 1000, told=told, is_known=is_known)


def flush() -> None:
    """Write what this process has counted: it stops, or somebody wants to look."""
    counter.flush()


# -- Reading ------------------------------------------------------------------------------------------


class Second(NamedTuple):
    """What was told in one second (Unix time), and the stock at its end, where it is known."""

    second: int
    won: int
    refused: int
    left: int | None


class Bucket(NamedTuple):
    """What was told from ``first`` (Unix time, s) on, for the bucket's width."""

    first: int
    won: int
    refused: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted of an activity: by name of outcome, the last minutes by the second, the whole in buckets.

    ``life`` is another one when Redis was emptied and counts from zero again.
    """

    totals: dict[str, int] = field(default_factory=dict)
    seconds: list[Second] = field(default_factory=list)
    buckets: list[Bucket] = field(default_factory=list)
    width_s: int = 0
    life: str = ""

    @property
    def refused(self) -> dict[str, int]:
        """Refusals by reason, those that came."""
        names = (refusal.name for refusal in Refusal)
        return {name: self.totals[name] for name in names if self.totals.get(name)}


def counts_read(*, activity_id: int, uid: str) -> Counts:
    """What was counted of an activity, in one round trip; of an earlier one with this id nothing.

    :raises seize.store.StoreUnavailable: Redis is not there.
    """
    with faults_translated():
        pipeline = client().pipeline(transaction=False)
        for key in count_keys(activity_id):
            pipeline.hgetall(key)
        counts, seconds, buckets = pipeline.execute()
    if counts.get("uid") != uid:
        return Counts()
    found: dict[int, list[int]] = {}
    for name, number in buckets.items():
        first, _colon, side = name.partition(":")
        found.setdefault(int(first), [0, 0])[side == "r"] = int(number)
    return Counts(
        totals={name: int(counts[name]) for name in NAMES.values() if name in counts},
        seconds=sorted(_second(text) for text in seconds.values()),
        buckets=[Bucket(first, *both) for first, both in sorted(found.items())],
        width_s=int(counts["width"]),
        life=counts["life"],
    )


def _second(text: str) -> Second:
    second, won, refused, left = text.split(":")
    return Second(int(second), int(won), int(refused), int(left) if left else None)
