"""``manage.py access ID``: who may seize an activity's coupons, and how fast; ``--set``, ``--allow``, ``--deny``."""

from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandParser
from django.db import transaction

from activities.access import activity_access_change, activity_listed_replace
from activities.admission import desk_now
from activities.audit import COMMAND_LINE
from activities.contention import ContentionLost
from activities.listed import listed_file_read
from activities.models import ACCESS_FIELDS, Activity, Listed
from activities.workflow import ActivityRefused
from seize.management.base import Command as BaseCommand
from seize.management.base import UsageError
from seize.requests import id_parse


class Command(BaseCommand):
    help = "Print an activity's access; set any of it, and replace the list of those let in or kept out by a file."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="the activity's id")
        parser.add_argument(
            "--set",
            nargs="+",
            action="extend",
            default=[],
            metavar="NAME=VALUE",
            help=f"an empty value takes a limit away; names: {', '.join(ACCESS_FIELDS)}",
        )
        parser.add_argument("--allow", metavar="FILE", help="a CSV of those let in; it replaces the list")
        parser.add_argument("--deny", metavar="FILE", help="a CSV of those kept out; it replaces the list")

    def handle(self, *args: Any, **options: Any) -> None:
        activity_id = id_parse(options["id"])
        if activity_id is None:
            raise UsageError(f"{options['id']!r} is no activity's id.")
        values = _values(options["set"])
        files = {Listed.Verdict.ALLOW: options["allow"], Listed.Verdict.DENY: options["deny"]}
        lists = {verdict: _file_read(name) for verdict, name in files.items() if name is not None}
        try:
            with transaction.atomic():  # all of it or none
                named: dict[str, Any] = {"activity_id": activity_id, "now": desk_now(), "by": COMMAND_LINE}
                if values:
                    activity_access_change(values=values, **named)
                for verdict, user_ids in lists.items():
                    activity_listed_replace(verdict=verdict, user_ids=user_ids, **named)
                self._print(Activity.objects.get(pk=activity_id))
        except Activity.DoesNotExist as error:
            raise UsageError(f"there is no activity {activity_id}.") from error
        except (ActivityRefused, ContentionLost) as refused:
            raise UsageError(str(refused)) from refused

    def _print(self, activity: Activity) -> None:
        for name in ACCESS_FIELDS:
            value = getattr(activity, name)
            self.stdout.write(f"{name}\t{'' if value is None else value}")
        for verdict, name in ((Listed.Verdict.ALLOW, "let_in"), (Listed.Verdict.DENY, "kept_out")):
            self.stdout.write(f"{name}\t{Listed.objects.filter(activity=activity, verdict=verdict).count()}")


def _values(pairs: list[str]) -> dict[str, Any]:
    """What ``--set`` says, as the columns have it."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, is_given, text = pair.partition("=")
        if not is_given or name not in ACCESS_FIELDS:
            raise UsageError(f"--set takes NAME=VALUE with one of {', '.join(ACCESS_FIELDS)}, not {pair!r}.")
        if name in values:
            raise UsageError(f"--set has {name} twice.")
        values[name] = _value(name, text.strip())
    return values


def _value(name: str, text: str) -> Any:
    column: Any = Activity._meta.get_field(name)
    if not text and column.null:
        return None
    if column.choices:
        text = text.upper()
    elif column.get_internal_type() == "BooleanField":
        text = {"yes": "True", "no": "False"}.get(text.lower(), text.capitalize())
    try:
        return column.clean(text, None)
    except ValidationError as error:
        raise UsageError(f"{name}: {' '.join(error.messages)}") from error


def _file_read(name: str) -> list[int]:
    try:
        read = listed_file_read(Path(name).read_bytes())
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}.") from error
    except ValidationError as error:
        raise UsageError(f"{name}: {' '.join(error.messages)}") from error
    if read.mistakes:
        first = read.mistakes[0]
        more = f" ({len(read.mistakes)} such lines)" if len(read.mistakes) > 1 else ""
        raise UsageError(f"{name}, line {first.line}: {first.text!r}: {first.why}{more}")
    return read.user_ids
