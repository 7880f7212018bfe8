"""Gray release: to whom an activity is open, and what everybody else sees of it.

``seize.lua`` judges whoever presses; this is the same judgement for lists and pages, from what they are read of.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SHARES = 10_000


@dataclass(frozen=True, slots=True)
class Release:
    """To whom an activity is open: ``percent`` of shoppers or ``is_for_staff``, and by name where it ``has_lists``.

    ``is_announced``: those to whom it is not open see it as coming soon.
    """

    uid: str
    percent: int
    is_for_staff: bool
    has_lists: bool
    is_announced: bool

    @property
    def is_for_everybody(self) -> bool:
        """Whether somebody who has not logged in sees it as it is."""
        return self.percent == 100 and not self.is_for_staff

    def is_open_to(self, user_id: int, *, verdict: str | None, is_staff: bool) -> bool:
        """Whether a shopper may seize, as far as this goes.

        :param verdict: what the lists say: 'allow', 'deny' or None.
        """
        if verdict == "deny":
            return False
        if self.is_for_staff:
            return is_staff
        return verdict == "allow" or share_of(uid=self.uid, user_id=user_id) < self.percent * SHARES // 100


def share_of(*, uid: str, user_id: int) -> int:
    """Where a shopper stands among ``SHARES``, another place for each activity; the same in ``seize.lua``."""
    digest = hashlib.sha1(f"{uid}:{user_id}".encode(), usedforsecurity=False).hexdigest()
    return int(digest[:8], 16) % SHARES


def release_read(element: Mapping[str, Any]) -> Release | None:
    """What :func:`activities.admission.release_element` wrote; None as well for a list from before there was any."""
    given = element.get("release")
    return None if given is None else Release(**given)
