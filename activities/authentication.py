"""``Authorization: Api-Key …`` for REST framework: which service asks, and what it may."""

from dataclasses import dataclass
from typing import Any, cast

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from activities.api_keys import ApiKeyInvalid, api_key_verify

SCHEME = "Api-Key"


@dataclass(frozen=True, slots=True)
class Service:
    """Who asks: another service, by the name of its key."""

    key_id: int
    name: str
    scopes: frozenset[str]
    is_authenticated: bool = True

    @property
    def made_by(self) -> str:
        """How the ledger names it."""
        return f"{SCHEME} {self.name}"


def service_of(request: Request) -> Service | None:
    """Which service asks; None before it has shown a key."""
    return cast("Service | None", request.user)


class ApiKeyAuthentication(BaseAuthentication):
    """A key of the back office, or nobody."""

    def authenticate(self, request: Request) -> tuple[Service, None] | None:
        header = request.META.get("HTTP_AUTHORIZATION", "")
        if not header:
            return None
        scheme, _space, text = header.partition(" ")
        if scheme.lower() != SCHEME.lower():
            raise AuthenticationFailed
        try:
            key = api_key_verify(text=text, now=timezone.now())
        except ApiKeyInvalid:
            raise AuthenticationFailed from None
        return Service(key_id=key.pk, name=key.name, scopes=frozenset(key.scopes)), None

    def authenticate_header(self, request: Request) -> str:
        return f'{SCHEME} realm="coupons"'


class ScopeRequired(BasePermission):
    """The key must have the view's ``scope``."""

    def has_permission(self, request: Request, view: Any) -> bool:
        service = service_of(request)
        if service is None:
            return False
        if view.scope not in service.scopes:
            raise PermissionDenied(f"This needs a key with the scope '{view.scope}'.")
        return True
