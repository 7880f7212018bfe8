"""What ``script/bench`` may be asked for. Standard library only: it is read before anything is installed."""

import argparse
import sys
from dataclasses import dataclass
from typing import NoReturn

from bench.options import Options


@dataclass(frozen=True, slots=True)
class Section:
    """``module`` of this package measures it; ``rows`` are the names that ``--only`` takes; ``base`` is what
    the others are compared with in the tables (None: the first row).
    """

    module: str
    what: str
    rows: tuple[str, ...]
    base: str | None = None


CONTENDERS = ("gate", "drf_view", "stock_drf", "fastapi", "fastify", "nginx_lua")
MIXES = ("win", "win_everysec", "sold_out", "repeat", "list", "my", "claim")
SECTIONS = {
    "http": Section(
        "http",
        "requests/s, latency and CPU of the seize endpoint and of its peers",
        (*CONTENDERS, *MIXES),
        "gate",
    ),
    "strategies": Section(
        "strategies",
        "six ways to sell a stock once, and a control that must oversell",
        ("lua", "decr", "redis_lock", "redis_lock_short", "cas", "pessimistic", "in_process_lock", "in_process_lock_2",
         "naive"),
        "lua",
    ),
    "redis": Section("redis_batches", "what a seize costs Redis, by shoppers a script call", ("grant", "refuse"), "1"),
    "sync": Section(
        "sync",
        "from the queue to the ledger: rows/s, and lag under load",
        ("row_by_row", "multi_row", "load_data", "drain", "lag_p99_s", "backlog_100k_s"),
        "drain",
    ),
    "checkout": Section(
        "checkout",
        "wallet and checkout over HTTP, with a million coupons in the ledger and with ten thousand",
        ("my", "available", "redeem", "roll_back"),
    ),
    "growth": Section("growth", "what a seize costs as the numbers grow", ("holders", "activities", "queue", "memory")),
    "export": Section(
        "export",
        "winners and redemptions of one activity as a stream: rows/s and peak memory",
        ("winners", "redemptions"),
        "winners",
    ),
    "openloop": Section("openloop", "latency at a given rate, and overload", ("gate",)),
    "live": Section(
        "live", "what 20 watchers of the live page cost the gate, and what counting does",
        ("unwatched", "watched", "uncounted"), "unwatched",
    ),
    "admission": Section(
        "admission", "what limits cost the gate, and what honest shoppers win among bots", ("off", "on"), "off",
    ),
}  # fmt: skip
ROUNDS, ROUNDS_QUICK, ROUNDS_MAX = 3, 1, 99

EXAMPLES = """\
examples:
  script/bench --quick                  a look at everything, at most 5 minutes
  script/bench                          the run that counts
  script/bench strategies redis         two sections
  script/bench --only fastify --rounds 5 http

Numbers of one run can be compared with each other, and with no other machine's: close what else runs.
"""


class _Parser(argparse.ArgumentParser):
    """One line for what is wrong; ``--help`` has the rest."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {message} (script/bench --help explains)", file=sys.stderr)
        raise SystemExit(2)


def _rounds(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= ROUNDS_MAX:
        raise argparse.ArgumentTypeError(f"a number from 1 to {ROUNDS_MAX}, not {text!r}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The options, explained for somebody who has never run it."""
    sections = "\n".join(f"  {name:<12}{section.what}" for name, section in SECTIONS.items())
    made = _Parser(
        prog="script/bench",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description=(
            "Measure this product beside its alternatives, on this machine. Installs what it needs (and says what\n"
            "it could not), starts private servers on loopback, lets all contenders take turns in every round,\n"
            "prints medians, and writes var/bench/latest.json and var/bench/latest.svg.\n\n"
            f"sections (default: all, in this order):\n{sections}"
        ),
        epilog=EXAMPLES,
    )
    made.add_argument("sections", nargs="*", metavar="SECTION", help="what to measure, see above")
    made.add_argument("--quick", action="store_true", help="shorter runs: at most 5 minutes in all, for a look")
    made.add_argument(
        "--rounds", type=_rounds, metavar="N", help=f"rounds of all contenders (default {ROUNDS}, quick {ROUNDS_QUICK})"
    )
    made.add_argument("--only", metavar="NAME", help="one contender or row: " + ", ".join(rows_known()))
    return made


def rows_known(sections: tuple[str, ...] = tuple(SECTIONS)) -> list[str]:
    """Names that ``--only`` takes in these sections, each once."""
    return list(dict.fromkeys(row for name in sections for row in SECTIONS[name].rows))


def arguments_parse(arguments: list[str]) -> tuple[Options, tuple[str, ...]]:
    """Options, and the sections to measure in their fixed order; with ``--only`` those that have the row.

    :raises SystemExit: code 2 and one line, for what cannot be meant; 0 after ``--help``.
    """
    made = parser()
    given = made.parse_args(arguments)
    for name in given.sections:
        if name not in SECTIONS:
            made.error(f"there is no section {name!r}: {', '.join(SECTIONS)}")
    sections = tuple(name for name in SECTIONS if not given.sections or name in given.sections)
    if given.only is not None:
        known = rows_known(sections)
        sections = tuple(name for name in sections if given.only in SECTIONS[name].rows)
        if not sections:
            made.error(f"--only: there is no row {given.only!r}: {', '.join(known)}")
    rounds = given.rounds or (ROUNDS_QUICK if given.quick else ROUNDS)
    return Options(quick=given.quick, rounds=rounds, only=given.only), sections
