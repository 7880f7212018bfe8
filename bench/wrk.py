"""wrk as the closed-loop load: 2 threads, 64 connections, another token for every request."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.sale import Tokens
from bench.stage import FOLDER, ROOT

import debian

THREADS, CONNECTIONS = 2, 64


def program() -> str | None:
    """Path of wrk: the PATH's, installed by apt, or unpacked below var/; None when it cannot be had."""
    unpacked = FOLDER / "wrk"
    if found := _find(unpacked):
        return found
    if debian.can_install():
        debian.install("wrk", purpose="the load of the benchmark")
    elif debian.is_debian():
        try:
            debian.unpack("wrk", into=unpacked, purpose="the load of the benchmark")
        except SystemExit:
            return None  # the line above says what to do
    return _find(unpacked)


def _find(unpacked: Path) -> str | None:
    return shutil.which("wrk") or shutil.which("wrk", path=str(unpacked / "usr" / "bin"))


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked: ``first`` and ``count`` choose the shoppers; ``at_end``: "wrap" lets them come again, "stop" ends.

    ``at_end`` "anonymous": no tokens at all.
    """

    method: str
    path: str
    body: str
    first: int
    count: int
    at_end: str = "wrap"


@dataclass(frozen=True, slots=True)
class Run:
    """What came of it. ``refused`` are answers of 400 and above, ``broken`` those that never came."""

    requests: int
    duration_us: int
    p50_us: int
    p99_us: int
    refused: int
    broken: int

    @property
    def rps(self) -> float:
        return self.requests / self.duration_us * 1e6

    def figures(self, *, web_s: float, redis_s: float) -> dict[str, float]:
        """What tables show of it; ``web_s`` and ``redis_s`` are the CPU that it took."""
        return {
            "rps": self.rps,
            "p50_ms": self.p50_us / 1000,
            "p99_ms": self.p99_us / 1000,
            "web_cpu_us": web_s / self.requests * 1e6,
            "redis_cpu_us": redis_s / self.requests * 1e6,
        }


def run(wrk: str, load: Load, *, port: int, tokens: Tokens, seconds: float) -> Run:
    """Load a server for a while.

    :raises RuntimeError: wrk failed.
    """
    assert load.first + load.count <= tokens.count, "not enough tokens"
    script = ROOT / "bench" / "wrk.lua"
    arguments = [load.method, load.path, load.body, tokens.path, tokens.width, load.first, load.count // THREADS,
                 load.at_end]  # fmt: skip
    command = [wrk, f"-t{THREADS}", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "-s", script, f"http://127.0.0.1:{port}"]
    ended = subprocess.run(
        [*map(str, command), "--", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds + 30,
    )
    lines = ended.stdout.strip().splitlines()
    if ended.returncode != 0 or not lines or not lines[-1].startswith("{"):
        raise RuntimeError(f"wrk failed: {(ended.stderr or ended.stdout).strip()[-500:]}")
    return Run(**json.loads(lines[-1]))
