"""``manage.py preheat``: hold Redis against the ledger now and mend what differs, without Celery."""

from typing import Any

import orjson

from seize.management.base import Command as BaseCommand
from sync.comparison import ledger_compare, preheat_all
from sync.rebuild import activity_rebuild


class Command(BaseCommand):
    help = "Preheat all activities, rebuild what is missing or different, declare the shards loaded. Safe to repeat."

    def handle(self, *args: Any, **options: Any) -> None:
        found = ledger_compare(rebuild=lambda activity_id: activity_rebuild(activity_id=activity_id))
        if found.rebuild:  # what was rebuilt just now may be declared loaded
            found.loaded += ledger_compare(rebuild=lambda activity_id: activity_rebuild(activity_id=activity_id)).loaded
        self.stdout.write(orjson.dumps({**preheat_all(), **found.as_dict()}).decode())
