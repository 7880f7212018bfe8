"""Where the project keeps things, its virtual environment, and its commands."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[2]
VAR = Path(os.environ.get("VAR_DIR") or ROOT / "var").resolve()
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"

# Everything here imports only the standard library and the neighbours in this folder.
assert sys.version_info >= (3, 11)


def program(name: str) -> str:
    """Path of a program of the virtual environment."""
    return str(VENV / "bin" / name)


@contextmanager
def lock_held(path: Path, *, busy: str) -> Iterator[None]:
    """Hold a lock on a file; while another process has it, say ``busy`` once and wait."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"note: {busy}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def lock_take(path: Path) -> TextIO | None:
    """Take a lock until the returned file is closed or the process ends; None when another process has it."""
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def manage(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``manage.py`` in the virtual environment and return its output."""
    return subprocess.run(
        [str(PYTHON), str(ROOT / "manage.py"), *arguments],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def dotenv() -> dict[str, str]:
    """Settings of ``.env`` that the environment does not override; the settings file reads it likewise."""
    path = Path(os.environ.get("ENV_FILE") or ROOT / ".env")
    found: dict[str, str] = {}
    if path.is_file():
        for line in path.read_text().splitlines():
            name, equals, value = line.strip().removeprefix("export ").partition("=")
            if equals and not name.startswith("#"):
                found[name.strip()] = value.strip().strip("'\"")
    return found


def setting(name: str, default: str = "") -> str:
    """One setting as the product will see it: environment first, then ``.env``."""
    return os.environ.get(name) or dotenv().get(name) or default
