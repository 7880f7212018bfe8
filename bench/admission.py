"""Section ``admission``: what limits cost the gate, and what they leave to honest shoppers among bots.

``off`` and ``on`` are two servers of the same code in turns, everybody wins: ``on`` with every limit that can be had
(in the process per shopper and for the site, in the script per shopper, rate, share of a gray release and a challenge
under pressure), none of which is ever used up, and ``off`` with none. ``challenge_check_us`` is what looking at a
solved challenge takes. Then shoppers with one request each, alone and among bots that send the rest of ten times the
gate's peak, some 500 requests each: ``honest_alone`` and ``honest_among_bots``, with as many coupons as honest
shoppers. There the challenge is always asked for. Shoppers' devices have solved it before; bots do not: the work is
what keeps them from being shoppers.
``.venv/bin/python -m bench.admission [--quick] [--rounds N]``.
"""

import base64
import json
import os
import statistics
import sys
import time
from contextlib import ExitStack
from typing import Any

import redis

from bench import contract, wrk
from bench.arguments import arguments_parse
from bench.contenders import Contender
from bench.http import BODY
from bench.openloop import SENDABLE, Generator, Result, files_raise, generators_run
from bench.options import Options, Progress
from bench.processes import tree_cpu_s
from bench.progress import reporter
from bench.sale import ACTIVITY_ID, FIRST_USER, STOCK, Sale, Tokens
from bench.stage import folder_clear

from services import Valkey, valkey_binary

SECONDS, SECONDS_QUICK, SECONDS_WARM = 8, 4, 2
ROWS = ("off", "on")
LIMITS = json.dumps({"asks": 20, "window_ms": 10_000, "rate": 100_000, "challenge": "pressure", "pressure": 10**7,
                     "effort": 50_000, "percent": 100})  # fmt: skip
ENVIRONMENT = {
    "off": {"LIMIT_SHOPPER": "", "LIMIT_ADDRESS": "", "LIMIT_SITE": "", "LIMIT_LOG_IN": ""},
    "on": {"LIMIT_SITE": "10000000/1"},
}
OVERLOAD, PER_BOT, HONEST_OF_PEAK = 10, 500, 0.25
BOT_CONNECTIONS, HONEST_CONNECTIONS = 4096, 2048
CHECKS = 2000


def measure(options: Options, progress: Progress) -> dict[str, Any]:
    """``{off: …, on: {rps, of_off, …}, challenge_check_us, bots: {honest_alone: …, honest_among_bots: …}}``.

    ``of_off`` is the median of each round's own ratio; ``won_of_alone`` the wins of honest shoppers beside those that
    the same shoppers had without bots.

    :raises bench.contract.AnswersWrongly: something else was answered than foreseen.
    """
    program = wrk.program()
    if program is None:
        progress.leave_out(
            "admission", "wrk is missing: Debian: as root 'apt-get install wrk'; macOS: brew install wrk"
        )
        return {}
    files_raise()
    seconds = SECONDS_QUICK if options.quick else SECONDS
    with ExitStack() as at_end:
        stage = _Stage(at_end, tokens=seconds * SENDABLE, program=program)
        progress.expect(len(ROWS) * options.rounds + 2)
        for row in ROWS:
            stage.run(row, seconds=SECONDS_WARM)
        runs: dict[str, list[dict[str, float]]] = {row: [] for row in ROWS}
        for number in range(options.rounds):
            for row in ROWS if number % 2 == 0 else ROWS[::-1]:
                progress.step(f"admission {row}")
                runs[row].append(stage.run(row, seconds=seconds))
        figures: dict[str, Any] = {}
        for row, measured in runs.items():
            ratios = [one["rps"] / base["rps"] for one, base in zip(measured, runs["off"], strict=True)]
            figures[row] = {
                "rps": round(statistics.median(run["rps"] for run in measured), 2),
                "of_off": round(statistics.median(ratios), 3),
                **{
                    key: round(statistics.median(run[key] for run in measured), 2)
                    for key in measured[0]
                    if key != "rps"
                },
            }
        peak = figures["on"]["rps"]
        progress.step("honest shoppers alone")
        alone = stage.crowd(peak=peak, seconds=seconds, with_bots=False)
        progress.step(f"honest shoppers among bots, {peak * OVERLOAD:,.0f} requests a second asked")
        among = stage.crowd(peak=peak, seconds=seconds, with_bots=True)
        among["won_of_alone"] = round(among["won"] / alone["won"], 3)
        return {
            **figures,
            "challenge_check_us": check_us(),
            "bots": {"honest_alone": alone, "honest_among_bots": among},
        }


