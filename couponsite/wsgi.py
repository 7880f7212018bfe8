"""The WSGI application: every route by Django, the seize route by its reference view."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")

application = get_wsgi_application()
