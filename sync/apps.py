"""Django's registration of the sync app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class SyncConfig(AppConfig):
    """The app."""

    name = "sync"
    verbose_name = _("Sync")

    def ready(self) -> None:
        from sync import checks  # noqa: F401, PLC0415 - registers itself
