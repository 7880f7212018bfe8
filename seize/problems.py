"""Every refusal and fault of the API as RFC 9457 problem details: one stable code, status and title each."""

import functools
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import get_language, override
from django.utils.translation import gettext_lazy as _

from seize.outcomes import Pace
from seize.store import Fault, OutcomeUnknown, StoreBusy

CONTENT_TYPE = "application/problem+json"

CATALOGUE: Mapping[str, tuple[HTTPStatus, Promise]] = {
    "LIMIT_REACHED": (HTTPStatus.CONFLICT, _("You already have as many coupons of this activity as one shopper may.")),
    "SOLD_OUT": (HTTPStatus.CONFLICT, _("All coupons of this activity are gone.")),
    "NOT_STARTED": (HTTPStatus.CONFLICT, _("This activity has not started yet.")),
    "PAUSED": (HTTPStatus.CONFLICT, _("This activity is paused. Please try again later.")),
    "ENDED": (HTTPStatus.GONE, _("This activity has ended.")),
    "VOIDED": (HTTPStatus.GONE, _("This activity was withdrawn.")),
    "UNKNOWN_ACTIVITY": (HTTPStatus.NOT_FOUND, _("There is no such activity.")),
    "NOT_ELIGIBLE": (HTTPStatus.FORBIDDEN, _("This activity is not open to everybody yet, and not to you.")),
    "CHALLENGE_REQUIRED": (HTTPStatus.FORBIDDEN, _("Solve a challenge first: get one, and send what solves it.")),
    "CHALLENGE_INVALID": (
        HTTPStatus.FORBIDDEN,
        _("This is no solution of a challenge of yours that is still good. Get another one."),
    ),
    "NOT_READY": (HTTPStatus.SERVICE_UNAVAILABLE, _("Not ready yet. Nothing happened: please try again shortly.")),
    "BUSY": (HTTPStatus.SERVICE_UNAVAILABLE, _("Too busy. Nothing happened: please try again shortly.")),
    "OUTCOME_UNKNOWN": (
        HTTPStatus.SERVICE_UNAVAILABLE,
        _("The answer was lost. Ask again with the same seq to learn whether you have the coupon."),
    ),
    "LEDGER_UNAVAILABLE": (
        HTTPStatus.SERVICE_UNAVAILABLE,
        _("Your coupons cannot be looked up at the moment. Please try again shortly."),
    ),
    "UNKNOWN_COUPON": (HTTPStatus.NOT_FOUND, _("This shopper has no such coupon.")),
    "COUPON_PENDING": (HTTPStatus.CONFLICT, _("This coupon is on its way. It can be used in a moment.")),
    "COUPON_EXPIRED": (HTTPStatus.CONFLICT, _("This coupon has expired.")),
    "COUPON_VOIDED": (HTTPStatus.CONFLICT, _("This coupon was withdrawn.")),
    "COUPON_REDEEMED": (HTTPStatus.CONFLICT, _("This coupon is used already.")),
    "BELOW_MIN_SPEND": (HTTPStatus.CONFLICT, _("The order is below the minimum spend of this coupon.")),
    "NO_DISCOUNT": (HTTPStatus.CONFLICT, _("This coupon would take nothing off this order.")),
    "ORDER_ROLLED_BACK": (HTTPStatus.CONFLICT, _("This order gave the coupon back. Use another order id.")),
    "ORDER_DIFFERS": (HTTPStatus.CONFLICT, _("This order redeemed the coupon with another amount.")),
    "NOT_REDEEMED": (HTTPStatus.CONFLICT, _("This order has not redeemed this coupon.")),
    "IDEMPOTENCY_IN_FLIGHT": (
        HTTPStatus.CONFLICT,
        _("The first request with this Idempotency-Key is still under way. Please try again shortly."),
    ),
    "IDEMPOTENCY_MISMATCH": (
        HTTPStatus.UNPROCESSABLE_ENTITY,
        _("This Idempotency-Key came with another request before."),
    ),
    "INVALID_REQUEST": (HTTPStatus.BAD_REQUEST, _("The request is not valid.")),
    "UNAUTHENTICATED": (HTTPStatus.UNAUTHORIZED, _("Please log in.")),
    "FORBIDDEN": (HTTPStatus.FORBIDDEN, _("You may not do this.")),
    "NOT_FOUND": (HTTPStatus.NOT_FOUND, _("There is nothing here.")),
    "METHOD_NOT_ALLOWED": (HTTPStatus.METHOD_NOT_ALLOWED, _("This method is not allowed here.")),
    "NOT_ACCEPTABLE": (HTTPStatus.NOT_ACCEPTABLE, _("Answers are JSON only.")),
    "REQUEST_TIMEOUT": (HTTPStatus.REQUEST_TIMEOUT, _("The request took too long to arrive.")),
    "TOO_LARGE": (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _("The request is too large.")),
    "UNSUPPORTED_MEDIA_TYPE": (HTTPStatus.UNSUPPORTED_MEDIA_TYPE, _("The body must be application/json.")),
    "TOO_MANY_REQUESTS": (HTTPStatus.TOO_MANY_REQUESTS, _("Too many requests. Please slow down.")),
    "INTERNAL_ERROR": (HTTPStatus.INTERNAL_SERVER_ERROR, _("Something broke on our side.")),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal or fault, before it knows the request's language and id."""

    code: str
    detail: str | None = None
    members: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return CATALOGUE[self.code][0].value

    def body(self, *, instance: str, language: str | None = None) -> dict[str, object]:
        """The problem's JSON members.

        :param instance: the request's id, for whoever looks it up in a log.
        :param language: of the title; None = the active one.
        """
        body: dict[str, object] = {
            "type": f"urn:problem:{self.code.lower().replace('_', '-')}",
            "title": title_now(self.code) if language is None else title_of(self.code, language),
            "status": self.status,
            "code": self.code,
            "instance": instance,
        }
        if self.detail:
            body["detail"] = self.detail
        body.update(self.members)
        return body


def title_now(code: str) -> str:
    """A problem's title in the active language."""
    return title_of(code, get_language() or settings.LANGUAGE_CODE)


@functools.cache
def title_of(code: str, language: str) -> str:
    """A problem's title in a language; there are few of both, so each is translated once."""
    with override(language):
        return str(CATALOGUE[code][1])


def retry_after(*, earliest_s: int, spread_s: int) -> dict[str, str]:
    """A Retry-After header in whole seconds, spread so that a refused crowd does not return as one."""
    return {"Retry-After": str(earliest_s + random.randint(0, spread_s))}  # noqa: S311 - jitter, no secret


def pace_headers(pace: Pace | None) -> dict[str, str]:
    """What a limit that is used up says in headers, by draft-ietf-httpapi-ratelimit-headers-10."""
    if pace is None:
        return retry_after(earliest_s=1, spread_s=2)
    wait_s, window_s = max(1, -(-pace.wait_ms // 1000)), max(1, pace.window_ms // 1000)
    return {
        **retry_after(earliest_s=wait_s, spread_s=2),
        "RateLimit-Policy": f'"{pace.name}";q={pace.quota};w={window_s}',
        "RateLimit": f'"{pace.name}";r=0;t={wait_s}',
    }


def problem_of_fault(fault: Fault) -> Problem:
    """The 503 for a fault of the store: it says whether something can have happened."""
    if isinstance(fault, OutcomeUnknown):
        code = "OUTCOME_UNKNOWN"
    elif isinstance(fault, StoreBusy):
        code = "BUSY"
    else:
        code = "NOT_READY"
    return Problem(code, headers=retry_after(earliest_s=1, spread_s=2))
