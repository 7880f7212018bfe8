"""Django's registration of the seize app."""

from django.apps import AppConfig


class SeizeConfig(AppConfig):
    """The app."""

    name = "seize"
