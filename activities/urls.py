"""Routes of the activities app, for shoppers below ``/market/consumer/`` and for services below ``/market/inner/``."""

from django.urls import path

from activities.service_views import (
    CouponAvailableView,
    CouponQuoteView,
    CouponRedeemView,
    CouponRollBackView,
)
from activities.views import ActivityDetailView, ActivityListView, CouponDetailView, CouponMyView

urlpatterns = [
    path("activity/list", ActivityListView.as_view(), name="activity-list"),
    path("activity/<str:activity_id>", ActivityDetailView.as_view(), name="activity-detail"),
    path("coupon/my", CouponMyView.as_view(), name="coupon-my"),
    path("coupon/<str:coupon_id>", CouponDetailView.as_view(), name="coupon-detail"),
]
service_urlpatterns = [
    path("coupon/available", CouponAvailableView.as_view(), name="coupon-available"),
    path("coupon/quote", CouponQuoteView.as_view(), name="coupon-quote"),
    path("coupon/redeem", CouponRedeemView.as_view(), name="coupon-redeem"),
    path("coupon/roll-back", CouponRollBackView.as_view(), name="coupon-roll-back"),
]
