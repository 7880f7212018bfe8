"""The header of each Lua file is its contract: it must name the keys and codes that the code uses."""

import re

import pytest

from seize.keys import CountKeys, SeizeKeys
from seize.outcomes import Refusal
from seize.store import LUA_FOLDER

FILES = sorted(LUA_FOLDER.glob("*.lua"))


def header_of(name: str) -> str:
    text = (LUA_FOLDER / f"{name}.lua").read_text()
    assert text.startswith("--[[")
    return text[: text.index("]]\n")]


def keys_of(header: str) -> list[str]:
    lines = re.search(r"^  KEYS +(.*?)^  ARGV", header, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r"\[\d+\] (\w+)", lines)


def test_seize_takes_exactly_the_keys_of_an_activity_in_order():
    assert tuple(keys_of(header_of("seize"))) == SeizeKeys._fields


def test_codes_of_the_seize_header_are_those_of_the_enum():
    codes = re.findall(r"(-\d+) ([A-Z_]+)", header_of("seize"))
    assert {name: int(code) for code, name in codes} == {refusal.name: refusal.value for refusal in Refusal}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_header_names_every_key_and_argument_that_the_script_reads(path):
    text = path.read_text()
    header, code = text[: text.index("]]\n")], text[text.index("]]\n") :]
    assert re.search(r"^  RETURNS +\S", header, re.MULTILINE)
    assert re.search(r"^  ARGV +\S", header, re.MULTILINE)
    highest_key = max(int(number) for number in re.findall(r"KEYS\[(\d+)\]", code))
    assert highest_key == len(keys_of(header))
    assert set(keys_of(header)) <= {
        *SeizeKeys._fields,
        "list",
        "list_stamp",
        "lease",
        "drained",
        "listed_new",
        *CountKeys._fields,
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scripts_reach_keys_only_through_their_parameters(path):
    text = path.read_text()
    calls = re.findall(r"redis\.call\('([A-Z]+)'(?:, ([^,)]+))?", text)
    chosen = set(re.findall(r"^local (\w+) = \w+ and KEYS\[\d+\] or KEYS\[\d+\]$", text, re.MULTILINE))
    for command, key in calls:
        if command not in ("TIME", "INFO"):
            assert key.startswith("KEYS[") or key in chosen, (command, key)


def test_there_are_scripts():
    assert len(FILES) == 20
