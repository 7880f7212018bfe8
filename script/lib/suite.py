"""script/test: set-up, private servers under var/test, linters and contracts, then the tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import debian
from console import duration, fail, moving, say, step, working
from project import PYTHON, ROOT, VAR, lock_take, program
from services import MariaDB, pidfile_kill, redis_binary, valkey_binary
from setup import setup

TEST = VAR / "test"

ON_CLUSTER = ("tests/sync", "tests/activities", "tests/flow/test_walking_skeleton.py")
CHECKS = (
    ("formatting", ["ruff", "format", "--check", "--quiet", "."]),
    ("ruff", ["ruff", "check", "--quiet", "."]),
    ("mypy", ["mypy", "--no-error-summary"]),
    ("import contracts", ["lint-imports"]),
)


def luacheck_command() -> tuple[list[str], dict[str, str]]:
    """How to run luacheck here: from the PATH, installed by apt, or unpacked below var/.

    :raises SystemExit: code 2, with the line that says what to install.
    """
    unpacked = VAR / "luacheck"
    if shutil.which("luacheck") is None and not (unpacked / "usr/bin/luacheck").exists():
        if debian.can_install():
            debian.install("lua-check", purpose="to lint the Lua scripts")
        elif debian.is_debian():
            debian.unpack("lua-check", into=unpacked, purpose="to lint the Lua scripts")
    if found := shutil.which("luacheck"):
        return [found], {}
    script = unpacked / "usr/bin/luacheck"
    interpreters = sorted(unpacked.glob("usr/bin/lua5.?"))
    if not script.exists() or not interpreters:
        fail("luacheck is missing: Debian: as root 'apt-get install lua-check'; macOS: brew install luacheck.")
    lua = interpreters[0]
    return [str(lua), str(script)], lua_environment(unpacked, version=lua.name.removeprefix("lua"))


def curl_find() -> None:
    """See that curl is here, by which the README's walk runs as written.

    :raises SystemExit: code 2, with the line that says what to install.
    """
    if shutil.which("curl") is None and debian.can_install():
        debian.install("curl", purpose="to run the README's walk")
    if shutil.which("curl") is None:
        fail("curl is missing: Debian: as root 'apt-get install curl'.")


def browser_find() -> dict[str, str]:
    """Where the browser of the tests is: Debian's Chromium, installed or unpacked below var/, or another one.

    :raises SystemExit: code 2, with the line that says what to install.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    unpacked = VAR / "chromium"
    binary = unpacked / "usr/lib/chromium/chromium"
    if not any(map(shutil.which, names)) and not binary.exists():
        if debian.can_install():
            debian.install("chromium", "fonts-wqy-zenhei", purpose="to test the pages in a browser")
        elif debian.is_debian():
            debian.unpack("chromium", "fonts-wqy-zenhei", into=unpacked, purpose="to test the pages in a browser")
    if found := next(filter(None, map(shutil.which, names)), None):
        return {"TEST_CHROMIUM": found}
    if not binary.exists():
        fail("chromium is missing: Debian: as root 'apt-get install chromium'; macOS: brew install --cask chromium.")
    return {"TEST_CHROMIUM": str(binary), "TEST_CHROMIUM_LIBRARIES": debian.library_path(unpacked)}


def lua_environment(unpacked: Path, *, version: str) -> dict[str, str]:
    """Where an unpacked Lua of this version finds its modules and libraries."""
    share = unpacked / "usr/share/lua" / version
    native = ";".join(f"{folder}/lua/{version}/?.so" for folder in unpacked.glob("usr/lib/*-linux-gnu*"))
    return {
        "LUA_PATH": f"{share}/?.lua;{share}/?/init.lua;;",
        "LUA_CPATH": f"{native};;",
        "LD_LIBRARY_PATH": debian.library_path(unpacked),
    }


