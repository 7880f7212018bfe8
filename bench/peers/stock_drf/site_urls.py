"""The one route."""

from django.urls import path
from site_views import SeizeView

urlpatterns = [path("market/consumer/coupon/seize", SeizeView.as_view())]
