"""``manage.py rebuild [--activity ID]``: make activities in Redis anew from the ledger now, without Celery."""

import sys
import time
from typing import Any

import orjson
from django.core.management.base import CommandParser

from activities.models import Activity
from seize.management.base import Command as BaseCommand
from seize.management.base import UsageError
from sync.rebuild import activity_rebuild


class Command(BaseCommand):
    help = "Rebuild one activity, or all that are watched; one line of JSON each. Safe to repeat and to interrupt."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--activity", type=int, help="only this activity's id")

    def handle(self, *args: Any, **options: Any) -> None:
        watched = Activity.objects.watched().order_by("id")
        if options["activity"] is not None:
            watched = watched.filter(pk=options["activity"])
            if not watched:
                raise UsageError(f"there is no published, unsettled activity {options['activity']}.")
        for activity in watched:
            began = time.monotonic()
            result = activity_rebuild(activity_id=activity.pk, progress=self._progress if sys.stderr.isatty() else None)
            seconds = round(time.monotonic() - began, 3)
            self.stdout.write(orjson.dumps({"activity": activity.pk, **result, "seconds": seconds}).decode())

    def _progress(self, step: str, done: int, total: int) -> None:
        """A bar on the terminal; ``total`` 0 = not known."""
        bar = "#" * (30 * done // total) if total else ""
        self.stderr.write(f"\r{step:<10} {done:>9} [{bar:<30}]", ending="\n" if total and done >= total else "")
