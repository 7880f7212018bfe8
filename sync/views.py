"""The shopper's question "is my coupon on its way?", which only sync can answer in full."""

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from seize.authentication import shopper_id
from seize.requests import id_parse, query_parse
from sync.claims import claim_states
from sync.shapes import CLAIMS


class ClaimView(APIView):
    """``GET /market/consumer/activity/<id>/claim``: what became of the caller's claims."""

    @CLAIMS
    def get(self, request: Request, activity_id: str) -> Response:
        query_parse(request.query_params)
        known = id_parse(activity_id)
        body = None if known is None else claim_states(activity_id=known, user_id=shopper_id(request))
        if body is None:
            raise Http404
        return Response(body, headers={"Cache-Control": "no-store"})
