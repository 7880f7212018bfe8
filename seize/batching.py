"""Group commit: shoppers of one activity share a script call.

While a call for an activity is under way, whoever comes for it waits in its lane and forms the next call: no timer,
no wait when idle, and under load one call carries up to 256. Nothing is remembered from one call to the next.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from django.conf import settings

from seize.demand import demand_note
from seize.outcomes import Outcome
from seize.services import BATCH_MAX, coupons_seize, outcomes_of
from seize.store import Fault, OutcomeUnknown, Shopper, StoreUnavailable, wire_address
from seize.wire import Wire

log = logging.getLogger(__name__)

LATE_PARTS = 4  # who asks too often may wait in a quarter of the places, beside the others
LATE_OF_BATCH = 16

Done = Callable[[Outcome | Fault | None], None]
Shoppers = list[Shopper]
Call = Callable[[int, Shoppers], Awaitable[list[Outcome]]]


@dataclass(slots=True)
class Waiting:
    """A shopper in a lane; ``left`` when nobody waits for the answer any more and it was not asked yet."""

    shopper: Shopper
    done: Done
    is_late: bool = False
    left: bool = False


@dataclass(slots=True)
class _Lane:
    """Who waits for an activity, and who asks too often and comes after them."""

    first: deque[Waiting] = field(default_factory=deque)
    late: deque[Waiting] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.first or self.late)


class Lanes:
    """One lane per activity for which somebody waits; lives in one event loop."""

    def __init__(self, *, call: Call, waiting_max: int) -> None:
        self._call = call
        self._waiting_max = waiting_max
        self._lanes: dict[int, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.waiting = self.late = 0

    @property
    def is_full(self) -> bool:
        """Whether one more would have to wait too long: shed, do not queue. Who asks too often takes no place here."""
        return self.waiting >= self._waiting_max

    @property
    def is_crowded(self) -> bool:
        """Whether there is no room for one more of those who ask too often."""
        return LATE_PARTS * self.late >= self._waiting_max

    def submit(self, *, activity_id: int, shopper: Shopper, done: Done, is_late: bool = False) -> Waiting:
        """Ask for a coupon. ``done`` gets the outcome, the fault, or None for one that nobody expected.

        :param is_late: the shopper asks too often, and comes after all others.
        """
        waiting = Waiting(shopper, done, is_late)
        self._count(waiting, 1)
        lane = self._lanes.get(activity_id)
        if lane is None:
            lane = self._lanes[activity_id] = _Lane()
            task = asyncio.get_running_loop().create_task(self._serve(activity_id, lane))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        (lane.late if is_late else lane.first).append(waiting)
        return waiting

    def _count(self, waiting: Waiting, change: int) -> None:
        if waiting.is_late:
            self.late += change
        else:
            self.waiting += change

    async def _serve(self, activity_id: int, lane: _Lane) -> None:
        """Call after call until nobody is left in the lane."""
        try:
            while lane:
                # No wait: the loop only reads first what has already come, so that one call carries it.
                await asyncio.sleep(0)
                batch = self._next_batch(lane)
                if not batch:
                    continue
                shoppers = [waiting.shopper for waiting in batch]
                try:
                    answers = await self._ask(activity_id, shoppers)
                finally:
                    for waiting in batch:
                        self._count(waiting, -1)
                for waiting, answer in zip(batch, answers, strict=True):
                    _tell(waiting, answer)
        finally:
            del self._lanes[activity_id]

    async def _ask(self, activity_id: int, shoppers: Shoppers) -> list[Outcome] | list[Fault] | list[None]:
        """The script call, or what befell all of it."""
        try:
            outcomes = await self._call(activity_id, shoppers)
            if len(outcomes) != len(shoppers):
                raise OutcomeUnknown(f"{len(outcomes)} answers for {len(shoppers)} shoppers")
            return outcomes
        except (StoreUnavailable, OutcomeUnknown) as fault:
            return [fault] * len(shoppers)
        except Exception:
            log.exception("activity %s: a call for %d shoppers failed", activity_id, len(shoppers))
            return [None] * len(shoppers)

    def _next_batch(self, lane: _Lane) -> list[Waiting]:
        """Those who came first, and a few of the others, so that a winner among them is not left without an answer."""
        batch: list[Waiting] = []
        for queue, room in (lane.first, BATCH_MAX - (LATE_OF_BATCH if lane.late else 0)), (lane.late, BATCH_MAX):
            while queue and len(batch) < room:
                waiting = queue.popleft()
                if waiting.left:
                    self._count(waiting, -1)
                else:
                    batch.append(waiting)
        return batch


def _tell(waiting: Waiting, answer: Outcome | Fault | None) -> None:
    try:
        waiting.done(answer)
    except Exception:
        log.exception("an answer could not be given")  # and the others get theirs


class Desk:
    """Asks Redis: over a wire of its own where there is a single plain one, else by redis-py in threads."""

    def __init__(self, *, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="seize")
        self._wires: dict[str, Wire | None] = {}

    async def __call__(self, activity_id: int, shoppers: Shoppers) -> list[Outcome]:
        wire = self._wire()
        if wire is not None:
            demand = demand_note(activity_id, len(shoppers))
            reply = await wire.seize(activity_id=activity_id, shoppers=shoppers, demand=demand)
            return outcomes_of(activity_id, reply)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._executor, lambda: coupons_seize(activity_id=activity_id, shoppers=shoppers)
        )

    def close(self) -> None:
        """Let go of Redis: this process stops."""
        for wire in self._wires.values():
            if wire is not None:
                wire.close()
        self._executor.shutdown(wait=False)

    def _wire(self) -> Wire | None:
        url = settings.REDIS_URL
        if url not in self._wires:
            address = wire_address()
            self._wires[url] = None if address is None else Wire(address)
        return self._wires[url]
