"""What the tests of live pages share."""

import time
from types import SimpleNamespace

import pytest

from couponsite import watching


@pytest.fixture
def no_fragment_due(monkeypatch) -> None:
    """Nothing is remembered; and nothing comes due by itself, for the clock stands still."""
    watching.fragments_forget()
    stopped = time.monotonic()
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: stopped))
