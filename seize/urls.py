"""Routes of the seize app, below ``/market/consumer/``."""

from django.urls import path

from seize.views import CouponSeizeView

urlpatterns = [path("coupon/seize", CouponSeizeView.as_view(), name="coupon-seize")]
