"""The WSGI application of the stock Django peer."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
application = get_wsgi_application()
