"""What the scripts say: one line a step, one line a fault."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

EVERY_S = 10


def say(text: str) -> None:
    """Print one line at once, even when standard output is a pipe."""
    print(text, flush=True)


def step(text: str) -> None:
    """Announce work that takes a moment."""
    say(f"==> {text}")


def duration(seconds: float) -> str:
    """A time that went by, for people: ``40 s``, ``3 min 20 s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def moving(what: Callable[[], str]) -> Iterator[None]:
    """While the block works, say every ten seconds what it is at, and how much time has gone by."""
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(EVERY_S):
            say(f"    … {what()} ({duration(time.monotonic() - began)})")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def working(text: str) -> Iterator[None]:
    """Announce a step, and say every ten seconds that it goes on."""
    step(text)
    with moving(lambda: text[0].lower() + text[1:]):
        yield


def fail(text: str) -> NoReturn:
    """End the script with one line that says what is missing and how to get it; exit code 2."""
    print(f"error: {text}", file=sys.stderr, flush=True)
    raise SystemExit(2)