def checks_run(env: dict[str, str]) -> bool:
    """Run every linter and contract; True when all are clean."""
    curl_find()
    luacheck, lua_env = luacheck_command()
    commands = [(name, [program(command[0]), *command[1:]], {}) for name, command in CHECKS]
    commands.append(
        ("luacheck", [*luacheck, "-q", "--globals", "redis", "KEYS", "ARGV", "cjson", "--", "seize/lua"], lua_env)
    )
    manage = [str(PYTHON), "manage.py"]
    commands.append(("missing migrations", [*manage, "makemigrations", "--check", "--dry-run"], {}))
    commands.append(("Django's checks", [*manage, "check", "--fail-level", "WARNING"], {}))
    clean = True
    for name, command, extra in commands:
        began = time.monotonic()
        with moving(lambda name=name: name):
            done = subprocess.run(
                command, cwd=ROOT, env={**env, **extra}, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
        verdict = "ok" if done.returncode == 0 else "FAILED"
        say(f"    {name}: {verdict} ({time.monotonic() - began:.1f} s)")
        if done.returncode != 0:
            clean = False
            print(done.stdout + done.stderr, flush=True)
    return clean


def main(arguments: list[str]) -> int:
    """Set up, check, test; the exit code of pytest, or 1 when a linter objects."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    setup(development=True)
    TEST.mkdir(parents=True, exist_ok=True)
    lock = lock_take(TEST / "lock")
    if lock is None:
        fail("script/test is already running here: wait for it, or set VAR_DIR to another folder.")
    for pidfile in TEST.glob("**/server.pid"):
        pidfile_kill(pidfile)
    database = MariaDB(TEST / "mariadb")
    database.find()
    env = {
        **{
            name: value
            for name, value in os.environ.items()
            if name not in ("REDIS_URL", "CELERY_BROKER_URL", "CACHE_URL")
        },
        "DATABASE_URL": database.url,
        "TEST_VALKEY_BINARY": valkey_binary(),
        "TEST_REDIS_BINARY": redis_binary(),
        "TEST_FOLDER": str(TEST),
        **browser_find(),
        "DJANGO_SETTINGS_MODULE": "couponsite.settings",
        "ENV_FILE": os.devnull,
    }
    began = time.monotonic()
    try:
        with working("Starting a private MariaDB"):
            database.start()
        step("Linters and contracts")
        clean = checks_run(env)
        tested = 0
        for suite, words, options in suites(arguments):
            step(words)
            tested = pytest_run(suite, options, env=env) or tested
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        database.stop()
        lock.close()
    if not clean:
        say("FAILED: a linter or contract objects, see above.")
    say(f"script/test took {duration(time.monotonic() - began)}.")
    return tested or (0 if clean else 1)


def suites(arguments: list[str]) -> list[tuple[str, str, list[str]]]:
    """What pytest runs one after the other: short name, words, arguments; with arguments of one's own only these."""
    if arguments:
        return [("tests", "Tests", arguments)]
    return [
        ("tests", "Tests", []),
        (
            "cluster",
            "The suites that know Redis only by its commands, on a cluster of three masters",
            ["--server", "cluster", *ON_CLUSTER],
        ),
        (
            "big",
            "A ledger of a million coupons: how few statements each call takes, by which index, over how few rows",
            ["-m", "big", "tests/big"],
        ),
    ]


def pytest_run(suite: str, options: list[str], *, env: dict[str, str]) -> int:
    """Run one suite on every core, unless its arguments say otherwise; pytest's exit code."""
    parallel = [] if any(option.startswith("-n") for option in options) else ["-n", str(os.cpu_count() or 2)]
    command = [program("pytest"), *parallel, "--dist", "loadscope", "-p", "tests.progress", "--suite", suite, *options]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, start_new_session=True) as pytest:
        try:
            return pytest.wait()
        except KeyboardInterrupt:
            os.killpg(pytest.pid, signal.SIGINT)  # once, whether by Ctrl-C or by kill: it stops what its tests started
            pytest.wait()
            raise


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
