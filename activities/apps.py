"""Django's registration of the activities app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ActivitiesConfig(AppConfig):
    """The app."""

    name = "activities"
    verbose_name = _("Activities")
