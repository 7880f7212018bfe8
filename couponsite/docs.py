"""The API's documentation: the OpenAPI document, and two pages that show it, from this host alone."""

from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response
from drf_spectacular.renderers import (
    OpenApiJsonRenderer,
    OpenApiJsonRenderer2,
    OpenApiYamlRenderer,
    OpenApiYamlRenderer2,
)
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularRedocView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from couponsite.schema import document


class SchemaView(APIView):
    """``GET /market/schema``: the OpenAPI document, YAML or by ``Accept`` JSON; made once a process."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    renderer_classes = (OpenApiYamlRenderer2, OpenApiYamlRenderer, OpenApiJsonRenderer2, OpenApiJsonRenderer)

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponseBase:
        renderer = request.accepted_renderer
        ready = document(format=renderer.format)
        headers = {"ETag": ready.etag, "Cache-Control": "no-cache"}
        response = HttpResponse(ready.body, content_type=renderer.media_type, headers=headers)
        return get_conditional_response(request._request, etag=ready.etag, response=response) or response


def _policy() -> str:
    """What the pages may load and ask: this host, and the one in front of its static files."""
    own = f"'self' {settings.STATIC_HOST}".strip()
    return (
        f"default-src 'none'; script-src {own}; style-src {own} 'unsafe-inline'; img-src {own} data:; "
        f"font-src {own} data:; connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


class _Page:
    """A public page that asks nobody else for anything."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response: Response = super().get(request, *args, **kwargs)  # type: ignore[misc]
        response["Content-Security-Policy"] = _policy()
        response["Cache-Control"] = "no-cache"
        return response


class SwaggerView(_Page, SpectacularSwaggerSplitView):
    """``GET /market/docs/``: Swagger UI, to read and to try."""

    template_name = "docs/swagger_ui.html"
    template_name_js = "docs/swagger_ui.js"


class RedocView(_Page, SpectacularRedocView):
    """``GET /market/docs/redoc/``: ReDoc, to read."""

    template_name = "docs/redoc.html"
