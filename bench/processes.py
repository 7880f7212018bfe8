"""CPU that processes have used, from /proc: a tree with its children, and its threads."""

import os
from pathlib import Path

from bench import stage  # noqa: F401 - makes script/lib importable
from services import descendants

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def tree_cpu_s(root: int) -> float:
    """Seconds of user and system time of a process, its descendants, and those of them that have ended."""
    ticks = 0
    for pid in descendants(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile; its parent has counted it
        ticks += sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return ticks * TICK_S
