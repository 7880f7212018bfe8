"""Does a contender do the job? Asked before anything is timed: a fast wrong answer is worth nothing."""

import http.client
import json
import time
from typing import Any

from bench import reading
from bench.sale import ACTIVITY_ID, FIRST_USER, Sale, token_sign

SEIZE = "/market/consumer/coupon/seize"
LIST = "/market/consumer/activity/list?tab=ongoing"
MY = "/market/consumer/coupon/my"
CLAIM = f"/market/consumer/activity/{reading.CLAIM_ID}/claim"
WON = {"code", "activity_id", "seq", "seized_at", "state", "claim_url", "server_time"}
PROBLEM = {"type", "title", "status", "code", "instance"}
OF_ACTIVITY = PROBLEM | {"activity_id", "server_time"}
CLAIM_URL = f"/market/consumer/activity/{ACTIVITY_ID}/claim"


class AnswersWrongly(Exception):
    """A contender does not do the job that is measured."""


class Asker:
    """One connection to a contender."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def ask(self, method: str, path: str, *, token: str | None, body: str | None = None) -> tuple[int, Any]:
        """Status and JSON body."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        self.connection.request(method, path, body=body, headers=headers)
        response = self.connection.getresponse()
        text = response.read()
        kind = response.headers.get("Content-Type", "")
        wanted = "application/json" if response.status < 400 else "application/problem+json"
        self.expect(kind.startswith(wanted), f"{method} {path}: {response.status} {kind} {text[:300]!r}")
        return response.status, json.loads(text)

    def seize(self, token: str | None, wish: object) -> tuple[int, Any]:
        """Ask for a coupon."""
        return self.ask("POST", SEIZE, token=token, body=json.dumps(wish, separators=(",", ":")))

    def expect(self, holds: bool, answer: object) -> None:  # noqa: FBT001 - reads as a sentence
        """:raises AnswersWrongly: it does not hold."""
        if not holds:
            raise AnswersWrongly(f"{self.name}: {answer}")


def seizing_check(name: str, *, port: int, sale: Sale) -> None:
    """Win, repeat, be refused, for every reason that the mixes and their tokens rely on.

    :raises AnswersWrongly: an answer is not ours.
    """
    asker, soon = Asker(name, port), int(time.time()) + 3600
    wish, ours = {"id": str(ACTIVITY_ID), "seq": 1}, token_sign(FIRST_USER, expires_s=soon)

    sale.open(stock=2)
    status, body = won = asker.seize(ours, wish)
    asker.expect(status == 201 and set(body) == WON and body["code"] == "SEIZED", won)
    asker.expect((body["activity_id"], body["seq"], body["state"]) == (str(ACTIVITY_ID), 1, "pending"), won)
    asker.expect(body["claim_url"] == CLAIM_URL and body["seized_at"].endswith("Z"), won)
    status, again = asker.seize(ours, wish)
    asker.expect(status == 200 and {**again, "server_time": ""} == {**body, "server_time": ""}, again)
    status, body = asker.seize(ours, {"id": str(ACTIVITY_ID)})
    asker.expect((status, body["code"], body["held"]) == (409, "LIMIT_REACHED", 1), body)
    asker.expect(set(body) == OF_ACTIVITY | {"held", "claim_url"}, body)
    status, body = asker.seize(ours, {"id": str(ACTIVITY_ID + 1000), "seq": 1})
    asker.expect((status, body["code"]) == (404, "UNKNOWN_ACTIVITY") and set(body) == OF_ACTIVITY, body)

    bad = {
        "no token": None,
        "no token at all": "abc",
        "forged": token_sign(
            FIRST_USER + 1, expires_s=soon, secret="another secret of more than thirty-two characters"
        ),
        "changed": ours[:-5] + ("AAAAA" if ours[-5:] != "AAAAA" else "BBBBB"),
        "expired": token_sign(FIRST_USER + 1, expires_s=soon - 7200),
        "refresh": token_sign(FIRST_USER + 1, expires_s=soon, token_type="refresh"),
    }
    for what, token in bad.items():
        status, body = asker.seize(token, wish)
        asker.expect((status, body["code"]) == (401, "UNAUTHENTICATED"), f"{what}: {status} {body}")
    for wrong in ({}, {"id": "abc", "seq": 1}, {"id": str(ACTIVITY_ID), "seq": 0.5}, [1]):
        status, body = asker.seize(ours, wrong)
        asker.expect((status, body["code"]) == (400, "INVALID_REQUEST"), f"{wrong}: {status} {body}")
    asker.expect(sale.sold() == (1, 1, 1), f"sold {sale.sold()} after one win")

    sale.open(stock=0)
    status, body = asker.seize(ours, wish)
    asker.expect((status, body["code"]) == (409, "SOLD_OUT") and set(body) == OF_ACTIVITY, body)
    asker.expect(sale.sold() == (0, 0, 0), f"sold {sale.sold()} of nothing")


def reading_check(name: str, *, port: int) -> None:
    """The list, a shopper's coupons, the state of a claim.

    :raises AnswersWrongly: an answer does not hold what was filled in.
    """
    asker, token = Asker(name, port), token_sign(FIRST_USER, expires_s=int(time.time()) + 3600)
    status, body = asker.ask("GET", LIST, token=None)
    ids = sorted(int(result["id"]) for result in body["results"])
    asker.expect((status, ids) == (200, reading.ACTIVITY_IDS), body)
    status, body = asker.ask("GET", MY, token=token)
    states = [result["state"] for result in body["results"]]
    asker.expect((status, states) == (200, ["pending", "issued", "issued", "issued"]), body)
    status, body = asker.ask("GET", CLAIM, token=token)
    asker.expect((status, [claim["state"] for claim in body["claims"]]) == (200, ["pending"]), body)
