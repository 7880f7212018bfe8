"""The lines by which a long run shows that it moves."""

from types import SimpleNamespace

from tests import progress


def test_line_names_suite_count_failures_time_and_what_has_been_at_work_longest(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    shown = progress.Progress(SimpleNamespace(getoption=lambda _name: "cluster"))
    assert shown.line(now=now[0]) == "cluster: collecting, 0 min 00 s"
    shown.pytest_xdist_node_collection_finished(ids=[str(number) for number in range(1071)])
    assert shown.line(now=now[0]) == "cluster: 0 of 1,071, 0 min 00 s"
    shown.pytest_runtest_logstart("tests/a.py::first")
    now[0] += 159
    shown.pytest_runtest_logstart("tests/a.py::second")
    shown.pytest_runtest_logstart("tests/b.py::third")
    for when in ("setup", "call", "teardown"):
        shown.pytest_runtest_logreport(SimpleNamespace(failed=when != "setup", nodeid="tests/a.py::first"))
    shown.pytest_runtest_logfinish("tests/a.py::first")
    expected = "cluster: 1 of 1,071, 1 failed, 3 min 20 s, longest at work: tests/a.py::second (41 s)"
    assert shown.line(now=now[0] + 41) == expected
