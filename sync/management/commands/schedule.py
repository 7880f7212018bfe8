"""``manage.py schedule``: create the default beat entries that are missing."""

from typing import Any

from seize.management.base import Command as BaseCommand
from sync.schedule import schedule_create


class Command(BaseCommand):
    help = "Create missing beat entries; entries that are there stay as staff left them."

    def handle(self, *args: Any, **options: Any) -> None:
        created = schedule_create()
        if options["verbosity"] > 0:
            self.stdout.write(f"created: {', '.join(created)}" if created else "nothing to create")
