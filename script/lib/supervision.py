"""supervisord's configuration, and a follower that prints every program's log with its name in front."""

from __future__ import annotations

import re
import shlex
import subprocess
import threading
from collections import Counter
from pathlib import Path

from console import say
from project import ROOT, VAR, program, setting
from services import tree_stop

RUN = VAR / "run"
LOGS = VAR / "log"
# A stopped worker must not hold a row for long. Flower's password is not for `ps` to show.
OWN_ENVIRONMENT = {
    "worker": {"DATABASE_WAIT_TIMEOUT_S": "5"},
    "flower": {"FLOWER_BASIC_AUTH": setting("FLOWER_BASIC_AUTH", "admin:admin")},
}
NAMES = ("valkey", "web", "worker", "beat", "flower")  # started in this order, stopped in the reverse one


def supervisord_config(commands: dict[str, list[str]], *, environment: dict[str, str]) -> Path:
    """Write supervisord's configuration: Valkey first and last, everything restarted when it dies."""

    def quoted(value: str) -> str:
        return value.replace("%", "%%")

    lines = [
        "[supervisord]",
        "nodaemon=true",
        f"logfile={quoted(str(LOGS / 'supervisord.log'))}",
        "logfile_maxbytes=5MB",
        "logfile_backups=1",
        f"pidfile={quoted(str(RUN / 'supervisord.pid'))}",
        f"childlogdir={quoted(str(LOGS))}",
        "minfds=1024",
    ]
    for name in sorted(commands, key=NAMES.index):
        own = OWN_ENVIRONMENT.get(name, {})
        pairs = ",".join(f'{key}="{quoted(value)}"' for key, value in {**environment, **own}.items())
        lines += [
            f"[program:{name}]",
            f"command={quoted(shlex.join(commands[name]))}",
            f"directory={quoted(str(ROOT))}",
            f"environment={pairs}",
            f"priority={10 + 10 * NAMES.index(name)}",
            "autorestart=true",
            "startsecs=1",
            "startretries=1000000",
            f"stopwaitsecs={30 if name == 'web' else 15}",
            # Valkey must outlive the others' last writes; it has no children to signal.
            "stopasgroup=true",
            "killasgroup=true",
            "redirect_stderr=true",
            f"stdout_logfile={quoted(str(LOGS / (name + '.log')))}",
            "stdout_logfile_maxbytes=10MB",
            "stdout_logfile_backups=2",
        ]
    path = RUN / "supervisord.conf"
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text("\n".join(lines) + "\n")
    return path


class LogFollower(threading.Thread):
    """Print what programs log, each line with the program's name in front."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(daemon=True)
        self.offsets = {name: self._size(LOGS / f"{name}.log") for name in names}
        self.width = max(len(name) for name in names)
        self.ended = threading.Event()

    @staticmethod
    def _size(path: Path) -> int:
        return path.stat().st_size if path.exists() else 0

    def run(self) -> None:
        while not self.ended.wait(0.2):
            self.print_new()

    def print_new(self) -> None:
        """Print whole lines that came since the last call; start over when a log was rotated."""
        for name, offset in self.offsets.items():
            path = LOGS / f"{name}.log"
            size = self._size(path)
            if size == offset:
                continue
            with path.open("rb") as log:
                log.seek(offset if offset < size else 0)
                chunk = log.read()
            whole = chunk[: chunk.rfind(b"\n") + 1]
            self.offsets[name] = (offset if offset < size else 0) + len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                say(f"{name:<{self.width}} | {line}")


class ProgramEnds:
    """How often each program has ended since this was made, as supervisord's log tells it."""

    def __init__(self) -> None:
        self.log = LOGS / "supervisord.log"
        self.offset = len(self._read())

    def _read(self) -> bytes:
        return self.log.read_bytes() if self.log.exists() else b""

    def counted(self) -> Counter[str]:
        """Number of ends by the program's name."""
        log = self._read()
        text = log[self.offset if self.offset <= len(log) else 0 :].decode("utf-8", "replace")  # 0: it was rotated
        return Counter(re.findall(r"exited: (\w+)", text))


def supervisord_start(config: Path) -> subprocess.Popen[bytes]:
    """Start supervisord in a session of its own: Ctrl-C reaches script/server alone, which stops all in order."""
    return subprocess.Popen(
        [program("supervisord"), "-c", str(config)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def supervisord_stop(process: subprocess.Popen[bytes]) -> None:
    """Stop supervisord and, by it, every program; whatever is left after its patience is killed."""
    if process.poll() is None:
        # supervisord is our child: until we wait for it, it stays a zombie, which counts as ended.
        tree_stop(process.pid)
        process.wait()
