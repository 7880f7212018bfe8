"""Problems as REST framework's responses, for every app's views."""

from rest_framework.request import Request
from rest_framework.response import Response

from seize.problems import CONTENT_TYPE, Problem


def problem_response(request: Request, problem: Problem) -> Response:
    """A problem in the active language, with the request's id."""
    body = problem.body(instance=request.META["REQUEST_ID"])
    return Response(body, problem.status, headers=problem.headers, content_type=CONTENT_TYPE)
