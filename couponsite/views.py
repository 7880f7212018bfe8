"""Log-in: pairs of tokens from a password, fresh access tokens from a refresh token."""

from django.core.exceptions import ObjectDoesNotExist
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework_simplejwt.views import TokenObtainPairView, TokenRefreshView


class TokenView(TokenObtainPairView):
    """``POST /market/auth/token``: access and refresh token for a user name and password."""


class RefreshView(TokenRefreshView):
    """``POST /market/auth/token/refresh``: a new access token."""

    def post(self, request: Request, *args: object, **kwargs: object) -> Response:
        try:
            return super().post(request, *args, **kwargs)
        except ObjectDoesNotExist:  # the user was deleted since
            raise AuthenticationFailed from None
