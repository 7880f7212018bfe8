"""The OpenAPI document: how it is completed, and kept for those who ask for it.

Operations describe themselves by :func:`seize.openapi.operation`; here is what belongs to all of them.
"""

import functools
import hashlib
import threading
from dataclasses import dataclass
from typing import Any

from django.utils.translation import override
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer
from rest_framework.renderers import BaseRenderer
from rest_framework.serializers import Serializer

from seize.openapi import ANSWERS, HEADERS, LOG_IN, REQUEST_ID_HEADER, SERVICE, SHOPPER, Schema, problem_schema

DESCRIPTION = """\
Coupons on offer in limited numbers, seized by a crowd in the same second.

**Conventions.** Times are RFC 3339 in UTC. Ids are decimal text. Money is decimal text in yuan. In a request, a \
member of a body or a parameter of a GET that is not described here is refused; in an answer, ignore what you do not \
know: more may follow.

**Problems.** Whatever is not a success is `application/problem+json` (RFC 9457) with a stable `code`; `title` is \
English or Chinese by `Accept-Language`, `instance` is the request's id. Beside those named at each operation there \
are, everywhere: 405 `METHOD_NOT_ALLOWED` with `Allow`, and 404 `NOT_FOUND` for a path that is not described here. \
A 503 says by its `code` whether anything can have happened: only with `OUTCOME_UNKNOWN` it can, and the same request \
again tells.

**Asking again.** Where `Retry-After` is given, wait so long. Every request here can be repeated safely, seizing with \
`seq`.
"""
TAGS = [
    {"name": SHOPPER, "description": "For shoppers' apps, by a shopper's access token."},
    {"name": SERVICE, "description": "For other services, by an API key."},
    {"name": LOG_IN, "description": "Access tokens for shoppers."},
]


class BearerScheme(OpenApiAuthenticationExtension):
    """A shopper's access token."""

    target_class = "seize.authentication.BearerAuthentication"
    name = "Bearer"

    def get_security_definition(self, auto_schema: AutoSchema) -> Schema:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": "`Authorization: Bearer <access token>`, from `POST /market/auth/token` or another issuer.",
        }


class ApiKeyScheme(OpenApiAuthenticationExtension):
    """A service's key."""

    target_class = "activities.authentication.ApiKeyAuthentication"
    name = "ApiKey"
    optional = True

    def get_security_definition(self, auto_schema: AutoSchema) -> Schema:
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "`Authorization: Api-Key <key>`; the back office makes keys.",
        }


class Operation(AutoSchema):
    """A component is named after its shape: ``ActivityShape`` is ``Activity``."""

    def get_serializer_name(self, serializer: Serializer, direction: Any) -> str:
        return str(super().get_serializer_name(serializer, direction)).removesuffix("Shape")


class Generator(SchemaGenerator):
    """Always in English, whoever asks first: the document is one, and is compared with the committed one."""

    def get_schema(self, request: Any = None, public: bool = False) -> Schema:  # noqa: FBT001, FBT002 - its signature
        with override("en"):
            schema: Schema = super().get_schema(request=request, public=public)
        return schema


def document_complete(result: Schema, generator: Any, request: Any, public: bool) -> Schema:  # noqa: FBT001 - a hook's
    """drf-spectacular's hook: what it has no words for, and what every operation has in common."""
    components = result["components"]
    used: set[str] = set()
    for path in result["paths"].values():
        for operation in path.values():
            used.update(operation["tags"])
            _answers_complete(operation)
            for content in operation.get("requestBody", {}).get("content", {}).values():
                shape = components["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
                shape["additionalProperties"] = False  # unknown members are refused
    components["schemas"] = dict(sorted({**components["schemas"], "Problem": problem_schema()}.items()))
    components["headers"] = HEADERS
    result["info"]["description"] = DESCRIPTION
    result["tags"] = [tag for tag in TAGS if tag["name"] in used]
    return result


def _answers_complete(operation: Schema) -> None:
    extra: Schema = operation.pop(ANSWERS, {})
    for status, response in operation["responses"].items():
        own = extra.get(status, {})
        response["headers"] = {
            **REQUEST_ID_HEADER,
            **response.get("headers", {}),
            **own.get("headers", {}),
        }
        if own.get("links"):
            response["links"] = own["links"]


@dataclass(frozen=True, slots=True)
class Document:
    """The document's bytes in one format, and their name."""

    body: bytes
    etag: str


_making = threading.Lock()  # drf-spectacular counts its warnings in one place


def document(*, format: str) -> Document:
    """The document of this process, made when it is first asked for.

    :param format: 'yaml' or 'json'.
    """
    with _making:
        return _documents()[format]


@functools.cache
def _documents() -> dict[str, Document]:
    schema = Generator().get_schema(request=None, public=True)
    return {renderer.format: _document(schema, renderer) for renderer in (OpenApiYamlRenderer(), OpenApiJsonRenderer())}


def _document(schema: Schema, renderer: BaseRenderer) -> Document:
    body = renderer.render(schema, renderer_context={})
    assert isinstance(body, bytes)
    return Document(body, f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"')
