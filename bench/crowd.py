"""A crowd that presses from several processes with several threads each, every shopper twice at about the same time."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

THREADS = 4  # of each of the two halves of the crowd: more would wait for the cores, not for each other
READY_SECONDS = 60
SALE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Sale:
    """What a process is to do: press for ``shoppers`` 1 to N in the ``way``, for each of its ``halves`` once."""

    way: str
    activity_id: int
    shoppers: int
    halves: int


@dataclass(slots=True)
class Pressed:
    """What came of it: who won (a shopper twice when twice), and when, by the clock that processes share."""

    winners: list[int] = field(default_factory=list)
    retries: int = 0
    began_s: float = 0.0
    ended_s: float = 0.0
    fault: str = ""


class Crowd:
    """Two processes that wait to be told of a sale."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.together = context.Barrier(2)
        self.pipes: list[Connection] = []
        self.processes = []
        for _number in range(2):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, self.together), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def press(self, way: str, *, activity_id: int, shoppers: int, processes: int) -> list[Pressed]:
        """Hold one sale: the crowd's two halves in two processes, or both in one.

        :raises RuntimeError: a press failed, or a process did not answer in time.
        """
        sale = Sale(way, activity_id, shoppers, halves=2 // processes)
        pipes = self.pipes[:processes]
        for pipe in pipes:
            pipe.send((sale, processes))
        deadline = time.monotonic() + SALE_SECONDS
        done: list[Pressed] = []
        for pipe in pipes:
            if not pipe.poll(max(deadline - time.monotonic(), 0)):
                raise RuntimeError(f"{way}: not done within {SALE_SECONDS} s")
            done.append(pipe.recv())
        for pressed in done:
            if pressed.fault:
                raise RuntimeError(f"{way}: {pressed.fault}")
        return done

    def stop(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join(10)


@contextmanager
def crowd() -> Iterator[Crowd]:
    """A crowd that is gone afterwards."""
    made = Crowd()
    try:
        yield made
    finally:
        made.stop()


def _serve(told: Connection, together: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the section, which stops us
    import django

    django.setup()
    while True:
        try:
            sale, processes = told.recv()
        except EOFError:
            return
        told.send(sell(sale, wait=together.wait if processes > 1 else None))


def database_connect() -> Any:
    """A plain connection to the section's MariaDB: the framework's cost is no part of what is compared.

    Each statement sees what is committed; transactions begin by themselves and end by commit or rollback.
    """
    import MySQLdb
    from django.conf import settings

    where = settings.DATABASES["default"]
    connection = MySQLdb.connect(host=where["HOST"], port=int(where["PORT"]), user=where["USER"], db=where["NAME"])
    connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection


def sell(sale: Sale, *, wait: Any = None) -> Pressed:
    """Let this process's threads press; ``wait`` returns when the other process is ready too."""
    from bench.ways import WAYS, Buyer
    from seize import store

    press = WAYS[sale.way].sell
    buyers = [Buyer(sale.activity_id, database_connect(), store.client()) for _ in range(THREADS * sale.halves)]
    pressed = Pressed()
    faults: list[BaseException] = []
    begin = threading.Barrier(len(buyers) + 1)

    def run(number: int, buyer: Buyer) -> None:
        shoppers = range(1 + number % THREADS, sale.shoppers + 1, THREADS)
        try:
            begin.wait(READY_SECONDS)
            pressed.winners.extend([user_id for user_id in shoppers if press(buyer, user_id)])
        except Exception as fault:  # noqa: BLE001 - told to the section by ``fault`` below
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(n, buyer), daemon=True) for n, buyer in enumerate(buyers)]
    for thread in threads:
        thread.start()
    store.client().ping()
    if wait is not None:
        wait(READY_SECONDS)
    pressed.began_s = time.monotonic()
    begin.wait(READY_SECONDS)
    for thread in threads:
        thread.join()
    pressed.ended_s = time.monotonic()
    for buyer in buyers:
        pressed.retries += buyer.retries
        buyer.database.close()
    if faults:
        pressed.fault = f"pid {os.getpid()}: {type(faults[0]).__name__}: {faults[0]}"
    return pressed
