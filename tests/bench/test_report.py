"""Tables, JSON and chart from a given result; what was left out is said."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from bench import isolation, progress, report
from bench.arguments import Section
from bench.options import Options
from bench.progress import Lines

META = {"date": "2026-01-02T03:04:05+00:00", "cores": 2, "command": "script/bench", "rounds": 3, "quick": False,
        "left_out": {"http nginx_lua": "no nginx here"}, "failed": {}}  # fmt: skip
RESULT = {
    "http": {
        "win": {
            "gate": {"rps": 20000.0, "p50_ms": 3.0, "p99_ms": 9.5, "web_cpu_us": 70.0, "redis_cpu_us": 10.0},
            "fastify": {"rps": 10000.0, "p50_ms": 6.0, "p99_ms": 12.0, "web_cpu_us": 170.0, "redis_cpu_us": 30.0},
        }
    },
    "strategies": {
        "naive": {"wins": 389, "oversold": 189, "duplicates": 7, "rps": 4000.0, "retries": 0},
        "lua": {"wins": 200, "oversold": 0, "duplicates": 0, "rps": 16000.0, "retries": 0},
    },
    "redis": {"grant": {"1": {"us": 24.0, "server_us": 30.0}, "32": {"us": 3.0, "server_us": 6.0}}},
    "sync": {"drain": {"rows_per_s": 30000}, "row_by_row": {"rows_per_s": 3000}, "lag_p99_s": 1.25},
    "meta": META,
}


def printed(result: dict) -> list[str]:
    lines: list[str] = []
    report.result_print(result, lines.append)
    return "\n".join(lines).splitlines()


def test_table_has_figures_and_ratios_to_the_own_contender():
    lines = printed(RESULT)
    start = lines.index("[win]")
    head, gate, fastify = (line.split() for line in lines[start + 1 : start + 4])
    assert head == [
        "requests/s",
        "×",
        "gate",
        "p50",
        "ms",
        "p99",
        "ms",
        "web",
        "CPU",
        "µs",
        "Redis",
        "CPU",
        "µs",
        "CPU",
        "µs",
        "×",
        "gate",
    ]
    assert gate == ["gate", "20,000", "1.00", "3.00", "9.50", "70.0", "10.0", "80.0", "1.00"]
    assert fastify == ["fastify", "10,000", "0.50", "6.00", "12.0", "170", "30.0", "200", "2.50"]


def test_base_row_need_not_be_the_first():
    assert ["naive", "389", "189", "7", "4,000", "0.25", "0"] in [line.split() for line in printed(RESULT)]


def test_figures_that_stand_alone_and_rows_that_were_left_out_are_named():
    lines = printed(RESULT)
    assert "lag_p99_s = 1.25" in lines
    assert lines[-2:] == ["Left out:", "  http nginx_lua: no nginx here"]


def test_a_section_that_failed_is_said_to_have():
    assert printed({"meta": {**META, "failed": {"sync": "it broke"}}})[-2:] == ["FAILED:", "  sync: it broke"]


def test_json_is_the_whole_result_and_replaces_an_earlier_one(tmp_path):
    (tmp_path / "latest.json").write_text("old")
    written = report.result_write(RESULT, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest.json", "latest.svg"]
    assert written == [tmp_path / "latest.json", tmp_path / "latest.svg"]
    assert json.loads((tmp_path / "latest.json").read_text()) == RESULT


def test_chart_is_xml_that_names_contenders_figures_and_harm(tmp_path):
    report.result_write(RESULT, tmp_path)
    texts = ["".join(text.itertext()) for text in ElementTree.parse(tmp_path / "latest.svg").iter() if text.text]
    assert {"gate (ours)", "Fastify + ioredis", "80 = 70 + 10.0", "200 = 170 + 30"} <= set(texts)
    assert "4,000oversold 189, duplicates 7" in texts


@pytest.mark.parametrize("part", ["http", "strategies", "redis", "sync"])
def test_chart_and_tables_of_one_section_alone(part, tmp_path):
    report.result_write({part: RESULT[part], "meta": META}, tmp_path)
    ElementTree.parse(tmp_path / "latest.svg")
    assert printed({part: RESULT[part], "meta": META})[1].startswith(f"{part}: ")


def test_lines_count_steps_where_there_is_no_terminal(capsys, monkeypatch):
    clock = iter((100.0, 100.4, 160.0))
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    lines = Lines()
    lines.begin("redis")
    lines.expect(2)
    lines.step("grant")
    lines.step("refuse")
    lines.leave_out("refuse", "why not")
    assert capsys.readouterr().out == "redis 1/2: grant (0 s)\nredis 2/2: refuse (60 s)\n"
    assert lines.left_out == {"redis refuse": "why not"}


def test_section_whose_module_is_not_here_is_left_out(monkeypatch):
    monkeypatch.setitem(isolation.SECTIONS, "growth", Section("not_there", "", ()))
    lines = Lines()
    lines.begin("growth")
    assert isolation.section_measure("growth", Options(), lines) == {}
    assert lines.left_out == {"growth": "this section is not part of this version"}


def test_section_that_fails_is_told_with_its_reason(monkeypatch, capfd):
    monkeypatch.setitem(isolation.SECTIONS, "growth", Section("not_there", "", ()))
    monkeypatch.setattr(isolation.importlib.util, "find_spec", lambda _name: object())
    # The section's process has the real table of sections, and is given a name that it does not know.
    monkeypatch.setitem(isolation.SECTIONS, "unknown", Section("unknown", "", ()))
    with pytest.raises(isolation.SectionFailed, match="KeyError: 'unknown'"):
        isolation.section_measure("unknown", Options(), Lines())
    assert "Traceback" in capfd.readouterr().err
