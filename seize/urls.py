"""Routes of the seize app, below ``/market/consumer/``."""

from django.urls import path

from seize.views import ChallengeView, CouponSeizeView

urlpatterns = [
    path("coupon/seize", CouponSeizeView.as_view(), name="coupon-seize"),
    path("activity/<str:activity_id>/challenge", ChallengeView.as_view(), name="activity-challenge"),
]
