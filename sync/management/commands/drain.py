"""``manage.py drain [--shard N]``: move waiting claims to the ledger now, without Celery."""

from typing import Any

import orjson
from django.conf import settings
from django.core.management.base import CommandParser

from seize.keys import SHARDS
from seize.management.base import Command as BaseCommand
from seize.management.base import UsageError
from sync.drain import queue_drain


class Command(BaseCommand):
    help = "Drain the queues into the ledger; one line of JSON a queue. Safe beside running workers."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--shard", type=int, help=f"only this queue, 0 to {SHARDS - 1}")

    def handle(self, *args: Any, **options: Any) -> None:
        shard = options["shard"]
        if shard is not None and not 0 <= shard < SHARDS:
            raise UsageError(f"--shard must be 0 to {SHARDS - 1}, not {shard}.")
        for number in range(SHARDS) if shard is None else [shard]:
            result = queue_drain(
                shard=number,
                batch_size=settings.SYNC_BATCH_SIZE,
                lease_ms=settings.SYNC_LEASE_MS,
                budget_s=float("inf"),
            )
            self.stdout.write(orjson.dumps(result.as_dict()).decode())
