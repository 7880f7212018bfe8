"""Django's registration of the project itself, for its commands and translations."""

from django.apps import AppConfig


class CouponSiteConfig(AppConfig):
    """The app."""

    name = "couponsite"
