"""The laws of the tree are run by script/test; here, that breaking one is seen."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture
def copy(tmp_path) -> Path:
    """A copy of the code that a test may spoil."""
    for name in ("couponsite", "centre", "sync", "activities", "seize"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(copy: Path, *command: str) -> int:
    env = {**os.environ, "PYTHONPATH": str(copy)}
    return subprocess.run([str(BIN / command[0]), *command[1:]], cwd=copy, env=env, capture_output=True).returncode


def test_contracts_hold_in_the_copy(copy):
    assert run(copy, "lint-imports", "--no-cache") == 0
    assert run(copy, "ruff", "check", ".") == 0


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("seize/services.py", "import activities.models"),
        ("activities/services.py", "import sync.drain"),
        ("sync/drain.py", "import couponsite.urls"),
        ("sync/drain.py", "import centre.pages"),
        ("centre/pages.py", "import couponsite.urls"),
        ("seize/store.py", "import seize.services"),
        ("activities/wallet.py", "import redis"),
        ("activities/services.py", "import activities.admin"),
        ("sync/drain.py", "import sync.tasks"),
        ("seize/claims.py", "import seize.views"),
    ],
)
def test_import_that_breaks_a_contract_is_seen(copy, module, line):
    path = copy / module
    path.write_text(path.read_text() + f"\n{line}  # noqa\n")
    assert run(copy, "lint-imports", "--no-cache") == 1


def test_database_in_the_seize_app_is_seen(copy):
    path = copy / "seize" / "services.py"
    path.write_text("from django.db import connection\n" + path.read_text())
    assert run(copy, "ruff", "check", "--select", "TID251", ".") == 1
