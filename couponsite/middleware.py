"""Every request has an id: in its answer, in its problems, in the log."""

import re
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

_PASSED_ON = re.compile(r"[A-Za-z0-9._-]{8,64}")


class RequestIdMiddleware:
    """Take ``X-Request-ID`` from a proxy when it is harmless text, else make one; answer with it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        offered = request.META.get("HTTP_X_REQUEST_ID", "")
        request.META["REQUEST_ID"] = offered if _PASSED_ON.fullmatch(offered) else uuid.uuid4().hex
        response = self.get_response(request)
        response["X-Request-ID"] = request.META["REQUEST_ID"]
        return response
