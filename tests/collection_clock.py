"""Which modules read a clock while they are imported: ``python -m tests.collection_clock ROOT FOLDER`` names each read.

What is read then is minutes old when a slow machine comes to the test that uses it.
"""

import datetime
import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "clock_gettime", "ctime",
          "strftime"}  # fmt: skip
DATE_CLOCKS = {"now", "utcnow", "today"}


def is_clock(function: object) -> bool:
    """Whether this built-in function reads a clock, by whatever name it was imported."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(owner, type):
        return issubclass(owner, datetime.date) and name in DATE_CLOCKS
    return owner is time and name in CLOCKS


def reader_of(frame: FrameType | None, folder: str) -> str | None:
    """Where in the folder this call comes from; None when it comes from what a module of it imports."""
    while frame is not None and "importlib" not in frame.f_code.co_filename:
        if frame.f_code.co_filename.startswith(folder):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def clock_reads(root: Path, folder: Path) -> Iterator[str]:
    """Import every module of a folder below ``root``, from which their names count; yield each place that reads."""
    found: list[str] = []
    prefix = f"{folder}{os.sep}"

    def look(frame: FrameType, event: str, function: object) -> None:
        if event == "c_call" and is_clock(function) and (place := reader_of(frame, prefix)):
            found.append(place)

    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        sys.setprofile(look)
        try:
            importlib.import_module(name)
        finally:
            sys.setprofile(None)
    yield from dict.fromkeys(found)


if __name__ == "__main__":
    import django

    django.setup()
    places = list(clock_reads(*(Path(argument).resolve() for argument in sys.argv[1:])))
    sys.stdout.write("".join(f"{place}\n" for place in places))
    sys.exit(bool(places))
