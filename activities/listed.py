"""A list of shoppers as a file: read line by line, looked at, kept until it is confirmed, and given out again.

Between the look and the confirmation the ids lie in the cache as 8 bytes each, where every web process finds them: the
page takes only a random name with it. They are kept for whom, and for what, they were looked at.
"""

import csv
import io
import secrets
from array import array
from collections.abc import Container
from dataclasses import dataclass
from itertools import islice

from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from activities.models import LISTED_MAX, Listed
from activities.text import spreadsheet_read
from seize.requests import id_parse

FILE_MAX_BYTES = 3_000_000  # the longest list has 2.3 MB, each id in quotation marks
ENCODING = "utf-8-sig"  # with or without a byte order mark
HEADINGS = ("user_id", "用户 id", "用户id")
KEPT_S = 3600


@dataclass(frozen=True, slots=True)
class Mistake:
    """A line of a file, what is there, and what is wrong with it."""

    line: int
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class ListedFile:
    """The shoppers of a file, each once and in its order, and the lines that are none."""

    user_ids: list[int]
    mistakes: list[Mistake]

    @property
    def rows(self) -> int:
        return len(self.user_ids) + len(self.mistakes)


def listed_file_read(content: bytes, *, others: Container[int] = ()) -> ListedFile:
    """Read a CSV of one column of ids, with or without a heading.

    :param others: who is on the other list, and so may not be on this one.
    :raises ValidationError: too large, no UTF-8, no CSV, nobody in it, or too many.
    """
    lines = _lines_read(content)
    if not lines:
        raise ValidationError(_("There is nobody in the file."))
    if len(lines) > LISTED_MAX:
        raise ValidationError(
            _("There are more rows than a list takes: at most %(max)s shoppers.") % {"max": LISTED_MAX}
        )
    first_at: dict[int, int] = {}
    mistakes: list[Mistake] = []
    for line, cells in lines:
        user_id = id_parse(spreadsheet_read(cells[0]).strip())
        if len(cells) > 1:
            why = _("More than one column.")
        elif user_id is None:
            why = _("No id: a whole number from 1 to 2^63-1.")
        elif user_id in first_at:
            why = _("Twice in the file, first in line %(line)s.") % {"line": first_at[user_id]}
        elif user_id in others:
            why = _("On the other list.")
        else:
            first_at[user_id] = line
            continue
        mistakes.append(Mistake(line, ", ".join(cells)[:40], why))
    return ListedFile(list(first_at), mistakes)


def _lines_read(content: bytes) -> list[tuple[int, list[str]]]:
    """The number of each line that is not empty, and its cells that are not; without the heading."""
    if len(content) > FILE_MAX_BYTES:
        raise ValidationError(_("The file is larger than 3 MB, more than any list of shoppers."))
    try:
        text = content.decode(ENCODING)
    except UnicodeDecodeError as error:
        raise ValidationError(_("The file is not UTF-8: save it as “CSV UTF-8”.")) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        every = ((reader.line_num, cells) for row in reader if (cells := [cell for cell in row if cell.strip()]))
        lines = list(islice(every, LISTED_MAX + 2))  # the heading, and one too many
    except csv.Error as error:
        raise ValidationError(_("The file is no CSV: %(error)s.") % {"error": error}) from error
    has_heading = lines and lines[0][1][0].strip().lower() in HEADINGS
    return lines[1:] if has_heading else lines


@dataclass(frozen=True, slots=True)
class Look:
    """What a file would make of a list, before anything is stored: ``now`` on it, ``added`` to it, ``removed``."""

    file: ListedFile
    now: int
    added: int
    removed: int


def listed_look(*, activity_id: int, verdict: Listed.Verdict, content: bytes) -> Look:
    """Read a file and hold it against both lists of the activity.

    :raises ValidationError: as :func:`listed_file_read`.
    """
    there: dict[str, set[int]] = {value: set() for value in Listed.Verdict.values}
    rows = Listed.objects.filter(activity_id=activity_id).values_list("user_id", "verdict")
    for user_id, found in rows.iterator(chunk_size=10_000):
        there[found].add(user_id)
    [other] = set(Listed.Verdict.values) - {verdict.value}
    file = listed_file_read(content, others=there[other])
    kept = len(there[verdict].intersection(file.user_ids))
    now = len(there[verdict])
    return Look(file, now=now, added=len(file.user_ids) - kept, removed=now - kept)


# -- Between the look and the confirmation -----------------------------------------------------------------


class UploadLost(Exception):
    """What was looked at is not kept any more, or was looked at by somebody else or for another list."""


@dataclass(frozen=True, slots=True)
class Purpose:
    """Who looked at a file, and for which list."""

    activity_id: int
    verdict: Listed.Verdict
    person_id: int

    def key(self, token: str) -> str:
        """Its name in the cache: a token opens nothing for anybody else, nor for another list."""
        return f"listed:{self.activity_id}:{self.verdict.value}:{self.person_id}:{token}"


def upload_keep(purpose: Purpose, *, user_ids: list[int], version: int) -> str:
    """Keep ids for an hour, with the activity's version that they were looked at with; the token that finds them.

    :raises UploadLost: the cache is away.
    """
    token = secrets.token_hex(16)
    key = purpose.key(token)
    cache.set(key, (version, array("q", user_ids).tobytes()), timeout=KEPT_S)
    if key not in cache:
        raise UploadLost
    return token


def upload_find(purpose: Purpose, *, token: str) -> tuple[int, list[int]]:
    """The version and the ids.

    :raises UploadLost: confirmed already, too old, another's, or the cache is away.
    """
    kept: tuple[int, bytes] | None = cache.get(purpose.key(token[:64]))
    if kept is None:
        raise UploadLost
    ids = array("q")
    ids.frombytes(kept[1])
    return kept[0], ids.tolist()


def upload_forget(purpose: Purpose, *, token: str) -> None:
    """What is confirmed is not confirmed again."""
    cache.delete(purpose.key(token[:64]))
