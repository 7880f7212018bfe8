"""Log-in by password and refresh token; the back office's health page."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _
from django.views.generic import TemplateView
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework_simplejwt.views import TokenObtainPairView, TokenRefreshView

from couponsite.serializers import LogInSerializer, RefreshSerializer
from couponsite.shapes import LOG_IN_OPERATION, REFRESH_OPERATION
from seize.addresses import client_address
from seize.limits import log_in_pace
from seize.problems import Problem, pace_headers
from seize.rest import problem_response
from sync.health import health_report


class TokenView(TokenObtainPairView):
    """``POST /market/auth/token``: access and refresh token for a user name and password."""

    serializer_class = LogInSerializer
    www_authenticate_realm = "coupons"

    @LOG_IN_OPERATION
    def post(self, request: Request, *args: object, **kwargs: object) -> Response:
        pace = log_in_pace(address=client_address(request))
        if pace is not None:
            return problem_response(request, Problem("TOO_MANY_REQUESTS", headers=pace_headers(pace)))
        return super().post(request, *args, **kwargs)


class RefreshView(TokenRefreshView):
    """``POST /market/auth/token/refresh``: a new access token."""

    serializer_class = RefreshSerializer
    www_authenticate_realm = "coupons"

    @REFRESH_OPERATION
    def post(self, request: Request, *args: object, **kwargs: object) -> Response:
        try:
            return super().post(request, *args, **kwargs)
        except ObjectDoesNotExist:  # the user was deleted since
            raise AuthenticationFailed from None


class HealthView(TemplateView):
    """``/admin/sync/health/``: what waits, how old it is, who is late."""

    template_name = "admin/sync/health.html"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.has_perm("sync.view_reconciliation"):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        return {**context, **admin.site.each_context(self.request), **health_report(), "title": _("Sync and health")}
