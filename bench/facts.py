"""What a result must say about the machine and the programs, so that somebody else can judge it."""

import os
import platform
import re
import shutil
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata

from bench import stage
from bench.options import Options

PACKAGES = ("django", "djangorestframework", "redis", "hiredis", "celery", "mysqlclient", "gunicorn", "uvicorn",
            "uvloop", "httptools", "fastapi")  # fmt: skip


def meta(options: Options, *, command: str) -> dict:
    """Date, cores, versions, command and options of this run."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "command": command,
        **asdict(options),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of everything that takes part and is here."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    programs = {
        "valkey": [stage.valkey_binary(), "--version"],
        "mariadb": stage.MariaDB(stage.FOLDER / "mariadb").version_command(),
        "node": ["node", "--version"],
        "nginx": ["nginx", "-v"],
        "wrk": ["wrk", "-v"],
    }
    for name, (program, *arguments) in programs.items():
        if shutil.which(program):
            said = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
            if number := re.search(r"\d+(\.\d+)+", said.stdout + said.stderr):
                found[name] = number[0]
    return found
