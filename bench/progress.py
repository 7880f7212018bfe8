"""How far the benchmark is: a bar on a terminal, one line a step elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Reporter:
    """What all sections have in common: the rows that were left out, by ``section row``, with the reason."""

    def __init__(self) -> None:
        self.section = ""
        self.left_out: dict[str, str] = {}

    def begin(self, section: str) -> None:
        """A section begins."""
        self.section = section

    def end(self) -> None:
        """It ended."""

    def expect(self, steps: int) -> None:
        """So many steps are to come in this section."""

    def step(self, what: str) -> None:
        """The next step begins."""

    def leave_out(self, what: str, why: str) -> None:
        """A row cannot be measured here; it is named at the end, with the reason."""
        name = self.section if what == self.section else f"{self.section} {what}"
        self.left_out[name] = why


class Lines(Reporter):
    """For pipes and log files."""

    def begin(self, section: str) -> None:
        super().begin(section)
        self.began, self.done, self.steps = time.monotonic(), 0, 0

    def expect(self, steps: int) -> None:
        self.steps += steps

    def step(self, what: str) -> None:
        self.done += 1
        what = what.removeprefix(f"{self.section} ")
        of = f"/{self.steps}" if self.steps else ""
        print(f"{self.section} {self.done}{of}: {what} ({time.monotonic() - self.began:.0f} s)", flush=True)


class Bar(Reporter):
    """For a terminal: one bar per section, which stays when the section has ended."""

    def __init__(self, bars: Progress) -> None:
        super().__init__()
        self.bars = bars
        self.task = TaskID(0)
        self.steps = self.done = 0

    def begin(self, section: str) -> None:
        super().begin(section)
        self.steps = self.done = 0
        self.task = self.bars.add_task(f"{section:<10}", total=None, what="getting ready")

    def expect(self, steps: int) -> None:
        self.steps += steps
        self.bars.update(self.task, total=self.steps)

    def step(self, what: str) -> None:
        # The step that ended counts; the one that begins does not yet.
        self.bars.update(self.task, completed=self.done, what=what.removeprefix(f"{self.section} "))
        self.done += 1

    def end(self) -> None:
        total = self.steps or self.done or 1
        self.bars.update(self.task, total=total, completed=total, what="")


@contextmanager
def reporter() -> Iterator[Reporter]:
    """A bar when standard output is a terminal, else lines."""
    if not sys.stdout.isatty():
        yield Lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console()) as bars:
        yield Bar(bars)
