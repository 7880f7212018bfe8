"""``manage.py api_key --name N --scopes redeem,read``: make a key for a service; ``--list``, ``--revoke NAME``."""

from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from activities.api_keys import ApiKeyRefused, api_key_make, api_key_revoke
from activities.audit import COMMAND_LINE
from activities.models import ApiKey
from seize.management.base import Command as BaseCommand
from seize.management.base import UsageError


class Command(BaseCommand):
    help = "Make an API key and print it, this once; or list keys; or revoke one."

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--name", help="make a key of this name: which service it is for")
        what.add_argument("--list", action="store_true", help="print name, state, scopes, last use of each key")
        what.add_argument("--revoke", metavar="NAME", help="refuse this key from now on")
        parser.add_argument("--scopes", help=f"with --name: one or more of {','.join(ApiKey.SCOPES)}")

    def handle(self, *args: Any, **options: Any) -> None:
        name, revoked, scopes = options["name"], options["revoke"], options["scopes"]
        if (name is None) != (scopes is None):
            raise UsageError("--name and --scopes go together.")
        if options["list"]:
            for key in ApiKey.objects.order_by("name"):
                state = "good" if key.revoked_at is None else "revoked"
                used = "never used" if key.last_used_at is None else key.last_used_at.isoformat(timespec="seconds")
                self.stdout.write(f"{key.name}\t{state}\t{','.join(key.scopes)}\t{used}")
            return
        try:
            if revoked is not None:
                found = ApiKey.objects.filter(name=revoked).first()
                if found is None:
                    raise UsageError(f"there is no key named {revoked!r}.")
                api_key_revoke(key_id=found.pk, by=COMMAND_LINE, now=timezone.now())
                self.stdout.write(f"revoked {revoked}")
                return
            _key, text = api_key_make(name=name, scopes=scopes.split(","), by=COMMAND_LINE, now=timezone.now())
        except ApiKeyRefused as refused:
            raise UsageError(str(refused)) from refused
        self.stdout.write(text)
