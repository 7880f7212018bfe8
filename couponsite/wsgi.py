"""The WSGI application: every route by Django, the seize route by its reference view."""

import os

from couponsite.requests import wsgi_application
from couponsite.stopping import stopping_on_sigterm

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "couponsite.settings")

application = wsgi_application()
stopping_on_sigterm()
