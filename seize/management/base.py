"""What every command of this project does alike: wrong use is one line on standard error and exit code 2."""

import sys
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser

from seize.store import OutcomeUnknown, StoreUnavailable


class UsageError(CommandError):
    """Wrong arguments, or a state in which the command makes no sense; nothing was changed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, returncode=2)


class _OneLineParser(CommandParser):
    def error(self, message: str) -> NoReturn:
        if self.called_from_command_line:
            print(f"error: {message} (see --help)", file=sys.stderr)  # noqa: T201 - a command speaks to a terminal
            raise SystemExit(2)
        raise UsageError(message)


class Command(BaseCommand):
    """Base of the project's commands."""

    requires_system_checks = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        plain = super().create_parser(prog_name, subcommand, **kwargs)
        plain.__class__ = _OneLineParser
        return plain

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except (StoreUnavailable, OutcomeUnknown) as fault:
            raise UsageError(f"Redis: {fault}") from fault
