"""Solving a challenge as a shopper's device does."""

import base64
import hashlib
import json


def solution_of(made: dict) -> dict:
    """The members of ALTCHA's payload; the number is found by trying all."""
    for number in range(made["maxnumber"] + 1):
        if hashlib.sha256(f"{made['salt']}{number}".encode()).hexdigest() == made["challenge"]:
            return {name: made[name] for name in ("algorithm", "challenge", "salt", "signature")} | {"number": number}
    raise AssertionError("no number solves it")


def packed(solution: object) -> str:
    """As it is sent."""
    return base64.b64encode(json.dumps(solution).encode()).decode()


def solve(made: dict) -> str:
    """What a device sends for a challenge."""
    return packed(solution_of(made))
