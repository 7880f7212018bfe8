"""script/server waits for what moves, says what is missing, and gives up by name."""

import threading
from types import SimpleNamespace

import console
import pytest
import server
import supervision
from project import lock_take
from services import PATIENCE_S, wait_until


class Clock:
    """Time that goes by only while somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(server, "time", made)
    return made


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(server, "RUN", tmp_path)
    monkeypatch.setattr(server, "STATE", tmp_path / "server.json")
    monkeypatch.setattr(server, "LOGS", tmp_path)
    monkeypatch.setattr(supervision, "LOGS", tmp_path)


ALIVE = SimpleNamespace(poll=lambda: None)


def test_wait_goes_on_for_as_long_as_one_part_after_the_other_comes(clock):
    """Nine minutes each: longer in all than the ten without anything after which it gives up."""

    def missing() -> list[str]:
        return ["web", "worker", "flower"][int(clock.now // 540) :]

    server.parts_wait(ALIVE, missing)
    assert 1620 <= clock.now < 1621


def test_after_ten_minutes_without_anything_it_names_what_never_answered(clock, capsys):
    with pytest.raises(SystemExit) as refused:
        server.parts_wait(ALIVE, lambda: ["web", "flower"] if clock.now < 100 else ["flower"])
    assert refused.value.code == 2
    assert "error: nothing more has answered for 10 min 0 s, missing: flower; see" in capsys.readouterr().err
    assert 700 <= clock.now < 701


def test_part_that_comes_and_goes_is_no_progress(clock, capsys):
    with pytest.raises(SystemExit):
        server.parts_wait(ALIVE, lambda: ["web", "flower"] if int(clock.now) % 2 else ["web"])
    assert clock.now < 602
    assert "missing: web" in capsys.readouterr().err


def test_supervisord_that_ended_is_waited_for_no_longer(clock, capsys):
    with pytest.raises(SystemExit):
        server.parts_wait(SimpleNamespace(poll=lambda: 1, returncode=1), lambda: ["web"])
    assert "supervisord ended with code 1" in capsys.readouterr().err
    assert clock.now == 0


def test_program_that_ends_again_and_again_is_named_at_once(clock, capsys, tmp_path):
    log = tmp_path / "supervisord.log"
    log.write_text("INFO exited: worker (exit status 1; not expected)\n" * 9)  # of an earlier run

    def missing() -> list[str]:
        with log.open("a") as lines:
            lines.write("2026-12-12 INFO exited: web (exit status 1; not expected)\n")
        return ["web"]

    with pytest.raises(SystemExit):
        server.parts_wait(ALIVE, missing)
    assert "error: web ended 5 times; see the lines above" in capsys.readouterr().err
    assert clock.now < 10


def test_what_is_missing_is_said_again_and_again_while_it_is_waited_for(monkeypatch, capsys):
    monkeypatch.setattr(console, "EVERY_S", 0.01)
    said = ""

    def missing() -> list[str]:
        nonlocal said
        said += capsys.readouterr().out
        if "waiting for flower" in said:
            return []
        return ["flower"] if "waiting for web, flower" in said else ["web", "flower"]

    server.parts_wait(ALIVE, missing)
    assert "    … waiting for web, flower (0 s)\n" in said


def said_by(capsys, words: str) -> None:
    """Wait until somebody says so."""
    said: list[str] = []
    wait_until(lambda: said.append(capsys.readouterr().out) or words in "".join(said), what=words)


def start_again() -> tuple[threading.Thread, list[object]]:
    """A second start in a thread, and the lock that it gets."""
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(server.lock_wait()))
    thread.start()
    return thread, got


def test_second_start_waits_for_one_that_starts_and_then_says_where_it_is(tmp_path, capsys):
    lock = lock_take(tmp_path / "lock")
    thread, got = start_again()
    said_by(capsys, "another script/server is starting here, waiting for it")
    server.state_write("starting")
    assert thread.is_alive()
    server.state_write("ready", port=8000, flower_port=5555)
    thread.join(PATIENCE_S)
    assert got == [None]
    said = capsys.readouterr().out
    assert "script/server is already running here (pid " in said
    assert "http://127.0.0.1:8000/admin/" in said
    lock.close()


def test_second_start_waits_for_one_that_stops_and_takes_its_place(tmp_path, capsys):
    lock = lock_take(tmp_path / "lock")
    server.state_write("stopping")
    thread, got = start_again()
    said_by(capsys, "another script/server is stopping here, waiting for it")
    assert thread.is_alive()
    server.STATE.unlink()
    lock.close()
    thread.join(PATIENCE_S)
    assert got != [None]
    got[0].close()
