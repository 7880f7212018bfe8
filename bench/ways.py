"""The six classic ways to sell a stock once (S7 to S12), and the naive one that must be seen to oversell (S13).

Each way is a function of a :class:`Buyer` and a shopper, called by many threads of one or more processes, and
answers whether the shopper has won. All but ``decr`` and ``lua`` read and write two small tables of MariaDB, with
``WORK_S`` of work between reading and writing, as a request has (building the coupon, writing a log, asking the
next service). The tables have no unique index: what a way lets through must be seen.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WORK_S = 0.001
LEASE_MS = 10_000  # a lock's expiry that no critical section outlives
LEASE_SHORT_MS = 1  # as long as the work alone: it forgets that reading, writing and the commit take time too
# Waiting for a lock: a Redis lock cannot wake anybody, one has to ask again.
POLL_S = (0.0005, 0.002)

STOCK_TABLE = "CREATE TABLE bench_stock (activity_id BIGINT PRIMARY KEY, stock INT NOT NULL, version INT NOT NULL)"
COUPON_TABLE = """
CREATE TABLE bench_coupon (
    id BIGINT AUTO_INCREMENT PRIMARY KEY, activity_id BIGINT NOT NULL, user_id BIGINT NOT NULL,
    KEY (activity_id, user_id))
"""
STOCK_READ = "SELECT stock, version FROM bench_stock WHERE activity_id = %s"
HELD_READ = "SELECT COUNT(*) FROM bench_coupon WHERE activity_id = %s AND user_id = %s"
COUPON_WRITE = "INSERT INTO bench_coupon (activity_id, user_id) VALUES (%s, %s)"


@dataclass(slots=True)
class Buyer:
    """One thread's means: the activity, a MariaDB connection and a Redis client of its own; retries are counted."""

    activity_id: int
    database: Any
    redis: Any
    retries: int = 0

    def row(self, statement: str, *values: int) -> tuple[int, ...]:
        """The one row that a query finds."""
        cursor = self.database.cursor()
        cursor.execute(statement, values)
        return cursor.fetchone()

    def write(self, statement: str, *values: int) -> int:
        """Run a statement of the open transaction; how many rows it changed."""
        cursor = self.database.cursor()
        return cursor.execute(statement, values)


def naive(buyer: Buyer, user_id: int) -> bool:
    """Read, check, write: what two read before one has written, both sell."""
    return _read_check_write(buyer, user_id)


def _read_check_write(buyer: Buyer, user_id: int, *, locking: str = "") -> bool:
    stock, _version = buyer.row(STOCK_READ + locking, buyer.activity_id)
    if stock <= 0 or buyer.row(HELD_READ, buyer.activity_id, user_id)[0]:
        buyer.database.rollback()
        return False
    time.sleep(WORK_S)
    buyer.write("UPDATE bench_stock SET stock = %s WHERE activity_id = %s", stock - 1, buyer.activity_id)
    buyer.write(COUPON_WRITE, buyer.activity_id, user_id)
    buyer.database.commit()
    return True


_LOCK = threading.Lock()


def in_process_lock(buyer: Buyer, user_id: int) -> bool:
    """S7, as ``synchronized`` on the JVM: another process has another lock."""
    with _LOCK:
        return _read_check_write(buyer, user_id)


def pessimistic(buyer: Buyer, user_id: int) -> bool:
    """S8, ``SELECT … FOR UPDATE``: everybody waits for the row, the losers too."""
    return _read_check_write(buyer, user_id, locking=" FOR UPDATE")


def cas(buyer: Buyer, user_id: int) -> bool:
    """S9, compare and set by a version column: whoever comes second does all of it again."""
    while True:
        stock, version = buyer.row(STOCK_READ, buyer.activity_id)
        # Read after the version: a coupon that comes later comes with another version.
        if stock <= 0 or buyer.row(HELD_READ, buyer.activity_id, user_id)[0]:
            buyer.database.rollback()
            return False
        time.sleep(WORK_S)
        changed = buyer.write(
            "UPDATE bench_stock SET stock = stock - 1, version = version + 1 WHERE activity_id = %s AND version = %s",
            buyer.activity_id,
            version,
        )
        if changed:
            buyer.write(COUPON_WRITE, buyer.activity_id, user_id)
            buyer.database.commit()
            return True
        buyer.database.rollback()
        buyer.retries += 1


