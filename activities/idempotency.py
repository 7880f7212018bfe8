"""``Idempotency-Key`` of a write: the same request again gets the same answer.

After draft-ietf-httpapi-idempotency-key-header. Answers are kept for a day in CACHES. Losing them is harmless: what a
write does is idempotent by its order in the ledger, so the request is carried out again and finds its entry.
"""

import hashlib
import re
from collections.abc import Callable
from typing import Any

import orjson
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.response import Response

from seize.problems import CONTENT_TYPE, Problem, retry_after
from seize.requests import RequestInvalid

KEPT_S = 24 * 3600
UNDER_WAY_S = 60  # longer than a request may take; a process that died leaves the key blocked for as long
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def idempotent_answer(
    request: Request, *, caller: str, payload: object, answer: Callable[[], Response]
) -> Response | Problem:
    """The answer of a write, or the one that the same caller got for the same key and payload before.

    Without the header it is just the answer. Faults (5xx) are not kept: asking again is what they ask for.

    :param caller: whose keys these are; two callers may use the same one.
    :param payload: what was asked, as parsed; JSON types.
    :return: the response, or the problem of a key that is in use or was used for something else.
    :raises seize.requests.RequestInvalid: the key is not 1 to 255 visible ASCII characters.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return answer()
    if not _KEY.fullmatch(key):
        raise RequestInvalid("'Idempotency-Key' must be 1 to 255 visible ASCII characters.")
    name = f"idempotency:{_digest([caller, key])}"
    asked = _digest([request.method, request.path, payload])
    if not cache.add(name, {"asked": asked}, UNDER_WAY_S) and (kept := cache.get(name)) is not None:
        return _again(request, kept, asked)
    try:
        response = answer()
    except BaseException:
        cache.delete(name)
        raise
    if response.status_code >= 500:
        cache.delete(name)
    else:
        cache.set(name, {"asked": asked, "status": response.status_code, "body": response.data}, KEPT_S)
    return response


def _again(request: Request, kept: dict[str, Any], asked: str) -> Response | Problem:
    if kept["asked"] != asked:
        return Problem("IDEMPOTENCY_MISMATCH")
    if "status" not in kept:
        return Problem("IDEMPOTENCY_IN_FLIGHT", headers=retry_after(earliest_s=1, spread_s=1))
    body, status = dict(kept["body"]), kept["status"]
    if "instance" in body:
        body["instance"] = request.META["REQUEST_ID"]
    content_type = CONTENT_TYPE if status >= 400 else None
    return Response(body, status, headers={"Idempotency-Replayed": "true"}, content_type=content_type)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()
