"""Each section runs in a process of its own: with its own Django and servers, and no section's fault ends another's."""

import importlib
import importlib.util
import multiprocessing
import signal
import traceback
from multiprocessing.connection import Connection

from bench.arguments import SECTIONS
from bench.options import Options
from bench.progress import Reporter

STOP_SECONDS = 60  # for a section's servers to stop


class SectionFailed(Exception):
    """A section ended without figures; the message says why."""


class _Told:
    """The section's side of progress: says everything to the process that shows it."""

    def __init__(self, told: Connection) -> None:
        self.told = told

    def expect(self, steps: int) -> None:
        self.told.send(("expect", steps))

    def step(self, what: str) -> None:
        self.told.send(("step", what))

    def leave_out(self, what: str, why: str) -> None:
        self.told.send(("leave_out", what, why))


def _interrupted(*_arguments: object) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the stopping of servers
    raise KeyboardInterrupt


def _section_run(name: str, options: Options, told: Connection) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    try:
        module = importlib.import_module(f"bench.{SECTIONS[name].module}")
        told.send(("figures", module.measure(options, _Told(told))))
    except KeyboardInterrupt:
        told.send(("interrupted",))
    except SystemExit:
        told.send(("failed", "something is missing, see the line that begins with 'error:'"))
    except Exception as fault:  # noqa: BLE001 - told to the other sections' process, which says so and goes on
        traceback.print_exc()
        told.send(("failed", f"{type(fault).__name__}: {fault}".splitlines()[0]))


def section_measure(name: str, options: Options, reporter: Reporter) -> dict:
    """Run a section and return its figures; what it says on the way goes to ``reporter``.

    :raises SectionFailed: it gave no figures.
    :raises KeyboardInterrupt: it was stopped by a signal.
    """
    # A module that comes with a later change: its absence is a reason, and no fault.
    if importlib.util.find_spec(f"bench.{SECTIONS[name].module}") is None:
        reporter.leave_out(name, "this section is not part of this version")
        return {}
    context = multiprocessing.get_context("spawn")
    hears, told = context.Pipe(duplex=False)
    process = context.Process(target=_section_run, args=(name, options, told))
    process.start()
    told.close()
    try:
        while True:
            try:
                kind, *said = hears.recv()
            except EOFError:
                process.join()
                raise SectionFailed(f"its process ended with code {process.exitcode}") from None
            if kind == "figures":
                return said[0]
            if kind == "interrupted":
                raise KeyboardInterrupt
            if kind == "failed":
                raise SectionFailed(said[0])
            getattr(reporter, kind)(*said)
    finally:
        if process.is_alive():
            process.join(1)
        if process.is_alive():
            process.terminate()
            process.join(STOP_SECONDS)
        if process.is_alive():
            process.kill()
