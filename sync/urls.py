"""Routes of the sync app, below ``/market/consumer/``."""

from django.urls import path

from sync.views import ClaimView

urlpatterns = [path("activity/<str:activity_id>/claim", ClaimView.as_view(), name="activity-claim")]
