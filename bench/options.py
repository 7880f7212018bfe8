"""What every section of the benchmark is asked for."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Options:
    """``quick`` = shorter runs, for a look; ``rounds`` of all contenders in turn; ``only`` one contender or row."""

    quick: bool = False
    rounds: int = 3
    only: str | None = None

    def wants(self, name: str) -> bool:
        """Whether a contender or row is to be measured."""
        return self.only is None or self.only == name


class Progress(Protocol):
    """Where a section says what it is doing: a bar on a terminal, lines elsewhere."""

    def expect(self, steps: int) -> None:
        """So many steps are to come in this section."""

    def step(self, what: str) -> None:
        """The next step begins."""

    def leave_out(self, what: str, why: str) -> None:
        """A row cannot be measured here; it is named at the end, with the reason."""
