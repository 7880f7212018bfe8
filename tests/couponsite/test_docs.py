"""Documents promise only what is there: named tests, paths, settings, commands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def defined_tests() -> set[str]:
    sources = (path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    return {name for source in sources for name in re.findall(r"def (test_\w+)", source)}


def test_lessons_table_names_exactly_the_tests_that_name_a_lesson():
    documented = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/seize.md").read_text()))
    defined = defined_tests()
    assert sorted(documented - defined) == []
    lessons = {name for name in defined if re.search(r"_[lp]\d\d_", name)}
    assert sorted(lessons - documented) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_paths_lead_somewhere(document):
    text = document.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert [link for link in links if not (document.parent / link).exists()] == []
    paths = re.findall(r"`((?:script|seize|sync|activities|couponsite|docs|tests)/[\w./-]*)`", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_setting_is_in_the_example_and_nothing_else():
    code = (ROOT / "couponsite/settings.py").read_text()
    scripts = "".join(path.read_text() for path in (ROOT / "script/lib").glob("*.py"))
    used = set(re.findall(r'env(?:\.\w+)?\([\'"](\w+)', code)) | set(
        re.findall(r'(?:secret|limit)_read\("(\w+)"', code)
    )
    used |= set(re.findall(r'(?:setting|port_choose)\(\'?"?(\w+)', scripts)) | {"VAR_DIR"}
    example = set(re.findall(r"^#(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert example == {name for name in used if name.isupper()}


def test_commands_in_the_readme_exist():
    named = set(
        re.findall(r"^\| `(\w+)[^`]*` \|", (ROOT / "README.md").read_text().split("## Commands")[1], re.MULTILINE)
    )
    found = {path.stem for path in ROOT.glob("*/management/commands/*.py")} - {"__init__"}
    assert named == found
