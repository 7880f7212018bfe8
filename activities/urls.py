"""Routes of the activities app, below ``/market/consumer/``."""

from django.urls import path

from activities.views import ActivityDetailView, ActivityListView, CouponMyView

urlpatterns = [
    path("activity/list", ActivityListView.as_view(), name="activity-list"),
    path("activity/<str:activity_id>", ActivityDetailView.as_view(), name="activity-detail"),
    path("coupon/my", CouponMyView.as_view(), name="coupon-my"),
]
