"""No clock is read while tests are collected: on a slow machine the moment is long gone when a test uses it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from services import PATIENCE_S

ROOT = Path(__file__).resolve().parents[1]


def reads(root: Path, folder: Path) -> list[str]:
    """``FILE:LINE`` of each read."""
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "script/lib", root)))
    command = [sys.executable, "-m", "tests.collection_clock", str(root), str(folder)]
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stderr == ""
    return [str(Path(line).relative_to(root)) for line in done.stdout.splitlines()]


def test_no_test_module_reads_a_clock_while_it_is_imported():
    assert reads(ROOT, ROOT / "tests") == []


@pytest.mark.controls
def test_control_reads_at_import_are_found_by_whatever_way_they_come(tmp_path, record_property):
    folder = tmp_path / "samples"
    folder.mkdir()
    (folder / "test_sample.py").write_text(
        "import time\n"
        "from datetime import date, datetime, timedelta\n"
        "from time import monotonic as ticks\n"
        "from django.utils import timezone\n"
        "NOW = timezone.now() + timedelta(hours=1)\n"
        "class Sale:\n"
        "    starts_at = datetime.now()\n"
        "def load(at=time.time()):\n"
        "    return ticks()\n"
        "LATER = load() + 60\n"
        "DAY = date.today()\n"
        "def unread():\n"
        "    return time.time_ns()\n"
    )
    found = reads(tmp_path, folder)
    record_property("harm", f"reads of a clock at import that were found: {len(found)}")
    assert found == [f"samples/test_sample.py:{line}" for line in (5, 7, 8, 9, 11)]
