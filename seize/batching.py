"""Group commit: shoppers of one activity share a script call.

While a call for an activity is under way, whoever comes for it waits in its lane and forms the next call: no timer,
no wait when idle, and under load one call carries up to 256. Nothing is remembered from one call to the next.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from seize.outcomes import Outcome
from seize.services import BATCH_MAX, coupons_seize
from seize.store import OutcomeUnknown, StoreUnavailable

log = logging.getLogger(__name__)

Fault = StoreUnavailable | OutcomeUnknown
Done = Callable[[Outcome | Fault | None], None]


@dataclass(slots=True)
class Waiting:
    """A shopper in a lane; ``left`` when nobody waits for the answer any more and it was not asked yet."""

    user_id: int
    seq: int
    done: Done
    left: bool = False


class Lanes:
    """One lane per activity for which somebody waits; lives in one event loop."""

    def __init__(self, *, executor: Executor, waiting_max: int) -> None:
        self._executor = executor
        self._waiting_max = waiting_max
        self._lanes: dict[int, deque[Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.waiting = 0

    @property
    def is_full(self) -> bool:
        """Whether one more would have to wait too long: shed, do not queue."""
        return self.waiting >= self._waiting_max

    def submit(self, *, activity_id: int, user_id: int, seq: int, done: Done) -> Waiting:
        """Ask for a coupon. ``done`` gets the outcome, the fault, or None for one that nobody expected."""
        waiting = Waiting(user_id, seq, done)
        self.waiting += 1
        lane = self._lanes.get(activity_id)
        if lane is None:
            lane = self._lanes[activity_id] = deque()
            task = asyncio.get_running_loop().create_task(self._serve(activity_id, lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        lane.append(waiting)
        return waiting

    async def _serve(self, activity_id: int, lane: deque[Waiting]) -> None:
        """Call after call until nobody is left in the lane."""
        loop = asyncio.get_running_loop()
        try:
            while lane:
                batch = self._next_batch(lane)
                if not batch:
                    continue
                shoppers = [(waiting.user_id, waiting.seq) for waiting in batch]
                answers = await loop.run_in_executor(self._executor, _call, activity_id, shoppers)
                self.waiting -= len(batch)
                for waiting, answer in zip(batch, answers, strict=True):
                    _tell(waiting, answer)
        finally:
            del self._lanes[activity_id]

    def _next_batch(self, lane: deque[Waiting]) -> list[Waiting]:
        batch: list[Waiting] = []
        while lane and len(batch) < BATCH_MAX:
            waiting = lane.popleft()
            if waiting.left:
                self.waiting -= 1
            else:
                batch.append(waiting)
        return batch


def _call(activity_id: int, shoppers: list[tuple[int, int]]) -> list[Outcome] | list[Fault] | list[None]:
    """In a thread: the script call, or what befell all of it."""
    try:
        return coupons_seize(activity_id=activity_id, shoppers=shoppers)
    except (StoreUnavailable, OutcomeUnknown) as fault:
        return [fault] * len(shoppers)
    except Exception:
        log.exception("activity %s: a call for %d shoppers failed", activity_id, len(shoppers))
        return [None] * len(shoppers)


def _tell(waiting: Waiting, answer: Outcome | Fault | None) -> None:
    try:
        waiting.done(answer)
    except Exception:
        log.exception("an answer could not be given")  # and the others get theirs
