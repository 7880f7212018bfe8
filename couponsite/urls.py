"""All routes."""

from django.conf import settings
from django.contrib import admin
from django.urls import include, path

from activities.urls import service_urlpatterns
from couponsite.back_office import LiveFragment, LivePage, ReportCsv, ReportPage
from couponsite.docs import RedocView, SchemaView, SwaggerView
from couponsite.health import livez, metrics, readyz
from couponsite.views import HealthView, RefreshView, TokenView

handler400 = "couponsite.problems.bad_request"
handler404 = "couponsite.problems.page_not_found"
handler500 = "couponsite.problems.server_error"

ACTIVITY = "admin/activities/activity/<int:activity_id>"

urlpatterns = [
    path("", include("centre.urls")),
    path("livez", livez, name="livez"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("admin/sync/health/", admin.site.admin_view(HealthView.as_view()), name="sync-health"),
    path(f"{ACTIVITY}/live/", admin.site.admin_view(LivePage.as_view()), name="activity-live"),
    path(f"{ACTIVITY}/live/fragment", admin.site.admin_view(LiveFragment.as_view()), name="activity-live-fragment"),
    path(f"{ACTIVITY}/report/", admin.site.admin_view(ReportPage.as_view()), name="activity-report"),
    path(f"{ACTIVITY}/report.csv", admin.site.admin_view(ReportCsv.as_view()), name="activity-report-csv"),
    path("admin/", admin.site.urls),
    path("market/schema", SchemaView.as_view(), name="schema"),
    path("market/docs/", SwaggerView.as_view(), name="docs"),
    path("market/docs/redoc/", RedocView.as_view(), name="redoc"),
    path("market/consumer/", include("seize.urls")),
    path("market/consumer/", include("activities.urls")),
    path("market/consumer/", include("sync.urls")),
    path("market/inner/", include(service_urlpatterns)),
]
if settings.JWT_SIGNING_KEY:  # a site that only verifies another issuer's tokens has no log-in of its own
    urlpatterns += [
        path("market/auth/token", TokenView.as_view(), name="token"),
        path("market/auth/token/refresh", RefreshView.as_view(), name="token-refresh"),
    ]
