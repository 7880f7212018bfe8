"""What becomes of a wish before the desk sees it: how fast its shopper asks, and whether a challenge was solved.

The same for the view and for every faster front.
"""

from dataclasses import dataclass, replace

from seize import challenge
from seize.limits import press_pace
from seize.outcomes import Pace, Refusal, Refused
from seize.requests import SeizeRequest
from seize.store import Shopper


@dataclass(frozen=True, slots=True)
class Asking:
    """A wish as it is put to the desk. ``pace``: its shopper asks too fast, and is only told of what is won already."""

    shopper: Shopper
    pace: Pace | None

    @property
    def is_in_vain(self) -> bool:
        """Whether there is nothing to put to the desk: too fast, and no win is asked after."""
        return self.pace is not None and self.shopper[1] == 0

    def told(self, refused: Refused) -> Refused:
        """The refusal with the limit that this process knows of."""
        if self.pace is not None and refused.refusal is Refusal.TOO_MANY_REQUESTS:
            return replace(refused, pace=self.pace)
        return refused


def asking_of(*, wanted: SeizeRequest, user_id: int, address: str) -> Asking:
    """Count the wish with the limits, and look at what solves its challenge.

    Who asks too fast with a seq goes on to the desk all the same, which then claims nothing: a winner who lost the
    answer must be told whatever happens around.
    """
    pace = press_pace(user_id=user_id, address=address)
    if pace is not None:
        return Asking((user_id, -wanted.seq), pace)
    proof = challenge.solution_check(wanted.altcha, activity_id=wanted.activity_id, user_id=user_id)
    return Asking((user_id, wanted.seq, proof), None)
