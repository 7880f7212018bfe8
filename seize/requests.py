"""The one parser of the seize request, for the view and for every faster front; and of ids and queries."""

import random
import re
from collections.abc import Collection
from dataclasses import dataclass

import orjson
from django.http import QueryDict

ID_MAX = 2**63 - 1
BODY_MAX_BYTES = 1024
SEQ_MAX = 1_000_000
ALTCHA_MAX = 700
_FIELDS = {"id", "seq", "altcha"}
_ID_PASSED_ON = re.compile(r"[A-Za-z0-9._-]{8,64}")


class RequestInvalid(Exception):
    """The body is not a seize request; ``str()`` says what to change."""


class RequestTooLarge(RequestInvalid):
    """The body is longer than any seize request."""


@dataclass(frozen=True, slots=True)
class SeizeRequest:
    """A wish for a coupon. ``seq`` 0 = the shopper's next one; 1, 2, … = exactly that one, which may be repeated.

    ``altcha``: what solves the activity's challenge, '' for nothing; it is not looked into here.
    """

    activity_id: int
    seq: int
    altcha: str = ""


def seize_request_parse(body: bytes) -> SeizeRequest:
    """Parse ``{"id": "12", "seq": 1}``; ids are decimal strings or integers from 1 to 2**63 - 1.

    :raises RequestTooLarge: above 1 kB.
    :raises RequestInvalid: anything else that is not exactly that.
    """
    if len(body) > BODY_MAX_BYTES:
        raise RequestTooLarge(f"The body may have at most {BODY_MAX_BYTES} bytes.")
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise RequestInvalid('The body must be JSON such as {"id": "12", "seq": 1}.') from None
    if type(data) is not dict:
        raise RequestInvalid('The body must be a JSON object such as {"id": "12", "seq": 1}.')
    if not data.keys() <= _FIELDS:
        unknown = min(data.keys() - _FIELDS)
        raise RequestInvalid(f"Unknown field {unknown[:40]!r}: the body may hold 'id', 'seq' and 'altcha' only.")
    activity_id = id_parse(data.get("id"))
    if activity_id is None:
        raise RequestInvalid("'id' must be the activity's id: a decimal string or integer from 1 to 2^63-1.")
    seq = data.get("seq", 0)
    if type(seq) is not int or ("seq" in data and not 1 <= seq <= SEQ_MAX):
        raise RequestInvalid("'seq' must be an integer from 1: which of your coupons this is.")
    altcha = data.get("altcha", "")
    if type(altcha) is not str or not (altcha.isascii() and ("altcha" not in data or 0 < len(altcha) <= ALTCHA_MAX)):
        raise RequestInvalid(
            f"'altcha' must be what solves a challenge: base64 text of at most {ALTCHA_MAX} characters."
        )
    return SeizeRequest(activity_id=activity_id, seq=seq, altcha=altcha)


def id_parse(value: object) -> int | None:
    """A canonical id from 1 to 2**63 - 1 as integer or ASCII decimal string, or None."""
    if type(value) is str:
        if not (0 < len(value) <= 19 and value.isascii() and value.isdigit() and value[0] != "0"):
            return None
        value = int(value)
    if type(value) is not int or not 1 <= value <= ID_MAX:
        return None
    return value


def query_parse(query: QueryDict, *, allowed: Collection[str] = ()) -> dict[str, str]:
    """The parameters of a query, each of them known and given once: a misspelt filter must not show everything.

    :raises RequestInvalid: names the parameter that is unknown or repeated.
    """
    given: dict[str, str] = {}
    for name, values in query.lists():
        if name not in allowed:
            known = f"only {', '.join(repr(one) for one in allowed)} can be given" if allowed else "none can be given"
            raise RequestInvalid(f"Unknown parameter {name[:40]!r}: {known} here.")
        if len(values) > 1:
            raise RequestInvalid(f"{name!r} must be given once.")
        given[name] = str(values[0])
    return given


def request_id(offered: str) -> str:
    """The id of a request: what a proxy offers in ``X-Request-ID`` when it is harmless text, else a new one."""
    if offered and _ID_PASSED_ON.fullmatch(offered):
        return offered
    return f"{random.getrandbits(128):032x}"  # unique is enough, and the kernel's would cost a tenth of a press
