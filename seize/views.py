"""The seize endpoint as Django REST framework serves it: the readable truth of the contract."""

from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, UnsupportedMediaType
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from seize import desk
from seize.addresses import client_address
from seize.asking import asking_of
from seize.authentication import shopper_id
from seize.challenge import challenge_make
from seize.limits import visit_pace
from seize.outcomes import Refused
from seize.problems import Problem, pace_headers
from seize.requests import BODY_MAX_BYTES, RequestInvalid, RequestTooLarge, id_parse, query_parse, seize_request_parse
from seize.responses import refused_problem, won_response
from seize.rest import problem_response
from seize.services import coupons_seize
from seize.shapes import CHALLENGE, SEIZE


class CouponSeizeView(APIView):
    """``POST /market/consumer/coupon/seize``: claim one coupon for the caller."""

    def handle_exception(self, exc: Exception) -> Response:
        """What is no press counts as a visit."""
        if isinstance(exc, NotAuthenticated | AuthenticationFailed | RequestInvalid):
            pace = visit_pace(address=client_address(self.request))
            if pace is not None:
                return problem_response(self.request, Problem("TOO_MANY_REQUESTS", headers=pace_headers(pace)))
        response: Response = super().handle_exception(exc)
        return response

    @SEIZE
    def post(self, request: Request) -> Response:
        if (request.content_type or "").partition(";")[0].strip().lower() != "application/json":
            raise UnsupportedMediaType(request.content_type or "")
        if int(request.META.get("CONTENT_LENGTH") or 0) > BODY_MAX_BYTES:
            raise RequestTooLarge(f"The body may have at most {BODY_MAX_BYTES} bytes.")
        wanted = seize_request_parse(request.body)
        asking = asking_of(wanted=wanted, user_id=shopper_id(request), address=client_address(request))
        if asking.is_in_vain:
            return problem_response(request, Problem("TOO_MANY_REQUESTS", headers=pace_headers(asking.pace)))
        outcome = coupons_seize(activity_id=wanted.activity_id, shoppers=[asking.shopper])[0]
        if isinstance(outcome, Refused):
            return problem_response(request, refused_problem(asking.told(outcome)))
        status, body = won_response(outcome)
        return Response(body, status, headers={"Cache-Control": "no-store"})


class ChallengeView(APIView):
    """``GET /market/consumer/activity/<id>/challenge``: what the caller's device must solve before it may seize."""

    @CHALLENGE
    def get(self, request: Request, activity_id: str) -> Response:
        query_parse(request.GET)
        user_id, known = shopper_id(request), id_parse(activity_id)
        effort, now_ms = (None, 0) if known is None else desk.effort_read(activity_id=known)
        if known is None or effort is None:
            return problem_response(request, Problem("NOT_FOUND", detail="This activity asks for no challenge."))
        made = challenge_make(activity_id=known, user_id=user_id, effort=effort, now_ms=now_ms)
        return Response(made, headers={"Cache-Control": "no-store"})
