"""Django's registration of the project itself, for its commands and translations."""

from typing import Any

from django.apps import AppConfig
from django.contrib.auth.signals import user_login_failed
from django.http import HttpRequest


class CouponSiteConfig(AppConfig):
    """The app."""

    name = "couponsite"

    def ready(self) -> None:
        """Count what was tried in vain, by whichever of the log-ins."""
        user_login_failed.connect(_count, dispatch_uid="limits")


def _count(request: HttpRequest | None = None, **_signal: Any) -> None:
    from seize.addresses import client_address  # noqa: PLC0415 - its models are there once all apps are
    from seize.limits import log_in_failed  # noqa: PLC0415 - as above

    if request is not None:
        log_in_failed(address=client_address(request))
