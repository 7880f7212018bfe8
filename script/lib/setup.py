"""script/setup: virtual environment, requirements, mysqlclient, migrations, static files."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import debian
from console import fail, moving, say, working
from project import PYTHON, ROOT, VAR, VENV, lock_held, manage, setting

MYSQL_HEADERS = ("default-libmysqlclient-dev", "pkg-config", "gcc", "python3-dev")


def venv_make() -> None:
    """Make ``.venv``; on Debian as root install python3-venv when it is missing.

    :raises SystemExit: code 2, when it cannot be made.
    """
    if PYTHON.exists() and subprocess.run([str(PYTHON), "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return
    if importlib.util.find_spec("ensurepip") is None:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        if not debian.can_install():
            fail(f"Python's venv module is missing: as root run 'apt-get update && apt-get install {package}'.")
        if not debian.install(package, purpose="virtual environments"):
            fail(f"apt-get could not install {package}: mend the package sources (lines above) and start again.")
    with working("Making the virtual environment .venv"):
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True)
    if made.returncode != 0:
        fail(f"could not make {VENV}: {(made.stdout + made.stderr).strip().splitlines()[-1]}")


def requirements_install(*names: str) -> None:
    """Install pinned requirement files unless exactly these were installed before.

    :raises SystemExit: code 2, when pip fails.
    """
    files = [ROOT / name for name in (*names, "constraints.txt")]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    stamp = VENV / f"installed-{names[0]}"
    if stamp.exists() and stamp.read_text() == digest:
        return
    with working(f"Installing {' '.join(names)} (a minute or two the first time)"):
        installed = _pip_install(names, log=VENV / "pip.log")
    if not installed:
        print((VENV / "pip.log").read_text()[-3000:])
        fail(f"pip could not install {' '.join(names)}: look at the lines above and start again.")
    stamp.write_text(digest)


def _pip_install(names: tuple[str, ...], *, log: Path) -> bool:
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    for name in names:
        command += ["-r", str(ROOT / name)]
    with log.open("w") as output:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode == 0


def mysqlclient_install(*, required_by: str = "") -> bool:
    """Install mysqlclient, with its headers when this may be done; True when it can be imported.

    Without it the embedded database still works, so a missing header is one line and no failure
    unless something is ``required_by``.

    :param required_by: what cannot do without it, for the message.
    :raises SystemExit: code 2, when it is required and cannot be had.
    """
    if subprocess.run([str(PYTHON), "-c", "import MySQLdb"], capture_output=True).returncode == 0:
        return True
    packages = " ".join(MYSQL_HEADERS)
    how = f"as root run 'apt-get update && apt-get install {packages}' (macOS: brew install mysql-client pkg-config)"
    if not _mysql_headers_found() and debian.can_install():
        debian.install(*MYSQL_HEADERS, purpose="to build mysqlclient")
    if _mysql_headers_found():
        with working("Building mysqlclient"):
            if _pip_install(("requirements-mysql.txt",), log=VENV / "pip-mysql.log"):
                return True
        how = f"its build failed, see {VENV / 'pip-mysql.log'}"
    if required_by:
        fail(f"mysqlclient is missing and {required_by} needs it: {how}.")
    told = VENV / "mysqlclient-note"
    if not told.exists():
        told.touch()
        say(f"note: mysqlclient is not installed, the embedded SQLite works without it. For MySQL or MariaDB: {how}.")
    return False


def _mysql_headers_found() -> bool:
    if shutil.which("pkg-config") is None or (shutil.which("gcc") or shutil.which("cc")) is None:
        return False
    packages = ("mysqlclient", "mariadb", "libmariadb", "perconaserverclient")
    found = any(subprocess.run(["pkg-config", "--exists", name]).returncode == 0 for name in packages)
    compiles = 'import sysconfig, os; assert os.path.exists(sysconfig.get_paths()["include"] + "/Python.h")'
    return found and subprocess.run([str(PYTHON), "-c", compiles], capture_output=True).returncode == 0


def manage_or_fail(what: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
    """Run a ``manage.py`` command that has to succeed.

    :raises SystemExit: code 2, with the last line of what went wrong.
    """
    with moving(lambda: what):
        done = manage(*arguments, env=env)
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        fail(f"{what} failed (manage.py {' '.join(arguments)}): {lines[-1]}")


def setup(*, development: bool = False, required_by: str = "script/test") -> None:
    """Everything ``script/server`` needs; with ``development`` also what ``script/test`` and ``script/bench`` need.

    :param required_by: the script that wants what is for development, for messages.
    """
    os.chdir(ROOT)
    VAR.mkdir(parents=True, exist_ok=True)
    with lock_held(ROOT / ".setup.lock", busy="another set-up is running, waiting for it"):
        _setup(development=development, required_by=required_by)


def _setup(*, development: bool, required_by: str) -> None:
    venv_make()
    requirements_install("requirements.txt")
    if development:
        requirements_install("requirements-dev.txt")
        mysqlclient_install(required_by=required_by)
        manage_or_fail("static files", "collectstatic", "--no-input", "-v", "0")
        return
    wants_mysql = setting("DATABASE_URL").startswith(("mysql", "mariadb"))
    mysqlclient_install(required_by="DATABASE_URL" if wants_mysql else "")
    manage_or_fail("static files", "collectstatic", "--no-input", "-v", "0")
    manage_or_fail("migrations", "migrate", "--no-input", "-v", "0")
    manage_or_fail("the default schedule", "schedule", "-v", "0")


if __name__ == "__main__":
    if sys.argv[1:]:
        fail("script/setup takes no arguments.")
    setup()
