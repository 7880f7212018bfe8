"""``manage.py rebuild [--activity ID]``: make activities in Redis anew from the ledger now, without Celery."""

import sys
import time
from typing import Any

import orjson
from django.core.management.base import CommandParser

from seize.management.base import Command as BaseCommand
from sync.management.selection import activities_selected, activity_option
from sync.rebuild import activity_rebuild


class Command(BaseCommand):
    help = "Rebuild one activity, or all that are watched; one line of JSON each. Safe to repeat and to interrupt."

    def add_arguments(self, parser: CommandParser) -> None:
        activity_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        for activity in activities_selected(options["activity"]):
            began = time.monotonic()
            result = activity_rebuild(activity_id=activity.pk, progress=self._progress if sys.stderr.isatty() else None)
            seconds = round(time.monotonic() - began, 3)
            self.stdout.write(orjson.dumps({"activity": activity.pk, **result, "seconds": seconds}).decode())

    def _progress(self, step: str, done: int, total: int) -> None:
        """A bar on the terminal; ``total`` 0 = not known."""
        bar = "#" * (30 * done // total) if total else ""
        self.stderr.write(f"\r{step:<10} {done:>9} [{bar:<30}]", ending="\n" if total and done >= total else "")