def redis_lock(buyer: Buyer, user_id: int, *, lease_ms: int = LEASE_MS) -> bool:
    """S10: ``SET NX PX`` with an owner's token, released only by its owner."""
    from seize.store import Lease

    lease = Lease(f"bench:{buyer.activity_id}", lease_ms=lease_ms)
    while not lease.acquire():
        buyer.retries += 1
        time.sleep(random.uniform(*POLL_S))
    try:
        return _read_check_write(buyer, user_id)
    finally:
        lease.release()


def redis_lock_short(buyer: Buyer, user_id: int) -> bool:
    """S10 with an expiry that the critical section outlives: the next one comes in while the first still writes."""
    return redis_lock(buyer, user_id, lease_ms=LEASE_SHORT_MS)


def decr(buyer: Buyer, user_id: int) -> bool:
    """S11, ``DECR`` alone: right about the stock, and never asks who it was that pressed.

    A shopper who comes too late gives back what was taken below zero, or stock that staff add later would be eaten
    by that debt. A process that dies between the two commands has sold a coupon that nobody has.
    """
    if buyer.redis.decr(stock_key(buyer.activity_id)) < 0:
        buyer.redis.incr(stock_key(buyer.activity_id))
        return False
    buyer.redis.rpush(f"bench:winners:{buyer.activity_id}", user_id)
    return True


def lua(buyer: Buyer, user_id: int) -> bool:
    """S12, what this product does: check, decrement, record in one script; the same seq again is no second coupon."""
    from seize.outcomes import Won
    from seize.requests import SeizeRequest
    from seize.services import coupon_seize

    outcome = coupon_seize(wanted=SeizeRequest(activity_id=buyer.activity_id, seq=1), user_id=user_id)
    return isinstance(outcome, Won) and not outcome.replay


def stock_key(activity_id: int) -> str:
    """The string that ``decr`` counts down."""
    return f"coupon:stock:{activity_id}"


@dataclass(frozen=True, slots=True)
class Way:
    """How to sell, by how many processes, and how many sales a round: quick ones are over too soon for a figure."""

    sell: Callable[[Buyer, int], bool]
    processes: int = 2
    sales: int = 1


WAYS = {
    "lua": Way(lua, sales=5),
    "decr": Way(decr, sales=5),
    "redis_lock": Way(redis_lock),
    "redis_lock_short": Way(redis_lock_short),
    "cas": Way(cas),
    "pessimistic": Way(pessimistic),
    "in_process_lock": Way(in_process_lock, processes=1),
    "in_process_lock_2": Way(in_process_lock),
    "naive": Way(naive),
}


def tables_create(database: Any) -> None:
    """The two tables, which are none of the product's."""
    cursor = database.cursor()
    for statement in (STOCK_TABLE, COUPON_TABLE):
        cursor.execute(statement)


def tables_drop(database: Any) -> None:
    """Away with them, where they are."""
    database.cursor().execute("DROP TABLE IF EXISTS bench_stock, bench_coupon")


def stock_lay_out(*, activity_id: int, stock: int, database: Any, redis: Any) -> None:
    """Put the same stock of one activity where each way looks for it."""
    from seize import desk, store

    cursor = database.cursor()
    cursor.execute("INSERT INTO bench_stock (activity_id, stock, version) VALUES (%s, %s, 0)", (activity_id, stock))
    database.commit()
    redis.set(stock_key(activity_id), stock)
    now_ms = store.time_us() // 1000
    rules = desk.Rules(activity_id, "bench", 1, 1, "open", now_ms - 1000, now_ms + 3_600_000, 1, stock)
    desk.rebuild_begin(activity_id=activity_id, token="t", lease_ms=60_000)
    desk.rebuild_holders(activity_id=activity_id, token="t", lease_ms=60_000, reset=True)
    desk.rebuild_finish(rules=rules, token="t", claims=0)
