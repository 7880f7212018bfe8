"""Exceptions of every app as problem details: REST framework's handler, and Django's own 404 and 500."""

from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework_simplejwt.exceptions import TokenError

from activities.contention import ContentionLost
from activities.wallet import CursorInvalid
from seize.problems import CONTENT_TYPE, Problem, problem_of_fault, retry_after
from seize.requests import RequestInvalid, RequestTooLarge
from seize.rest import problem_response
from seize.store import OutcomeUnknown, StoreUnavailable

CODES: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    ((RequestTooLarge, RequestDataTooBig), "TOO_LARGE"),
    ((RequestInvalid, CursorInvalid, exceptions.ValidationError, exceptions.ParseError), "INVALID_REQUEST"),
    ((exceptions.NotAuthenticated, exceptions.AuthenticationFailed, TokenError), "UNAUTHENTICATED"),
    ((exceptions.PermissionDenied, PermissionDenied), "FORBIDDEN"),
    ((exceptions.NotFound, Http404), "NOT_FOUND"),
    ((exceptions.MethodNotAllowed,), "METHOD_NOT_ALLOWED"),
    ((exceptions.NotAcceptable,), "NOT_ACCEPTABLE"),
    ((exceptions.UnsupportedMediaType,), "UNSUPPORTED_MEDIA_TYPE"),
    ((exceptions.Throttled,), "TOO_MANY_REQUESTS"),
    ((OperationalError, InterfaceError), "LEDGER_UNAVAILABLE"),
    ((ContentionLost,), "BUSY"),
)


def problem_of(error: Exception) -> Problem | None:
    """The problem that an exception stands for; None for one that nobody expected."""
    if isinstance(error, StoreUnavailable | OutcomeUnknown):
        return problem_of_fault(error)
    for classes, code in CODES:
        if isinstance(error, classes):
            return Problem(code, detail=_detail(error), members=_members(error), headers=_headers(error))
    return None


def _detail(error: Exception) -> str | None:
    if isinstance(error, exceptions.ParseError | exceptions.PermissionDenied):
        return str(error.detail)
    return str(error) if isinstance(error, RequestInvalid | CursorInvalid) else None


def _members(error: Exception) -> dict[str, object]:
    return {"errors": error.detail} if isinstance(error, exceptions.ValidationError) else {}


def _headers(error: Exception) -> dict[str, str]:
    """What REST framework's own handler would add: how to log in, when to come back."""
    headers: dict[str, str] = {}
    if auth_header := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = auth_header
    if isinstance(error, OperationalError | InterfaceError | ContentionLost):
        headers |= retry_after(earliest_s=1, spread_s=4)
    if wait_s := getattr(error, "wait", None):
        headers["Retry-After"] = str(int(wait_s) + 1)
    return headers


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """REST framework's hook: a problem for what is expected, Django's 500 for what is not."""
    problem = problem_of(error)
    if problem is None:
        return None
    request: Request = context["request"]
    if not isinstance(getattr(request, "accepted_renderer", None), JSONRenderer):
        # A page's view, or nothing that is acceptable: a problem is JSON all the same.
        request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
    return problem_response(request, problem)


def _problem_response(request: HttpRequest, problem: Problem) -> HttpResponse:
    body = problem.body(instance=request.META.get("REQUEST_ID", ""))
    return JsonResponse(body, status=problem.status, content_type=CONTENT_TYPE)


def _is_api(request: HttpRequest) -> bool:
    return f"{request.path}/".startswith("/market/")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler400: a problem below /market/, a page elsewhere."""
    if _is_api(request):
        return _problem_response(request, problem_of(exception) or Problem("INVALID_REQUEST"))
    return defaults.bad_request(request, exception)


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler404: a problem below /market/, a page elsewhere."""
    if _is_api(request):
        return _problem_response(request, Problem("NOT_FOUND"))
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500: a problem below /market/, a page elsewhere."""
    if _is_api(request):
        return _problem_response(request, Problem("INTERNAL_ERROR"))
    return defaults.server_error(request)
