"""Actors that a test walks one step at a time: before every Redis command, SQL statement and commit they wait."""

import threading
from collections.abc import Callable
from contextlib import contextmanager

import redis
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from services import PATIENCE_S, wait_until

LOOK_S = 0.08  # an actor that reaches no next step in this time is looked for in the database: it may wait for a lock
LOCK_WAIT_S = 2  # as in production

_here = threading.local()


class Killed(BaseException):
    """The process died here: no ``except Exception`` runs, and the database rolls back. A ``finally`` does run."""


class Actor(threading.Thread):
    """One piece of the product's work in a thread of its own, that goes on only when it is told to."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.work = work
        self.steps = 0
        self.fault: BaseException | None = None
        self._go, self._arrived = threading.Semaphore(0), threading.Semaphore(0)
        self._killed = self._free = False
        self.start()
        self._arrived.acquire()

    def run(self) -> None:
        _here.actor = self
        try:
            self.pause()
            with connection.execute_wrapper(_sql_hook):
                self.work()
        except Killed:
            pass
        except BaseException as fault:  # noqa: BLE001 - the sweep looks at it
            self.fault = fault
        finally:
            _here.actor = None
            connection.close()
            self._free = True
            self._arrived.release()

    def pause(self) -> None:
        """Called by the hooks, in the actor's own thread."""
        if self._free:
            return
        self._arrived.release()
        self._go.acquire()
        if self._killed:
            self._free = True
            raise Killed
        self.steps += 1

    @property
    def ended(self) -> bool:
        return self._free

    def step(self) -> bool:
        """Let it do one thing; False when it has ended, or waits for another one's lock."""
        if not self.is_alive() or self._free:
            return False
        self._go.release()
        arrived = False

        def arrived_or_blocked() -> bool:
            nonlocal arrived
            arrived = self._arrived.acquire(timeout=LOOK_S)
            return arrived or bool(sessions_at_work())

        wait_until(arrived_or_blocked, what="an actor's next step")
        return arrived and not self._free

    def walk(self, steps: int) -> bool:
        """So many steps, alone, so that nothing can block it; False when it ended before."""
        for _ in range(steps):
            if self._free:
                return False
            self._go.release()
            assert self._arrived.acquire(timeout=PATIENCE_S), "it neither stepped nor ended"
        return not self._free

    def finish(self) -> None:
        """To the end, without waiting any more."""
        self._free = True
        self._go.release()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "an actor never ended"

    def kill(self) -> None:
        self._killed = True
        self._go.release()
        self.join(PATIENCE_S)
        assert not self.is_alive(), "an actor never died"


def sessions_at_work() -> int:
    """Other sessions of this database whose statement has been running for 50 ms: nearly always it waits for a lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Query' AND db = DATABASE() "
            "AND id <> CONNECTION_ID() AND time_ms > 50"
        )
        return cursor.fetchone()[0]


def _step_here() -> None:
    actor = getattr(_here, "actor", None)
    if actor is not None:
        actor.pause()


def _sql_hook(execute, sql, params, many, context):
    _step_here()
    return execute(sql, params, many, context)


@contextmanager
def steps_hooked(monkeypatch):
    """Inside, every Redis command, pipeline, SQL statement and commit of an actor is a step."""
    with monkeypatch.context() as patched:
        for owner, name in (
            (redis.Redis, "execute_command"),
            (redis.client.Pipeline, "execute"),
            (BaseDatabaseWrapper, "commit"),
        ):
            patched.setattr(owner, name, _hooked(getattr(owner, name)))
        # An actor that waits for one that stands is told so in the end: neither waits for the other for ever.
        options = connection.settings_dict["OPTIONS"]
        lock_wait = f", innodb_lock_wait_timeout={LOCK_WAIT_S}"
        patched.setitem(options, "init_command", options["init_command"] + lock_wait)
        yield


def _hooked(real):
    def call(*args, **kwargs):
        _step_here()
        return real(*args, **kwargs)

    return call
