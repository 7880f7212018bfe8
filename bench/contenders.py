"""The servers that are compared over HTTP: how each is installed, configured, started and stopped."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from bench.sale import SECRET, SEIZE_LUA, script_sha
from bench.stage import FOLDER, ROOT

import debian
from project import PYTHON, VAR, program
from services import port_answers, port_pick, tree_stop, wait_until

PEERS = ROOT / "bench" / "peers"
CORES = os.cpu_count() or 2
NODE_MAJOR = 20  # what Fastify 5 asks for


class Missing(Exception):
    """A contender cannot run here; ``str()`` says what is missing and the line that installs it."""


class Contender:
    """A server in its own process tree."""

    def __init__(self, name: str, *, redis_url: str, database_url: str) -> None:
        """:raises Missing: it cannot run here."""
        self.name = name
        self.port = port_pick()
        self.redis_url = redis_url
        self.folder = FOLDER / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.database_url = database_url
        self.process: subprocess.Popen[bytes] | None = None
        self.command, self.environment = COMMANDS[name](self)

    @property
    def pid(self) -> int:
        """The root of the tree."""
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Start it and wait until its port answers.

        :raises RuntimeError: it ended or did not answer in 30 s; its log is named.
        """
        log = self.folder / "server.log"
        environment = {
            **os.environ,
            "PORT": str(self.port),
            "WORKERS": str(CORES),
            "REDIS_URL": self.redis_url,
            "JWT_SIGNING_KEY": SECRET,
            "SEIZE_LUA": str(SEIZE_LUA),
            **self.environment,
        }
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        ended = self.process.poll
        try:
            wait_until(lambda: port_answers(self.port) or ended() is not None, seconds=30, what=self.name)
        except TimeoutError as error:
            raise RuntimeError(f"{error}; see {log}") from error
        if ended() is not None:
            raise RuntimeError(f"{self.name} ended at once; see {log}")
        time.sleep(1)  # until the other processes listen too

    def stop(self) -> None:
        """Stop it and everything that it started."""
        if self.process is not None:
            if self.process.poll() is None:
                tree_stop(self.process.pid)
            self.process.wait(timeout=10)
            self.process = None


Configured = tuple[list[str], dict[str, str]]


# -- Ours ---------------------------------------------------------------------------------------------


def _our_environment(contender: Contender) -> dict[str, str]:
    environment = {"ENV_FILE": os.devnull, "LOG_LEVEL": "WARNING", "VAR_DIR": str(VAR)}
    if contender.database_url:
        environment["DATABASE_URL"] = contender.database_url
    return environment


def _gate(contender: Contender) -> Configured:
    if importlib.util.find_spec("couponsite.serve") is None:
        raise Missing("couponsite.serve is not here yet")
    command = [str(PYTHON), "-m", "couponsite.serve", "--port", str(contender.port), "--workers", str(CORES)]
    return command, _our_environment(contender)


def _drf_view(contender: Contender) -> Configured:
    command = [program("gunicorn"), "couponsite.wsgi", *_gunicorn(contender)]
    return command, _our_environment(contender)


def _gunicorn(contender: Contender) -> list[str]:
    return ["--bind", f"127.0.0.1:{contender.port}", "--worker-class", "gthread", "--workers", str(CORES),
            "--threads", "8", "--timeout", "30", "--graceful-timeout", "10", "--no-control-socket",
            "--log-level", "warning"]  # fmt: skip


# -- Peers in Python ----------------------------------------------------------------------------------


def _venv() -> Path:
    """The peers' own virtual environment, installed from the pinned file unless that was done before."""
    requirements = PEERS / "requirements.txt"
    folder = FOLDER / "venv"
    stamp, digest = folder / "installed", hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == digest):
        _call([sys.executable, "-m", "venv", "--clear", folder], "a virtual environment for the peers")
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "-q"]
        _call([*pip, "-r", requirements], "the peers' packages")
        stamp.write_text(digest)
    return folder / "bin"


def _stock_drf(contender: Contender) -> Configured:
    command = [str(_venv() / "gunicorn"), "site_wsgi", *_gunicorn(contender)]
    return command, {"PYTHONPATH": f"{PEERS / 'stock_drf'}:{PEERS}", "DJANGO_SETTINGS_MODULE": "site_settings"}


