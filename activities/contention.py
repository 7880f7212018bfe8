"""Try again what lost a race for a lock; say so when it keeps losing."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import OperationalError, connection

TRIES = 4
LOCK_WAIT_TIMEOUT, DEADLOCK = 1205, 1213  # MySQL and MariaDB

P = ParamSpec("P")
R = TypeVar("R")


class ContentionLost(Exception):
    """The row stayed locked by somebody else through every try; nothing was changed, try again later."""


def is_contention(error: OperationalError) -> bool:
    """Whether an error is a lock that was not granted, and trying again makes sense."""
    return bool(error.args) and error.args[0] in (LOCK_WAIT_TIMEOUT, DEADLOCK, "database is locked")


def contention_retried(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function that opens its own transaction again when it lost a lock or a deadlock.

    Inside somebody else's transaction it runs once: only who opened the transaction may repeat it.

    :raises ContentionLost: after the last try.
    """

    @functools.wraps(function)
    def tried(*args: P.args, **kwargs: P.kwargs) -> R:
        if connection.in_atomic_block:
            return function(*args, **kwargs)
        for _try in range(TRIES):
            try:
                return function(*args, **kwargs)
            except OperationalError as error:
                if not is_contention(error):
                    raise
                last = error
        raise ContentionLost(str(last)) from last

    return tried
