"""Actors that a test walks one step at a time: before every Redis command, SQL statement and commit they wait."""

import threading
from collections.abc import Callable
from contextlib import contextmanager

import redis
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

BLOCKED_S = 0.08  # an actor that reaches no next step in this time waits for another one's lock

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

    def step(self, *, patience_s: float = BLOCKED_S) -> bool:
        """Let it do one thing; False when it has ended, or waits for a lock."""
        if not self.is_alive() or self._free:
            return False
        self._go.release()
        return self._arrived.acquire(timeout=patience_s) and not self._free

    def walk(self, steps: int) -> bool:
        """So many steps, alone, so that nothing can block it; False when it ended before."""
        walked = all(self.step(patience_s=30) for _ in range(steps))
        assert walked or self.ended, "it neither stepped nor ended"
        return walked

    def finish(self) -> None:
        """To the end, without waiting any more."""
        self._free = True
        self._go.release()
        self.join(30)
        assert not self.is_alive(), "an actor never ended"

    def kill(self) -> None:
        self._killed = True
        self._go.release()
        self.join(30)
        assert not self.is_alive(), "an actor never died"


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
        yield


def _hooked(real):
    def call(*args, **kwargs):
        _step_here()
        return real(*args, **kwargs)

    return call
