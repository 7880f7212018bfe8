"""Settings that a hot path reads once, since they never change in a process; after a test changed them, once more."""

import functools
from collections.abc import Callable
from typing import TypeVar

from django.core.signals import setting_changed

T = TypeVar("T")


def settings_cached(read: Callable[[], T]) -> "functools._lru_cache_wrapper[T]":
    """Call ``read`` once, and again after settings were overridden."""
    cached = functools.cache(read)
    setting_changed.connect(lambda **_change: cached.cache_clear(), weak=False)
    return cached
