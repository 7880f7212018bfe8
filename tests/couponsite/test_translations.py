"""Chinese is complete, and what is compiled is what is written.

To compile after translating: ``.venv/bin/pybabel compile -d locale -D django -l zh_Hans``.
"""

import io
from pathlib import Path

from babel.messages.extract import extract, extract_from_file
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES"
KEYWORDS = {"_": None, "gettext": None, "gettext_lazy": None}


def messages_in_the_code() -> set[str]:
    found: set[str] = set()
    for app in ("activities", "centre", "couponsite", "seize", "sync"):
        for path in (ROOT / app).rglob("*.py"):
            for _line, message, _comments, _context in extract_from_file("python", str(path), keywords=KEYWORDS):
                found.add(str(message))
    for path in (ROOT / "templates").rglob("*.html"):
        # As makemessages reads templates: blocks with gaps as well as single texts.
        source = io.BytesIO(templatize(path.read_text()).encode())
        found.update(str(message) for _line, message, *_rest in extract("python", source, keywords=KEYWORDS))
    return found


def test_every_text_of_the_code_is_translated():
    catalog = read_po(io.BytesIO((FOLDER / "django.po").read_bytes()), locale="zh_Hans")
    translated = {message.id for message in catalog if message.string and not message.fuzzy}
    in_code = messages_in_the_code()
    assert len(in_code) > 100
    assert sorted(in_code - translated) == []


def test_compiled_catalogue_is_up_to_date():
    written = read_po(io.BytesIO((FOLDER / "django.po").read_bytes()), locale="zh_Hans")
    compiled = read_mo(io.BytesIO((FOLDER / "django.mo").read_bytes()))
    as_pairs = [{m.id: m.string for m in catalog if m.id} for catalog in (written, compiled)]
    assert as_pairs[0] == as_pairs[1]
