"""Routes for shoppers: the public list of activities, and their own coupons."""

from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from activities import shapes
from activities.admission import desk_now
from activities.listing import TABS
from activities.ready import VARY, Ready, detail_ready, list_ready
from activities.wallet import STATUSES, coupon_detail, wallet_page
from seize.authentication import shopper_id
from seize.requests import RequestInvalid, id_parse, query_parse
from seize.services import server_time
from seize.tokens import TokenInvalid, bearer_verify


class ActivityListView(APIView):
    """``GET /market/consumer/activity/list?tab=ongoing|upcoming``: what is on offer."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @shapes.LIST
    def get(self, request: Request) -> HttpResponseBase:
        tab = query_parse(request.query_params, allowed=("tab",)).get("tab")
        if tab is not None and tab not in TABS:
            raise RequestInvalid(f"'tab' must be one of {', '.join(TABS)}.")
        return _response(request, list_ready(tab=tab, user_id=_looker(request)))


class ActivityDetailView(APIView):
    """``GET /market/consumer/activity/<id>``: one activity with its rules."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @shapes.DETAIL
    def get(self, request: Request, activity_id: str) -> HttpResponseBase:
        query_parse(request.query_params)
        known = id_parse(activity_id)
        ready = None if known is None else detail_ready(activity_id=known, user_id=_looker(request))
        if ready is None:
            raise Http404
        return _response(request, ready)


def _looker(request: Request) -> int | None:
    """Who looks, if that is known; a token that is not good is nobody's: what everybody sees needs none."""
    try:
        return bearer_verify(request.headers.get("Authorization", ""))
    except TokenInvalid:
        return None


def _response(request: Request, ready: Ready) -> HttpResponseBase:
    """The bytes, or 304 when the caller has the same."""
    content, encoded = ready.content(accept_encoding=request.headers.get("Accept-Encoding", ""))
    headers = {"Cache-Control": ready.cache_control, "ETag": ready.etag, "Vary": ", ".join(VARY), **encoded}
    response = HttpResponse(content, content_type="application/json", headers=headers)
    conditional = get_conditional_response(request._request, etag=ready.etag, response=response)
    return conditional or response


class CouponMyView(APIView):
    """``GET /market/consumer/coupon/my?status=&cursor=``: the caller's coupons, pending ones first."""

    @shapes.MY
    def get(self, request: Request) -> Response:
        asked = query_parse(request.query_params, allowed=("status", "cursor"))
        status, cursor = asked.get("status"), asked.get("cursor")
        if status is not None and status not in STATUSES:
            raise RequestInvalid(f"'status' must be one of {', '.join(STATUSES)}.")
        page = wallet_page(user_id=shopper_id(request), status=status, cursor=cursor, now=server_time())
        return Response(page, headers={"Cache-Control": "no-store"})


class CouponDetailView(APIView):
    """``GET /market/consumer/coupon/<id>``: one of the caller's coupons with its rules."""

    @shapes.COUPON
    def get(self, request: Request, coupon_id: str) -> Response:
        query_parse(request.query_params)
        known = id_parse(coupon_id)
        body = None if known is None else coupon_detail(user_id=shopper_id(request), coupon_id=known, now=desk_now())
        if body is None:
            raise Http404
        return Response(body, headers={"Cache-Control": "no-store"})
