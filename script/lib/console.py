"""What the scripts say: one line a step, one line a fault."""

from __future__ import annotations

import sys
from typing import NoReturn


def say(text: str) -> None:
    """Print one line at once, even when standard output is a pipe."""
    print(text, flush=True)


def step(text: str) -> None:
    """Announce work that takes a moment."""
    say(f"==> {text}")


def fail(text: str) -> NoReturn:
    """End the script with one line that says what is missing and how to get it; exit code 2."""
    print(f"error: {text}", file=sys.stderr, flush=True)
    raise SystemExit(2)
