"""``manage.py shopper_tokens --count N [--start ID]``: access tokens for trying things out."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from seize.management.base import Command as BaseCommand
from seize.management.base import UsageError
from seize.requests import ID_MAX
from seize.tokens import access_token_issue

COUNT_MAX = 1_000_000


class Command(BaseCommand):
    help = "Print access tokens of shoppers, one a line (development only)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--count", type=int, required=True, help="how many tokens, 1 to 1,000,000")
        parser.add_argument("--start", type=int, default=1001, help="user id of the first; the others follow (1001)")
        parser.add_argument("--hours", type=int, default=24, help="how long they are valid, 1 to 720 (24)")

    def handle(self, *args: Any, **options: Any) -> None:
        count, start, hours = options["count"], options["start"], options["hours"]
        if not settings.DEVELOPMENT:
            raise UsageError("shopper_tokens works in development only; in production shoppers log in.")
        if not settings.JWT_SIGNING_KEY:
            raise UsageError("there is no JWT_PRIVATE_KEY to sign with.")
        if not 1 <= count <= COUNT_MAX:
            raise UsageError(f"--count must be 1 to {COUNT_MAX}, not {count}.")
        if not 1 <= start <= ID_MAX - count:
            raise UsageError(f"--start must be a user id from 1, not {start}.")
        if not 1 <= hours <= 720:
            raise UsageError(f"--hours must be 1 to 720, not {hours}.")
        for user_id in range(start, start + count):
            self.stdout.write(access_token_issue(user_id=user_id, lifetime_s=hours * 3600))
