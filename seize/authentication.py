"""Bearer tokens for REST framework: the shopper's id, and nothing from a database."""

from dataclasses import dataclass
from typing import cast

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from seize.tokens import TokenInvalid, bearer_verify

WWW_AUTHENTICATE = 'Bearer realm="coupons"'


@dataclass(frozen=True, slots=True)
class Shopper:
    """Who asks: an id that the token proves."""

    id: int
    is_authenticated: bool = True


def shopper_id(request: Request) -> int:
    """The user id of an authenticated request."""
    return cast(Shopper, request.user).id


class BearerAuthentication(BaseAuthentication):
    """``Authorization: Bearer <access token>``."""

    def authenticate(self, request: Request) -> tuple[Shopper, None] | None:
        header = request.META.get("HTTP_AUTHORIZATION", "")
        if not header:
            return None
        try:
            return Shopper(id=bearer_verify(header)), None
        except TokenInvalid:
            raise AuthenticationFailed from None

    def authenticate_header(self, request: Request) -> str:
        return WWW_AUTHENTICATE
