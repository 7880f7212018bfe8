"""What a shopper reads: outcomes as status, body and headers; the same for the view and every faster front."""

import functools
import math

from seize.outcomes import Refusal, Refused, Won
from seize.problems import Problem, pace_headers, retry_after
from seize.times import moment_of

CLAIM_URL = "/market/consumer/activity/{}/claim"
CHALLENGE_URL = "/market/consumer/activity/{}/challenge"


@functools.lru_cache(maxsize=4096)
def rfc3339(unix_ms: int) -> str:
    """Unix ms as RFC 3339 text in UTC, to the millisecond; a crowd asks for the same ones again and again."""
    return moment_of(unix_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def won_response(won: Won) -> tuple[int, dict[str, object]]:
    """Status and body of a coupon won (201) or won before (200).

    A replay whose claim has left the queue is ``settled`` and has no ``seized_at``: the ledger knows it.
    """
    body: dict[str, object] = {"code": "SEIZED", "activity_id": str(won.activity_id), "seq": won.seq}
    if won.seized_ms:
        body |= {"seized_at": rfc3339(won.seized_ms), "state": "pending"}
    else:
        body["state"] = "settled"
    body |= {"claim_url": CLAIM_URL.format(won.activity_id), "server_time": rfc3339(won.now_ms)}
    return (200 if won.replay else 201), body


def refused_problem(refused: Refused) -> Problem:
    """The problem that tells a shopper why there is no coupon, and when asking again makes sense."""
    members: dict[str, object] = {"activity_id": str(refused.activity_id), "server_time": rfc3339(refused.now_ms)}
    headers: dict[str, str] = {}
    match refused.refusal:
        case Refusal.LIMIT_REACHED:
            members |= {"held": refused.held, "claim_url": CLAIM_URL.format(refused.activity_id)}
        case Refusal.NOT_STARTED:
            members["starts_at"] = rfc3339(refused.starts_ms)
            wait_s = math.ceil((refused.starts_ms - refused.now_ms) / 1000)
            headers = retry_after(earliest_s=max(1, wait_s), spread_s=2)
        case Refusal.PAUSED:
            headers = retry_after(earliest_s=5, spread_s=10)
        case Refusal.NOT_READY:
            headers = retry_after(earliest_s=1, spread_s=2)
        case Refusal.TOO_MANY_REQUESTS:
            headers = pace_headers(refused.pace)
        case Refusal.CHALLENGE_REQUIRED | Refusal.CHALLENGE_INVALID:
            members["challenge_url"] = CHALLENGE_URL.format(refused.activity_id)
    return Problem(refused.refusal.name, members=members, headers=headers)
