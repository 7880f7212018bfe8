"""``manage.py reconcile [--activity ID] [--json]``: hold Redis against the ledger now, and name what differs."""

from typing import Any

import orjson
from django.core.management.base import CommandParser
from django.utils import timezone

from seize.management.base import Command as BaseCommand
from sync.management.selection import activities_selected, activity_option
from sync.models import Reconciliation
from sync.reconcile import activity_reconcile


class Command(BaseCommand):
    help = "Reconcile one activity, or all that are watched; exit code 1 when anything differs. Safe beside a sale."

    def add_arguments(self, parser: CommandParser) -> None:
        activity_option(parser)
        parser.add_argument("--json", action="store_true", help="one line of JSON an activity")

    def handle(self, *args: Any, **options: Any) -> None:
        differing = 0
        for activity in activities_selected(options["activity"]):
            result = activity_reconcile(activity_id=activity.pk, now=timezone.now(), names=True)
            differing += result.state == Reconciliation.State.DIFFERS
            self._write(result, as_json=options["json"])
        if differing:
            raise SystemExit(1)

    def _write(self, result: Reconciliation, *, as_json: bool) -> None:
        not_held, held_only = (result.differences.get(kind, []) for kind in ("not_held", "held_only"))
        if as_json:
            body = {
                "activity": result.activity_id,
                "state": result.state.lower(),
                "claims": result.claims,
                "sold_first": result.sold_first,
                "sold_last": result.sold_last,
                "not_held": not_held,
                "held_only": held_only,
            }
            self.stdout.write(orjson.dumps(body).decode())
            return
        sold = f"{result.sold_first} to {result.sold_last}"
        self.stdout.write(f"activity {result.activity_id}: {result.state.lower()}, {result.claims} claims, {sold} sold")
        for kind, pairs in (("claimed but not held", not_held), ("held but claimed nowhere", held_only)):
            for user_id, seq in pairs:
                self.stdout.write(f"  {kind}: shopper {user_id}, seq {seq}")
