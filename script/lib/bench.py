"""script/bench: set-up and the tools that load and peers need, then ``python -m bench``."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import debian
from console import fail, say
from project import PYTHON, ROOT, VAR, lock_take
from services import MariaDB, pidfile_kill, valkey_binary
from setup import setup

sys.path.insert(0, str(ROOT))

from bench.arguments import arguments_parse  # noqa: E402 - the package, found by the line above

BENCH = VAR / "bench"

# What is missing → Debian's packages, and what cannot be measured without it.
NGINX_PACKAGES = ("nginx", "libnginx-mod-http-lua", "lua-nginx-redis", "lua-nginx-string", "lua-cjson", "lua-luaossl")
TOOLS = {
    "wrk": (("wrk",), "every row of http and openloop"),
    "node": (("nodejs", "npm"), "fastify"),
    "nginx with Lua": (NGINX_PACKAGES, "nginx_lua"),
}
SECTIONS_WITH_TOOLS = ("http", "openloop")
PATHS = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
NGINX_LUA = Path("/usr/lib/nginx/modules/ngx_http_lua_module.so")


def tool_is_here(name: str) -> bool:
    """Whether a program is on the path; nginx counts with its Lua module only."""
    program = name.split()[0]
    return shutil.which(program, path=PATHS) is not None and (program != "nginx" or NGINX_LUA.exists())


def tools_find() -> None:
    """Install what is missing as root on Debian; else say what is, and how to get it: its rows are left out."""
    for name, (packages, rows) in TOOLS.items():
        if not tool_is_here(name) and debian.can_install():
            # Debian starts a new nginx on port 80; one that was here before is left as it is.
            new = () if shutil.which("nginx", path=PATHS) else tuple({"nginx"} & set(packages))
            debian.install(*packages, purpose=f"for the benchmark: {rows}", services_off=new)
        if not tool_is_here(name):
            how = f"Debian: as root 'apt-get update && apt-get install {' '.join(packages)}'"
            say(f"note: {name} is missing, so {rows} will be left out. {how}.")


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
    if any(name in sections for name in SECTIONS_WITH_TOOLS):
        tools_find()
    own = ("REDIS_URL", "CELERY_BROKER_URL", "CACHE_URL", "DATABASE_URL")  # no measurement touches a server of yours
    env = {name: value for name, value in os.environ.items() if name not in own}
    env |= {"PATH": PATHS, "VAR_DIR": str(VAR), "ENV_FILE": os.devnull}
    os.set_inheritable(lock.fileno(), True)  # held until the benchmark ends
    os.chdir(ROOT)
    sys.stdout.flush()
    os.execve(PYTHON, [str(PYTHON), "-m", "bench", *arguments], env)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
