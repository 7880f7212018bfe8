"""Who looks at a page: a signed cookie that no script can read, and the short-lived token that a script gets for it.

The API takes tokens alone, never the cookie: no other site can make a browser press for its shopper. The cookie opens
pages and ``POST /session/token``; what that answers no other site can read. Neither costs a query.
"""

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from seize.tokens import TokenInvalid, access_token_issue, token_issue, token_verify

SESSION = "session"  # a type that the API does not take for an access token, nor a page an access token for it
TOKEN_LIFETIME_S = 600


def cookie_name() -> str:
    """With the prefix by which browsers keep other hosts and plain HTTP from setting it, where that is possible."""
    return "__Host-shopper" if settings.SESSION_COOKIE_SECURE else "shopper"


def session_start(response: HttpResponseBase, *, user_id: int) -> None:
    """Let the browser show pages as this shopper's until ``SHOPPER_SESSION_S`` have passed."""
    lifetime_s = settings.SHOPPER_SESSION_S
    _cookie_set(response, token_issue(kind=SESSION, user_id=user_id, lifetime_s=lifetime_s), max_age=lifetime_s)


def session_end(response: HttpResponseBase) -> None:
    """Let the browser forget the shopper."""
    _cookie_set(response, "", max_age=0)


def _cookie_set(response: HttpResponseBase, value: str, *, max_age: int) -> None:
    secure = settings.SESSION_COOKIE_SECURE
    response.set_cookie(cookie_name(), value, max_age=max_age, httponly=True, secure=secure, samesite="Lax")


def session_shopper(request: HttpRequest) -> int | None:
    """The shopper whose page this is; None without a cookie, or with one that is not, or no longer, good."""
    try:
        return token_verify(request.COOKIES.get(cookie_name(), ""), kind=SESSION)
    except TokenInvalid:
        return None


def session_token(*, user_id: int) -> dict[str, object]:
    """What a page's script presses with: an access token, and how many seconds it is good for."""
    lifetime_s = min(TOKEN_LIFETIME_S, settings.ACCESS_TOKEN_LIFETIME_S)
    return {"token": access_token_issue(user_id=user_id, lifetime_s=lifetime_s), "expires_in": lifetime_s}
