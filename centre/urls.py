"""Routes of the coupon centre, below ``/``."""

from django.conf import settings
from django.urls import path

from centre.entry import AccountPage, LanguageView, LogInPage, LogOutView, TokenView
from centre.pages import ActivityPage, CentrePage, WalletPage

urlpatterns = [
    path("", CentrePage.as_view(), name="centre"),
    path("activity/<str:activity_id>", ActivityPage.as_view(), name="centre-activity"),
    path("coupons", WalletPage.as_view(), name="wallet"),
    path("language/<str:code>", LanguageView.as_view(), name="language"),
]
if settings.JWT_SIGNING_KEY:  # a site that only verifies another issuer's tokens cannot say who somebody is
    urlpatterns += [
        path("login", LogInPage.as_view(), name="shopper-log-in"),
        path("account", AccountPage.as_view(), name="account"),
        path("logout", LogOutView.as_view(), name="shopper-log-out"),
        path("session/token", TokenView.as_view(), name="session-token"),
    ]
