"""Private servers below var/bench for a measurement, and Django pointed at them."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A file that is started by its path puts this folder in front, and bench/http.py would hide Python's own http.
sys.path[:] = [folder for folder in sys.path if Path(folder or ".").resolve() != ROOT / "bench"]
sys.path[:0] = [str(ROOT), str(ROOT / "script" / "lib")]

from project import VAR  # noqa: E402 - found by the line above
from services import MariaDB, Valkey, pidfile_kill, valkey_binary  # noqa: E402 - so is this

FOLDER = VAR / "bench"


@contextmanager
def servers(*, fsync: str = "always", database: bool = True, migrate: bool = True) -> Iterator[Valkey]:
    """An empty Valkey and, where asked, a MariaDB, migrated or empty; Django is set up on both. Stopped at the end."""
    shutil.rmtree(FOLDER / f"valkey-{fsync}", ignore_errors=True)
    valkey = Valkey(FOLDER / f"valkey-{fsync}", binary=valkey_binary(), fsync=fsync)
    mariadb = MariaDB(FOLDER / "mariadb")
    valkey.start()
    try:
        os.environ |= {"REDIS_URL": valkey.url, "ENV_FILE": os.devnull, "LOG_LEVEL": "WARNING"}
        if database:
            mariadb.find()
            mariadb.start()
            os.environ["DATABASE_URL"] = mariadb.url
            database_create(mariadb.port)
        _django(migrate=database and migrate)
        yield valkey
    finally:
        valkey.stop(kill=True)
        mariadb.stop()


def folder_clear(name: str) -> Path:
    """A server's folder below var/bench, empty; one that a run left behind is stopped."""
    folder = FOLDER / name
    pidfile_kill(folder / "server.pid")
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def database_create(port: int) -> None:
    """The empty database that ``MariaDB.url`` names."""
    import MySQLdb

    raw = MySQLdb.connect(host="127.0.0.1", port=port, user="root")
    raw.query("CREATE DATABASE coupons")
    raw.close()


def _django(*, migrate: bool) -> None:
    import django
    from django.core.management import call_command

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")
    django.setup()
    if migrate:
        call_command("migrate", verbosity=0, interactive=False)
