"""Routes for shoppers: the public list of activities, and their own coupons."""

from django.http import Http404
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from activities.listing import TABS, activities_list, activity_detail
from activities.wallet import wallet_page
from seize.authentication import shopper_id
from seize.requests import RequestInvalid, id_parse
from seize.services import server_time


class ActivityListView(APIView):
    """``GET /market/consumer/activity/list?tab=ongoing|upcoming``: what is on offer."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get(self, request: Request) -> Response:
        tab = request.query_params.get("tab")
        if tab is not None and tab not in TABS:
            raise RequestInvalid(f"'tab' must be one of {', '.join(TABS)}.")
        return Response(activities_list(tab=tab))


class ActivityDetailView(APIView):
    """``GET /market/consumer/activity/<id>``: one activity with its rules."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    def get(self, request: Request, activity_id: str) -> Response:
        known = id_parse(activity_id)
        body = None if known is None else activity_detail(activity_id=known)
        if body is None:
            raise Http404
        return Response(body)


class CouponMyView(APIView):
    """``GET /market/consumer/coupon/my?cursor=``: the caller's coupons, pending ones first."""

    def get(self, request: Request) -> Response:
        cursor = request.query_params.get("cursor")
        page = wallet_page(user_id=shopper_id(request), cursor=cursor, now=server_time())
        return Response(page, headers={"Cache-Control": "no-store"})