def _fastapi(contender: Contender) -> Configured:
    command = [str(_venv() / "uvicorn"), "app:app", "--host", "127.0.0.1", "--port", str(contender.port),
               "--workers", str(CORES), "--loop", "uvloop", "--http", "httptools", "--no-access-log",
               "--log-level", "warning"]  # fmt: skip
    return command, {"PYTHONPATH": f"{PEERS / 'fastapi'}:{PEERS}"}


# -- Peers in other languages ---------------------------------------------------------------------------


def _fastify(contender: Contender) -> Configured:
    node, npm = shutil.which("node"), shutil.which("npm")
    how = f"install Node.js {NODE_MAJOR} or newer with npm (Debian 13: as root 'apt-get install nodejs npm')"
    if not node or not npm:
        raise Missing(f"node and npm are missing: {how}")
    version = (
        subprocess.run([node, "--version"], check=False, capture_output=True, text=True).stdout.strip().lstrip("v")
    )
    if int(version.partition(".")[0] or 0) < NODE_MAJOR:
        raise Missing(f"node is {version}: {how}")
    source, folder = PEERS / "fastify", contender.folder
    lock = (source / "package-lock.json").read_bytes()
    stamp = folder / "installed"
    shutil.copy(source / "server.js", folder)
    if not (stamp.exists() and stamp.read_bytes() == lock):
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        _call([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", folder], "the npm packages")
        stamp.write_bytes(lock)
    return [node, str(folder / "server.js")], {"NODE_ENV": "production"}


NGINX_PACKAGES = ("nginx", "libnginx-mod-http-lua", "lua-cjson")


def _nginx_lua(contender: Contender) -> Configured:
    """nginx unpacked below var/, by root too: its package would start a web server on port 80."""
    unpacked = FOLDER / "nginx"
    nginx = unpacked / "usr" / "sbin" / "nginx"
    if not nginx.exists():
        if not debian.is_debian():
            raise Missing("nginx with its Lua module comes from Debian's packages here, and this is no Debian")
        try:
            debian.unpack(*NGINX_PACKAGES, into=unpacked, purpose="a peer of the benchmark")
            # Its Redis client alone: the package depends on every module that nginx has.
            _call(["apt-get", "-q", "download", "lua-nginx-redis"], "lua-nginx-redis", folder=unpacked)
            for package in unpacked.glob("*.deb"):
                _call(["dpkg", "-x", package, unpacked], package.name)
        except (SystemExit, Missing) as error:
            shutil.rmtree(unpacked, ignore_errors=True)
            packages = " ".join((*NGINX_PACKAGES, "lua-nginx-redis"))
            raise Missing(f"{packages} cannot be fetched: as root run 'apt-get update' and start again") from error
    redis = urlsplit(contender.redis_url)
    lua_c = next(iter(unpacked.glob("usr/lib/*-linux-gnu/lua/5.1")), unpacked)
    values = {
        "USER": "user root;" if os.geteuid() == 0 else "",
        "WORKERS": CORES,
        "FOLDER": contender.folder,
        "MODULES": unpacked / "usr/lib/nginx/modules",
        "HERE": PEERS / "nginx_lua",
        "LUA": unpacked / "usr/share/lua/5.1",
        "LUA_C": lua_c,
        "SCRIPT": SEIZE_LUA,
        "SHA": script_sha(),
        "SECRET": SECRET,
        "REDIS_HOST": redis.hostname,
        "REDIS_PORT": redis.port,
        "PORT": contender.port,
    }
    text = (PEERS / "nginx_lua" / "nginx.conf").read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    config = contender.folder / "nginx.conf"
    config.write_text(text)
    command = [str(nginx), "-p", str(contender.folder), "-c", str(config), "-e", str(contender.folder / "error.log")]
    return command, {"LD_LIBRARY_PATH": debian.library_path(unpacked)}


COMMANDS: dict[str, Callable[[Contender], Configured]] = {
    "gate": _gate,
    "drf_view": _drf_view,
    "stock_drf": _stock_drf,
    "fastapi": _fastapi,
    "fastify": _fastify,
    "nginx_lua": _nginx_lua,
}


def _call(command: list[object], what: str, *, folder: Path | None = None) -> None:
    """:raises Missing: it failed; its last line is in the message."""
    words = [str(word) for word in command]
    done = subprocess.run(words, check=False, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        last = ((done.stderr or done.stdout).strip().splitlines() or ["no output"])[-1]
        raise Missing(f"{what} could not be installed: {last} ('{' '.join(words)}')")
