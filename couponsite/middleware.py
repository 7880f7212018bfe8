"""Every request has an id: in its answer, in its problems, in the log. Every page says what it may load."""

from collections.abc import Callable

from csp.middleware import CSPMiddleware, PolicyParts
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from seize.requests import request_id


class RequestIdMiddleware:
    """Take ``X-Request-ID`` from a proxy when it is harmless text, else make one; answer with it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.META["REQUEST_ID"] = request_id(request.META.get("HTTP_X_REQUEST_ID", ""))
        response = self.get_response(request)
        response["X-Request-ID"] = request.META["REQUEST_ID"]
        return response


OFFICE = "/admin/"


class PagePolicyMiddleware(CSPMiddleware):
    """A Content-Security-Policy on pages: the strict one, and a wider one where others' pages need it."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not response.headers.get("Content-Type", "").startswith("text/html"):
            return response  # JSON and files load nothing
        return super().process_response(request, response)

    def get_policy_parts(
        self,
        request: HttpRequest,
        response: HttpResponseBase,
        report_only: bool = False,  # noqa: FBT001, FBT002 - the library's signature
    ) -> PolicyParts:
        parts = super().get_policy_parts(request, response, report_only)
        if request.path_info.startswith(OFFICE):
            parts.replace = {**settings.OFFICE_POLICY, **(parts.replace or {})}
        return parts
