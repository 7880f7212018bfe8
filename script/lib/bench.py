"""script/bench: set-up and the tools that load and peers need, then ``python -m bench``."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys

import debian
from console import fail, say
from project import PYTHON, ROOT, VAR, lock_take
from services import MariaDB, pidfile_kill, valkey_binary
from setup import setup

sys.path.insert(0, str(ROOT))

from bench.arguments import arguments_parse

BENCH = VAR / "bench"

# Program → Debian's packages, and what cannot be measured without it. Peers install the rest below var/ themselves.
TOOLS = {
    "wrk": (("wrk",), "every row of http, live and admission"),
    "node": (("nodejs", "npm"), "fastify"),
}
PATHS = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])


def tools_find() -> None:
    """Install what is missing as root on Debian; else say what is, and how to get it: its rows are left out."""
    for name, (packages, rows) in TOOLS.items():
        if not shutil.which(name, path=PATHS) and debian.can_install():
            debian.install(*packages, purpose=f"for the benchmark: {rows}")
        if not shutil.which(name, path=PATHS):
            how = f"as root run 'apt-get update && apt-get install {' '.join(packages)}' (macOS: brew install {name})"
            say(f"note: {name} is missing, so {rows} will be left out: {how}.")


def main(arguments: list[str]) -> int:
    """Make ready, then become ``python -m bench``: signals and the exit code are its own.

    :raises SystemExit: code 2, when it cannot begin.
    """
    _options, sections = arguments_parse(arguments)
    setup(development=True, required_by="script/bench")
    BENCH.mkdir(parents=True, exist_ok=True)
    lock = lock_take(BENCH / "lock")
    if lock is None:
        fail("script/bench is already running here: wait for it, or set VAR_DIR to another folder.")
    for pidfile in BENCH.glob("*/server.pid"):
        pidfile_kill(pidfile)  # what a killed run left behind
    valkey_binary()
    MariaDB(BENCH / "mariadb").find()
    if {"http", "live", "admission"} & set(sections):
        tools_find()
    own = ("REDIS_URL", "CELERY_BROKER_URL", "CACHE_URL", "DATABASE_URL")  # no measurement touches a server of yours
    env = {name: value for name, value in os.environ.items() if name not in own}
    env |= {"PATH": PATHS, "VAR_DIR": str(VAR), "ENV_FILE": os.devnull}
    fcntl.fcntl(lock, fcntl.F_SETFD, 0)  # inherited: held until the benchmark ends
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execve(PYTHON, [str(PYTHON), "-m", "bench", *arguments], env)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
