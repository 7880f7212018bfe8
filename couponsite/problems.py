"""Exceptions of every app as problem details: REST framework's handler, and Django's own 404 and 500."""

from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework_simplejwt.exceptions import TokenError

from activities.wallet import CursorInvalid
from seize.problems import CONTENT_TYPE, Problem, problem_of_fault
from seize.requests import RequestInvalid, RequestTooLarge
from seize.store import OutcomeUnknown, StoreUnavailable


def problem_of(error: Exception) -> Problem | None:
    """The problem that an exception stands for; None for one that nobody expected."""
    match error:
        case StoreUnavailable() | OutcomeUnknown():
            return problem_of_fault(error)
        case RequestTooLarge():
            return Problem("TOO_LARGE", detail=str(error))
        case RequestDataTooBig():
            return Problem("TOO_LARGE")
        case RequestInvalid() | CursorInvalid():
            return Problem("INVALID_REQUEST", detail=str(error))
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed() | TokenError():
            headers = {"WWW-Authenticate": error.auth_header} if hasattr(error, "auth_header") else {}
            return Problem("UNAUTHENTICATED", headers=headers)
        case exceptions.PermissionDenied() | PermissionDenied():
            return Problem("FORBIDDEN")
        case exceptions.NotFound() | Http404():
            return Problem("NOT_FOUND")
        case exceptions.MethodNotAllowed():
            return Problem("METHOD_NOT_ALLOWED")
        case exceptions.NotAcceptable():
            return Problem("NOT_ACCEPTABLE")
        case exceptions.UnsupportedMediaType():
            return Problem("UNSUPPORTED_MEDIA_TYPE")
        case exceptions.Throttled():
            headers = {"Retry-After": str(int(error.wait) + 1)} if error.wait else {}
            return Problem("TOO_MANY_REQUESTS", headers=headers)
        case exceptions.ValidationError():
            return Problem("INVALID_REQUEST", members={"errors": error.detail})
        case exceptions.ParseError():
            return Problem("INVALID_REQUEST", detail=str(error.detail))
        case _:
            return None


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """REST framework's hook: a problem for what is expected, Django's 500 for what is not."""
    problem = problem_of(error)
    if problem is None:
        return None
    body = problem.body(instance=context["request"].META["REQUEST_ID"])
    return Response(body, problem.status, headers=problem.headers, content_type=CONTENT_TYPE)


def _problem_response(request: HttpRequest, problem: Problem) -> HttpResponse:
    body = problem.body(instance=request.META.get("REQUEST_ID", ""))
    return JsonResponse(body, status=problem.status, content_type=CONTENT_TYPE)


def _is_api(request: HttpRequest) -> bool:
    return request.path.startswith("/market/")


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
