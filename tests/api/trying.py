"""Schemathesis as its users run it: the command, against a served product and the document that it serves."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PHASES = "examples,coverage,fuzzing,stateful"
RUN_S = 6 * PATIENCE_S  # far above what a run takes, so that a server that hangs is no endless test


@dataclass(frozen=True)
class Tried:
    """What a run came to: its exit code and what it printed, and how often each operation answered with which status.

    Operations are named ``POST /market/…`` by their path in the document.
    """

    exit_code: int
    output: str
    answers: Mapping[str, Counter[int]]

    @property
    def cases(self) -> int:
        return sum(sum(statuses.values()) for statuses in self.answers.values())

    def succeeded(self, operation: str) -> bool:
        """Whether any request was answered by a success: else the operation was not tried in earnest."""
        return any(200 <= status < 300 for status in self.answers.get(operation, {}))


def api_try(*, name: str, authorization: str, paths: str, port: int, max_examples: int, seed: int = 20261212) -> Tried:
    """Try every operation whose path matches, with all checks, with good data and bad.

    :param name: of whom the requests come from; names the run's folder.
    :param authorization: the header with which they say who they are.
    :param paths: a regular expression.
    :param max_examples: cases that the fuzzing of each operation may have.
    """
    folder = Path(os.environ["TEST_FOLDER"]) / f"schemathesis-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.ndjson"
    report.unlink(missing_ok=True)
    command = [
        str(Path(sys.executable).parent / "st"), "--config-file", str(ROOT / "schemathesis.toml"), "--no-color",
        "run", f"http://127.0.0.1:{port}/market/schema",
        "--include-path-regex", paths, "--header", f"Authorization: {authorization}",
        "--checks", "all", "--mode", "all", "--phases", PHASES, "--continue-on-failure",
        "--max-examples", str(max_examples), "--seed", str(seed), "--generation-database", "none",
        "--request-timeout", str(PATIENCE_S),
        "--workers", "1",  # more need more than two cores, and Python 3.11 may break in ast.parse in several threads
        "--report", "ndjson", "--report-ndjson-path", str(report),
    ]  # fmt: skip
    # Whatever would leave this host goes to a proxy that is not there.
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:1")
    here = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1")
    env = {**os.environ, **nowhere, **here, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis")}
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_S
    )
    assert report.exists(), done.stdout + done.stderr
    return Tried(done.returncode, done.stdout + done.stderr, _answers(report))


def document_operations(document: Mapping, paths: str) -> set[str]:
    """The operations whose path matches, named as :class:`Tried` names them."""
    return {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        if re.search(paths, path)
        for method in methods
    }


def _answers(report: Path) -> dict[str, Counter[int]]:
    answers: dict[str, Counter[int]] = {}
    with report.open() as lines:
        for line in lines:
            recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
            for case_id, interaction in recorder.get("interactions", {}).items():
                case = recorder["cases"][case_id]["value"]
                status = (interaction.get("response") or {}).get("status_code", 0)
                answers.setdefault(f"{case['method']} {case['path']}", Counter())[status] += 1
    return answers
