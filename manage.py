#!/usr/bin/env python3
"""Django's command-line entry. In a second terminal it finds the embedded servers of script/server by itself."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")
    try:
        from django.core.management import execute_from_command_line
    except ImportError:
        print("Django is missing here: run script/setup, then .venv/bin/python manage.py …", file=sys.stderr)
        raise SystemExit(2) from None
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