class _Stage:
    """Valkey with a sale, and a server with and one without limits."""

    def __init__(self, at_end: ExitStack, *, tokens: int, program: str) -> None:
        self.program = program
        self.valkey = Valkey(
            folder_clear("valkey-admission"), binary=valkey_binary(), extra=("auto-aof-rewrite-percentage 0",)
        )
        at_end.callback(self.valkey.stop, kill=True)
        self.valkey.start()
        client = redis.Redis.from_url(self.valkey.url, decode_responses=True)
        at_end.callback(client.close)
        self.sale, self.tokens = Sale(client), Tokens(tokens)
        self.sale.open(stock=STOCK)
        self.servers: dict[str, Contender] = {}
        for row in ROWS:
            server = Contender("gate", redis_url=self.valkey.url, database_url="")
            server.environment |= ENVIRONMENT[row]
            at_end.callback(server.stop)
            server.start()
            contract.seizing_check(row, port=server.port, sale=self.sale)
            self.servers[row] = server

    def run(self, row: str, *, seconds: float) -> dict[str, float]:
        """Everybody wins."""
        server = self.servers[row]
        self.sale.open(stock=STOCK, access=LIMITS if row == "on" else "")
        time.sleep(0.5)
        asked = wrk.Load("POST", contract.SEIZE, BODY, 0, self.tokens.count, "stop")
        assert self.valkey.process is not None
        web, store = tree_cpu_s(server.pid), tree_cpu_s(self.valkey.process.pid)
        run = wrk.run(self.program, asked, port=server.port, tokens=self.tokens, seconds=seconds)
        web, store = tree_cpu_s(server.pid) - web, tree_cpu_s(self.valkey.process.pid) - store
        sold = self.sale.settled()
        if run.refused or run.broken or not run.requests <= sold.taken <= run.requests + wrk.CONNECTIONS:
            raise contract.AnswersWrongly(f"admission {row}: {run}, sold {sold}")
        self.sale.close()
        return run.figures(web_s=web, redis_s=store)

    def crowd(self, *, peak: float, seconds: float, with_bots: bool) -> dict[str, Any]:
        """As many coupons as honest shoppers, who ask once each through the whole time."""
        port = self.servers["on"].port
        honest = int(peak * HONEST_OF_PEAK * seconds)
        bots = max(1, int(peak * (OVERLOAD - HONEST_OF_PEAK) * seconds / PER_BOT))
        self.sale.open(stock=honest, access=json.dumps({**json.loads(LIMITS), "challenge": "always"}))
        shared = {"port": port, "tokens": self.tokens, "seconds": seconds}
        made: list[tuple[Generator, int]] = [
            (Honest(solutions(honest), first=0, count=honest, rate=honest / seconds, **shared), HONEST_CONNECTIONS)
        ]
        if with_bots:
            rate = peak * (OVERLOAD - HONEST_OF_PEAK)
            made.append((Bots(first=honest, count=bots, rate=rate, **shared), BOT_CONNECTIONS))
        told = generators_run(made, seconds=seconds)
        sold = self.sale.settled()
        self.sale.close()
        own = told[0]
        won_by_all = sum(result.codes.get("201", 0) for result in told)
        silent = sum(result.unanswered + result.codes.get("503 OUTCOME_UNKNOWN", 0) for result in told)
        if not won_by_all <= sold.taken <= min(honest, won_by_all + silent):
            raise contract.AnswersWrongly(f"bots: {won_by_all} heard 201, {silent} heard nothing, sold {sold}")
        return {
            "honest": honest,
            "sent": own.sent,
            "won": own.codes.get("201", 0),
            "answers": own.answers,
            "p50_ms": own.percentile_ms(50),
            "p99_ms": own.percentile_ms(99),
            **(_of_bots(told[1], bots=bots, seconds=seconds) if with_bots else {}),
        }


def _of_bots(result: Result, *, bots: int, seconds: float) -> dict[str, Any]:
    return {
        "bots": bots,
        "bot_rps": round(result.sent / seconds),
        "bot_answers": result.answers,
    }


class Honest(Generator):
    """Shoppers that ask once, with their challenge solved."""

    def __init__(self, solved: list[str], **given: Any) -> None:
        super().__init__(**given)
        self.tail = b""
        self.bodies = [json.dumps({"id": str(ACTIVITY_ID), "seq": 1, "altcha": text}) for text in solved]

    def _records(self) -> Any:
        for token, body in zip(super()._records(), self.bodies, strict=True):
            head = f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            yield token + head.encode()


class Bots(Generator):
    """Shoppers that ask again and again, whatever they are told, and never do the work: each in its turn."""

    def _records(self) -> Any:
        width = self.tokens.width
        with self.tokens.path.open("rb") as file:
            file.seek(self.first * width)
            tokens = [file.read(width) for _number in range(self.count)]
        while True:
            yield from tokens


def solutions(number: int) -> list[str]:
    """Solved challenges of the sale for the first shoppers; each is easy, so that the machine is not kept busy here."""
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")
    django.setup()
    from seize.challenge import challenge_make

    solved, now_ms = [], int(time.time() * 1000)
    for user_id in range(FIRST_USER, FIRST_USER + number):
        made = challenge_make(activity_id=ACTIVITY_ID, user_id=user_id, effort=1, now_ms=now_ms)  # it can only be 1
        members = {name: made[name] for name in ("algorithm", "challenge", "salt", "signature")}
        solved.append(base64.b64encode(json.dumps({**members, "number": 1}).encode()).decode())
    return solved


def check_us() -> float:
    """What looking at a solved challenge takes, µs: the median of many."""
    [text] = solutions(1)
    from seize.challenge import solution_check

    took_us = []
    for _check in range(CHECKS):
        began = time.perf_counter_ns()
        assert solution_check(text, activity_id=ACTIVITY_ID, user_id=FIRST_USER) > 0
        took_us.append((time.perf_counter_ns() - began) / 1000)
    return round(statistics.median(took_us), 1)


if __name__ == "__main__":
    chosen, _sections = arguments_parse(["admission", *sys.argv[1:]])
    with reporter() as shown:
        shown.begin("admission")
        figures = measure(chosen, shown)
    print(json.dumps({"admission": figures, "left_out": shown.left_out}, indent=1))
