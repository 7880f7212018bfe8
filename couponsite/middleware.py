"""Every request has an id: in its answer, in its problems, in the log."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

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
