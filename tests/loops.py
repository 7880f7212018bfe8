"""Coroutines of tests. The browser's tests leave an event loop behind in the thread in which all tests run."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from services import PATIENCE_S


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, while the loop goes on.

    :raises TimeoutError: when it does not in ``PATIENCE_S``.
    """
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - a condition is no event
            await asyncio.sleep(0.005)


def loop_run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """``asyncio.run`` in a thread of its own."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()
