"""Requests as Django's handler makes them, but for headers that would break it before anything could answer."""

import re
from typing import Any

from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.core.wsgi import get_wsgi_application
from django.utils.http import parse_header_parameters

_EXTENDED = re.compile(r";[^;,]*\*[^;,]*")


class Utf8Request(WSGIRequest):
    """A request whose text is UTF-8, whatever charset it names.

    Django looks a named charset up and believes it: by ``charset=hex`` no query can be read, and by an extended
    parameter (``charset*=hex''%41``, RFC 8187) no header; either is a 500 with a traceback, in front of every handler.
    """

    META: dict[str, Any]

    def __init__(self, environ: dict[str, Any]) -> None:
        for name in ("CONTENT_TYPE", "HTTP_ACCEPT"):
            if "*" in environ.get(name, ""):
                environ[name] = _EXTENDED.sub("", environ[name])
        super().__init__(environ)

    def _set_content_type_params(self, meta: dict[str, Any]) -> None:
        """Django's own, without the charset; what cannot be read is no type."""
        try:
            self.content_type, self.content_params = parse_header_parameters(meta.get("CONTENT_TYPE", ""))
        except ValueError:
            self.content_type, self.content_params = "", {}


def wsgi_application() -> WSGIHandler:
    """Django, with such requests."""
    handler = get_wsgi_application()
    handler.request_class = Utf8Request
    return handler
