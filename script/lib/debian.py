"""System packages: installed by apt as root, unpacked below var/ by anybody else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from console import fail, working


def is_debian() -> bool:
    """Whether apt-get and dpkg are here."""
    return shutil.which("apt-get") is not None and shutil.which("dpkg") is not None


def can_install() -> bool:
    """Whether packages can be installed for the whole system: Debian, as root."""
    return is_debian() and os.geteuid() == 0


def _apt(*arguments: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-q", "-y", *arguments]
    log = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if log.returncode != 0:
        print(log.stdout[-2000:] + log.stderr[-2000:], flush=True)
    return log.returncode == 0


def install(*packages: str, purpose: str) -> bool:
    """Install system packages as root; False when apt cannot, and what it said is printed."""
    command = ["install", "--no-install-recommends", *packages]
    with working(f"Installing {' '.join(packages)} ({purpose})"):
        # The package lists of a new machine are empty or old: fetch them when the first try fails.
        with_known_lists = subprocess.run(
            ["apt-get", "-q", "-y", "-s", *command], capture_output=True, stdin=subprocess.DEVNULL
        )
        if with_known_lists.returncode != 0 and not _apt("update"):
            return False
        return _apt(*command) or (_apt("update") and _apt(*command))


def unpack(*packages: str, into: Path, purpose: str) -> None:
    """Fetch packages and their missing dependencies and unpack them below ``into``, without root.

    :raises SystemExit: code 2, when they cannot be fetched.
    """
    with working(f"Unpacking {' '.join(packages)} into {into} ({purpose})"):
        _unpack(packages, into=into, purpose=purpose)


def _unpack(packages: tuple[str, ...], *, into: Path, purpose: str) -> None:
    downloads = into / "downloads"
    downloads.mkdir(parents=True, exist_ok=True)
    simulated = subprocess.run(
        ["apt-get", "-s", "--no-install-recommends", "install", *packages],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    wanted = [line.split()[1] for line in simulated.stdout.splitlines() if line.startswith("Inst ")]
    wanted = wanted or list(packages)
    fetched = subprocess.run(["apt-get", "-q", "download", *wanted], cwd=downloads, capture_output=True, text=True)
    if fetched.returncode != 0:
        fail(
            f"{' '.join(packages)} missing ({purpose}): as root run "
            f"'apt-get update && apt-get install {' '.join(packages)}'."
        )
    for package in sorted(downloads.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(into)], check=True, capture_output=True)
        package.unlink()


def library_path(root: Path) -> str:
    """``LD_LIBRARY_PATH`` for programs that were unpacked below ``root``."""
    libraries = [*root.glob("usr/lib/*-linux-gnu*"), *root.glob("lib/*-linux-gnu*"), root / "usr/lib"]
    return ":".join(str(folder) for folder in libraries if folder.is_dir())
