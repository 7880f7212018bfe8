"""The seize endpoint as Django REST framework serves it: the readable truth of the contract."""

from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from seize.authentication import shopper_id
from seize.outcomes import Refused
from seize.problems import CONTENT_TYPE
from seize.requests import BODY_MAX_BYTES, RequestTooLarge, seize_request_parse
from seize.responses import refused_problem, won_response
from seize.services import coupon_seize
from seize.shapes import SEIZE


class CouponSeizeView(APIView):
    """``POST /market/consumer/coupon/seize``: claim one coupon for the caller."""

    @SEIZE
    def post(self, request: Request) -> Response:
        if (request.content_type or "").partition(";")[0].strip().lower() != "application/json":
            raise UnsupportedMediaType(request.content_type or "")
        if int(request.META.get("CONTENT_LENGTH") or 0) > BODY_MAX_BYTES:
            raise RequestTooLarge(f"The body may have at most {BODY_MAX_BYTES} bytes.")
        wanted = seize_request_parse(request.body)
        outcome = coupon_seize(wanted=wanted, user_id=shopper_id(request))
        if isinstance(outcome, Refused):
            problem = refused_problem(outcome)
            body = problem.body(instance=request.META["REQUEST_ID"])
            return Response(body, problem.status, headers=problem.headers, content_type=CONTENT_TYPE)
        status, body = won_response(outcome)
        return Response(body, status, headers={"Cache-Control": "no-store"})
