"""A line each half minute that shows a long run moving: suite, tests done, time gone, what has been at work longest."""

import threading
import time

import pytest

EVERY_S = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the lines call this run."""
    parser.addoption("--suite", default="tests", metavar="NAME", help="the name that progress is reported by")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that reports: with xdist the one that runs no tests."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config), "progress")


class Progress:
    """Counts what is reported, and says so from a thread of its own: also while a single test takes minutes."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.suite = config.getoption("suite")
        self.began = time.monotonic()
        self.total = self.done = 0
        self.failed: set[str] = set()
        self.at_work: dict[str, float] = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def pytest_sessionstart(self) -> None:
        self.thread.start()

    def pytest_sessionfinish(self) -> None:
        self.over.set()
        self.thread.join()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Every worker collects the same tests."""
        self.total = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.at_work[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.at_work.pop(nodeid, None)
        self.done += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        """What a worker that crashed was at will never be finished; what others are at is noted when they go on."""
        if error:
            self.at_work.clear()

    def line(self, *, now: float) -> str:
        """What a reader wants to know of a run that goes on."""
        words = [f"{self.suite}: {self.done:,} of {self.total:,}" if self.total else f"{self.suite}: collecting"]
        if self.failed:
            words.append(f"{len(self.failed)} failed")
        minutes, seconds = divmod(int(now - self.began), 60)
        words.append(f"{minutes} min {seconds:02} s")
        at_work = sorted(dict(self.at_work).items(), key=lambda item: item[1])
        words += [f"longest at work: {nodeid} ({int(now - since)} s)" for nodeid, since in at_work[:1]]
        return ", ".join(words)

    def _run(self) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        while reporter is not None and not self.over.wait(EVERY_S):
            if reporter._tw.width_of_current_line:  # dots
                reporter.write_line("")
            reporter.write_line(self.line(now=time.monotonic()), flush=True)
