"""The WSGI application: every route by Django, the seize route by its reference view."""

import os

from django.core.wsgi import get_wsgi_application

from couponsite.stopping import stopping_on_sigterm

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")

application = get_wsgi_application()
stopping_on_sigterm()
