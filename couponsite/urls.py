"""All routes."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from rest_framework_simplejwt.views import TokenObtainPairView, TokenRefreshView

handler400 = "couponsite.problems.bad_request"
handler404 = "couponsite.problems.page_not_found"
handler500 = "couponsite.problems.server_error"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("admin/", admin.site.urls),
    path("market/auth/token", TokenObtainPairView.as_view(), name="token"),
    path("market/auth/token/refresh", TokenRefreshView.as_view(), name="token-refresh"),
    path("market/consumer/", include("seize.urls")),
    path("market/consumer/", include("activities.urls")),
    path("market/consumer/", include("sync.urls")),
]
