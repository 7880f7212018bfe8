"""The WSGI application: every route by Django, the seize route by its reference view."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")

application = get_wsgi_application()

from couponsite.health import stopping_on_sigterm  # noqa: E402 - needs the apps that are loaded above

stopping_on_sigterm()
