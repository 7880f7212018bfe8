"""``manage.py dead_letters list|replay|discard``: look at claims that could not become coupons, and decide."""

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from activities.audit import Actor
from activities.contention import ContentionLost
from seize.management.base import Command as BaseCommand
from seize.management.base import UsageError
from sync.letters import LetterRefused, letter_discard, letter_replay
from sync.models import DeadLetter

LIST_MAX = 1000


class Command(BaseCommand):
    help = "List dead letters that wait for a decision, replay one, or discard one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=["list", "replay", "discard"])
        parser.add_argument("id", nargs="*", type=int, help="ids of the letters to decide")
        parser.add_argument("--reason", default="", help="why, for the record")
        parser.add_argument("--by", default="command line", help="who decides, for the record")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["what"] == "list":
            if options["id"]:
                raise UsageError("list takes no ids.")
            for letter in DeadLetter.objects.filter(state=DeadLetter.State.WAITING).order_by("id")[:LIST_MAX]:
                since = letter.created_at.isoformat(timespec="seconds")
                self.stdout.write(f"{letter.pk}\t{since}\t{letter.reason}\t{letter.field}\t{letter.value}")
            return
        if not options["id"] or not options["reason"].strip():
            raise UsageError(f"{options['what']} needs the ids of letters and --reason.")
        decide = letter_replay if options["what"] == "replay" else letter_discard
        for letter_id in options["id"]:
            try:
                decide(letter_id=letter_id, reason=options["reason"], by=Actor(options["by"]), now=timezone.now())
            except (LetterRefused, ContentionLost) as refused:
                raise UsageError(f"letter {letter_id}: {refused}") from refused
            self.stdout.write(f"letter {letter_id}: {options['what']} done")
