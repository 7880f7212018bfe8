"""What the Python peers answer: the reply of ``seize.lua`` as status and JSON members, without any of our code."""

import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCRIPT = Path(os.environ["SEIZE_LUA"]).read_text()
CODES = {
    -1: ("LIMIT_REACHED", 409, "You already have as many coupons of this activity as one shopper may."),
    -2: ("SOLD_OUT", 409, "All coupons of this activity are gone."),
    -3: ("NOT_STARTED", 409, "This activity has not started yet."),
    -4: ("ENDED", 410, "This activity has ended."),
    -5: ("PAUSED", 409, "This activity is paused. Please try again later."),
    -6: ("VOIDED", 410, "This activity was withdrawn."),
    -7: ("UNKNOWN_ACTIVITY", 404, "There is no such activity."),
    -8: ("NOT_READY", 503, "Not ready yet. Nothing happened: please try again shortly."),
}


def keys_of(activity_id: str) -> list[str]:
    """The keys that the script takes."""
    shard = int(activity_id) % 10
    return [
        f"COUPON:SHARD:{{{shard}}}",
        f"COUPON:ACTIVITY:RULES:{{{shard}}}:{activity_id}",
        f"COUPON:RESOURCE:STOCK:{{{shard}}}",
        f"COUPON:SEIZE:LIST:{{{shard}}}:{activity_id}",
        f"QUEUE:COUPON:SEIZE:SYNC:{{{shard}}}",
        f"COUPON:LISTED:{{{shard}}}:{activity_id}",
        f"COUPON:STAFF:{{{shard}}}",
        f"COUPON:ASKED:{{{shard}}}:{activity_id}:0",
        f"COUPON:ASKED:{{{shard}}}:{activity_id}:1",
    ]


def answer(reply: list[Any], activity_id: str) -> tuple[int, dict[str, Any]]:
    """Status and body for one shopper's reply."""
    now, entry = _time(reply[0]), reply[2]
    claim_url = f"/market/consumer/activity/{activity_id}/claim"
    if len(entry) == 4:
        body: dict[str, Any] = {"code": "SEIZED", "activity_id": activity_id, "seq": entry[1]}
        body |= {"seized_at": _time(entry[2]), "state": "pending"} if entry[2] else {"state": "settled"}
        body |= {"claim_url": claim_url, "server_time": now}
        return (200 if entry[3] else 201), body
    code, status, title = CODES[entry[0]]
    body = problem(code, status, title) | {"activity_id": activity_id, "server_time": now}
    if code == "LIMIT_REACHED":
        body |= {"held": entry[1], "claim_url": claim_url}
    return status, body


def problem(code: str, status: int, title: str) -> dict[str, Any]:
    """The members of RFC 9457 problem details."""
    type_ = f"urn:problem:{code.lower().replace('_', '-')}"
    return {"type": type_, "title": title, "status": status, "code": code, "instance": uuid.uuid4().hex}


def _time(unix_ms: int) -> str:
    moment = datetime.fromtimestamp(unix_ms // 1000, tz=UTC).replace(microsecond=unix_ms % 1000 * 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
