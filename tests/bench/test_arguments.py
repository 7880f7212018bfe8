"""What may be asked of script/bench, and what it says to what may not."""

import subprocess
from pathlib import Path

import pytest
from services import PATIENCE_S

from bench.arguments import SECTIONS, arguments_parse
from bench.options import Options

ROOT = Path(__file__).resolve().parents[2]


def test_without_arguments_everything_is_measured_in_three_rounds():
    assert arguments_parse([]) == (Options(quick=False, rounds=3, only=None), tuple(SECTIONS))


def test_quick_is_one_round_unless_rounds_are_given():
    assert arguments_parse(["--quick"])[0] == Options(quick=True, rounds=1)
    assert arguments_parse(["--quick", "--rounds", "5"])[0] == Options(quick=True, rounds=5)


def test_sections_run_in_their_own_order_each_once():
    assert arguments_parse(["redis", "http", "redis"])[1] == ("http", "redis")


def test_only_leaves_the_sections_that_have_the_row():
    options, sections = arguments_parse(["--only", "cas"])
    assert (options.only, sections) == ("cas", ("strategies",))
    assert options.wants("cas")
    assert not options.wants("lua")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rounds", "0"], "from 1 to 99"),
        (["--rounds", "many"], "from 1 to 99"),
        (["--rounds"], "--rounds"),
        (["nginx"], "there is no section 'nginx'"),
        (["--only", "apache"], "there is no row 'apache'"),
        (["--only", "lua", "http"], "there is no row 'lua'"),
        (["--fast"], "--fast"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_exit_code_2(arguments, named, capsys):
    with pytest.raises(SystemExit) as ended:
        arguments_parse(arguments)
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert named in said.err


def test_help_explains_every_section(capsys):
    with pytest.raises(SystemExit) as ended:
        arguments_parse(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert [name for name, section in SECTIONS.items() if f"  {name:<12}{section.what}" not in shown] == []


def test_script_refuses_before_it_installs_anything():
    command = [ROOT / "script/bench", "--rounds", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: argument --rounds: a number from 1 to 99, not '0' (script/bench --help explains)\n"
