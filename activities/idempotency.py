"""``Idempotency-Key`` of a write: the same request again gets the same answer.

After draft-ietf-httpapi-idempotency-key-header. Answers are kept for a day in CACHES. Losing them is harmless: what a
write does is idempotent by its order in the ledger, so the request is carried out again and finds its entry.
"""

import hashlib
import re
import secrets
from collections.abc import Callable
from typing import Any

import orjson
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.response import Response

from seize.problems import CONTENT_TYPE, Problem, retry_after, title_now
from seize.requests import RequestInvalid

KEPT_S = 24 * 3600
UNDER_WAY_S = 180  # longer than a request may take; a process that died leaves the key blocked for as long
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def kept_always(_response: Response) -> bool:
    """Every answer but a fault is final."""
    return True


def idempotent_answer(
    request: Request,
    *,
    caller: str,
    payload: object,
    answer: Callable[[], Response],
    is_final: Callable[[Response], bool] = kept_always,
) -> Response | Problem:
    """The answer of a write, or the one that the same caller got for the same key and payload before.

    Without the header it is just the answer. Faults (5xx) are not kept: asking again is what they ask for.

    :param caller: whose keys these are; two callers may use the same one.
    :param payload: what was asked, as parsed; JSON types.
    :param is_final: whether an answer is kept; one that only holds "so far" must not be.
    :return: the response, or the problem of a key that is in use or was used for something else.
    :raises seize.requests.RequestInvalid: the key is not 1 to 255 visible ASCII characters.
    """
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return answer()
    if not _KEY.fullmatch(key):
        raise RequestInvalid("'Idempotency-Key' must be 1 to 255 visible ASCII characters.")
    name = f"idempotency:{_digest([caller, key])}"
    ours = {"asked": _digest([request.method, request.path, payload]), "by": secrets.token_hex(16)}
    if not cache.add(name, ours, UNDER_WAY_S):
        kept = cache.get(name)
        # Nothing there: the cache is away, or was emptied. Our own: its answer to the question before was lost.
        if kept is not None and kept != ours:
            return _again(request, kept, ours["asked"])
    try:
        response = answer()
    except BaseException:
        _forget(name, ours)
        raise
    if response.status_code >= 500 or not is_final(response):
        _forget(name, ours)
    elif cache.get(name, ours) == ours:  # else it took so long that somebody else has the key
        cache.set(name, {"asked": ours["asked"], "status": response.status_code, "body": response.data}, KEPT_S)
    return response


def _forget(name: str, ours: dict[str, str]) -> None:
    if cache.get(name) == ours:
        cache.delete(name)


def _again(request: Request, kept: dict[str, Any], asked: str) -> Response | Problem:
    if kept["asked"] != asked:
        return Problem("IDEMPOTENCY_MISMATCH")
    if "status" not in kept:
        return Problem("IDEMPOTENCY_IN_FLIGHT", headers=retry_after(earliest_s=1, spread_s=1))
    body, status = dict(kept["body"]), kept["status"]
    if "instance" in body:  # a problem belongs to the request that hears it, in its language
        body |= {"instance": request.META["REQUEST_ID"], "title": title_now(body["code"])}
    content_type = CONTENT_TYPE if status >= 400 else None
    headers = {"Idempotency-Replayed": "true", "Cache-Control": "no-store"}
    return Response(body, status, headers=headers, content_type=content_type)


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()
