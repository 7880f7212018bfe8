"""The words in which an operation describes itself for the OpenAPI document. Documentation only: nothing here answers.

:func:`operation` goes above a view's method. It adds what every operation has in common, so that one names only what is
its own; the status and the title of a problem come from :data:`seize.problems.CATALOGUE`. What drf-spectacular has no
words for (headers that an answer always has, links) travels as ``x-answers`` to ``couponsite/schema.py``, which puts it
in its place.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from drf_spectacular.utils import (
    OpenApiExample,
    OpenApiParameter,
    OpenApiRequest,
    OpenApiResponse,
    extend_schema,
    extend_schema_field,
)
from rest_framework import serializers

from seize.problems import CATALOGUE, CONTENT_TYPE, Problem, title_of
from seize.requests import ID_MAX, SEQ_MAX

Schema = dict[str, Any]
Members = Mapping[str, Schema]  # by name; a name that ends with "?" is there at times only
View = TypeVar("View", bound=Callable[..., Any])

REQUEST_ID_EXAMPLE = "4f0c2b7de1a94c5f8d36a1b2c3d4e5f6"
ANSWERS = "x-answers"  # only on its way from an operation to the document's completion

SHOPPER, SERVICE, LOG_IN = "shopper", "service", "log-in"


# -- Values ---------------------------------------------------------------------------------------------


def _below(limit: str) -> str:
    """A pattern of the decimal numbers from 1 to ``limit``, without leading zeros."""
    parts = [f"[1-9][0-9]{{0,{len(limit) - 2}}}"]
    for place, digit in enumerate(limit):
        lowest = 1 if place == 0 else 0
        if int(digit) > lowest:
            rest = len(limit) - place - 1
            lower = f"[{lowest}-{int(digit) - 1}]" if int(digit) - 1 > lowest else str(lowest)
            parts.append(limit[:place] + lower + (f"[0-9]{{{rest}}}" if rest else ""))
    return f"^({'|'.join([*parts, limit])})$"


ID: Schema = {"type": "string", "pattern": "^[1-9][0-9]{0,18}$", "examples": ["12"]}
MOMENT: Schema = {"type": "string", "format": "date-time", "examples": ["2026-12-12T12:00:00.003Z"]}
MONEY: Schema = {"type": "string", "pattern": r"^(0|[1-9][0-9]{0,7})\.[0-9]{2}$", "examples": ["20.00"]}
SEQ: Schema = {"type": "integer", "minimum": 1, "maximum": SEQ_MAX, "examples": [1]}
JWT: Schema = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$",
    "examples": ["eyJhbGciOiJIUzI1NiJ9.eyJ1c2VyX2lkIjoiNyJ9.c2lnbmF0dXJl"],
}
ID_TEXT: Schema = {"type": "string", "pattern": _below(str(ID_MAX)), "maxLength": len(str(ID_MAX)), "examples": ["12"]}
ID_GIVEN: Schema = {
    "oneOf": [
        {name: value for name, value in ID_TEXT.items() if name != "examples"},
        {"type": "integer", "format": "int64", "minimum": 1, "maximum": ID_MAX},
    ],
    "examples": ["12", 12],
}


@extend_schema_field(ID)
class IdField(serializers.CharField):
    """An id as it is answered: decimal text."""


@extend_schema_field(ID_GIVEN)
class IdGivenField(serializers.CharField):
    """An id as it may be sent: decimal text, or an integer."""


@extend_schema_field(MOMENT)
class MomentField(serializers.CharField):
    """A time: RFC 3339 in UTC, to the millisecond."""


@extend_schema_field(MONEY)
class MoneyField(serializers.CharField):
    """Yuan as decimal text with two places."""


@extend_schema_field(SEQ)
class SeqField(serializers.IntegerField):
    """Which of a shopper's coupons of one activity."""


@extend_schema_field(JWT)
class JwtField(serializers.CharField):
    """A JSON web token."""


def constant(value: str) -> serializers.CharField:
    """A member that always has this value."""

    @extend_schema_field({"type": "string", "const": value})
    class ConstantField(serializers.CharField):
        """Always the same."""

    return ConstantField()


# -- Headers --------------------------------------------------------------------------------------------


_RETRY = "Seconds to wait before asking again; spread, so that a crowd does not return as one."
_SECONDS: Schema = {"type": "integer", "minimum": 1, "examples": [2]}


def _header(description: str, schema: Schema, *, required: bool = True) -> Schema:
    return {"description": description, "required": required, "schema": schema}


HEADERS = {  # components of the document
    "RequestId": _header(
        "The id of this request, for a question to the operator; the `instance` of a problem.",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{8,64}$", "examples": [REQUEST_ID_EXAMPLE]},
    ),
    "CacheControl": _header("Whether the answer may be kept.", {"type": "string", "examples": ["no-store"]}),
    "ETag": _header(
        "Names what the answer says; send it back as `If-None-Match`. Weak, since `server_time` is not part of it.",
        {"type": "string", "pattern": '^(W/)?"[^"]*"$', "examples": ['W/"8d969eef6ecad3c2"']},
    ),
    "ContentLanguage": _header("The language of `title`.", {"type": "string", "enum": ["en", "zh-hans"]}),
    "Authenticate": _header("How to say who you are.", {"type": "string", "examples": ['Bearer realm="coupons"']}),
    "RetryAfter": _header(_RETRY, _SECONDS),
    "RateLimit": _header(
        "The limit that is used up: `r` requests are left, `t` seconds until there is room "
        "(draft-ietf-httpapi-ratelimit-headers).",
        {"type": "string", "pattern": '^"[a-z-]+";r=0;t=[0-9]+$', "examples": ['"shopper";r=0;t=2']},
        required=False,
    ),
    "RateLimitPolicy": _header(
        "What that limit is: `q` requests in any `w` seconds, half of them at once.",
        {"type": "string", "pattern": '^"[a-z-]+";q=[0-9]+;w=[0-9]+$', "examples": ['"shopper";q=30;w=10']},
        required=False,
    ),
}


def _header_of(name: str) -> Schema:
    return {"$ref": f"#/components/headers/{name}"}


REQUEST_ID_HEADER = {"X-Request-ID": _header_of("RequestId")}
CACHE_HEADER = {"Cache-Control": _header_of("CacheControl")}
ETAG_HEADER = {"ETag": _header_of("ETag")}


def _retry_header(codes: Sequence[str]) -> dict[str, Schema]:
    """Retry-After where one of the codes has it, required where all have it."""
    waiting = [code for code in codes if code in RETRIED]
    if not waiting:
        return {}
    if waiting == list(codes):
        return {"Retry-After": _header_of("RetryAfter")}
    return {"Retry-After": _header(f"{_RETRY} With {_either(waiting)} only.", _SECONDS, required=False)}


def _either(codes: Iterable[str]) -> str:
    return " or ".join(f"`{code}`" for code in codes)


LANGUAGE_PARAMETER = OpenApiParameter(
    "Accept-Language",
    {"type": "string", "examples": ["zh-CN,zh;q=0.9"]},
    OpenApiParameter.HEADER,
    description="Titles of problems are English or Chinese, English where neither is wanted.",
)
REQUEST_ID_PARAMETER = OpenApiParameter(
    "X-Request-ID",
    {"type": "string", "examples": [REQUEST_ID_EXAMPLE]},
    OpenApiParameter.HEADER,
    description="Your id for this request. It comes back when it is 8 to 64 letters, digits, `.`, `_` or `-`; else "
    "another one is made.",
)
IF_NONE_MATCH_PARAMETER = OpenApiParameter(
    "If-None-Match",
    {"type": "string", "examples": ['W/"8d969eef6ecad3c2"']},
    OpenApiParameter.HEADER,
    description="The `ETag` of an earlier answer: 304 while it would say the same.",
)
_COMMON_PARAMETERS = (LANGUAGE_PARAMETER, REQUEST_ID_PARAMETER)


def id_parameter(name: str, description: str) -> OpenApiParameter:
    """An id in the path."""
    return OpenApiParameter(name, ID, OpenApiParameter.PATH, description=description)


# -- Problems -------------------------------------------------------------------------------------------

EVERYWHERE = (
    "INVALID_REQUEST",
    "NOT_ACCEPTABLE",
    "REQUEST_TIMEOUT",
    "TOO_LARGE",
    "TOO_MANY_REQUESTS",
    "INTERNAL_ERROR",
    "BUSY",
)
STORE_FAULTS = ("NOT_READY", "OUTCOME_UNKNOWN")
RETRIED = frozenset(
    {"NOT_STARTED", "PAUSED", "NOT_READY", "BUSY", "OUTCOME_UNKNOWN", "LEDGER_UNAVAILABLE", "IDEMPOTENCY_IN_FLIGHT",
     "TOO_MANY_REQUESTS"}
)  # fmt: skip


def problem_schema() -> Schema:
    """The component that every problem is."""
    return {
        "type": "object",
        "description": "A refusal or fault (RFC 9457). Decide by `code`; more members may follow, ignore those you "
        "do not know.",
        "required": ["type", "title", "status", "code", "instance"],
        "properties": {
            "type": {"type": "string", "pattern": "^urn:problem:[a-z-]+$", "description": "`code` as a URI."},
            "title": {"type": "string", "description": "One sentence for people, by `Accept-Language`."},
            "status": {"type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status."},
            "code": {"type": "string", "enum": list(CATALOGUE), "description": "What happened; never renamed."},
            "instance": {
                "type": "string",
                "pattern": "^[A-Za-z0-9._-]{8,64}$",
                "description": "The request's id, as in `X-Request-ID`.",
            },
            "detail": {"type": "string", "description": "What to change, where that can be said."},
        },
    }


ERRORS: Members = {  # of INVALID_REQUEST, where fields are named
    "errors?": {
        "type": "object",
        "description": "What is wrong with each field, by its name; `non_field_errors` = with the whole body.",
        "additionalProperties": {"type": "array", "items": {"type": "string"}},
        "examples": [{"refresh": ["This field is required."]}],
    }
}


def plain(*codes: str) -> dict[str, Members]:
    """Problems without members of their own."""
    return {code: {} for code in codes}


def problem_answers(problems: Mapping[str, Members]) -> dict[tuple[int, str], OpenApiResponse]:
    """One response a status, of all codes that have it."""
    return {
        (status, CONTENT_TYPE): OpenApiResponse(
            _problem_schema(status, {code: problems[code] for code in codes}),
            description=_meanings(codes),
            examples=[_problem_example(code, problems[code]) for code in codes],
        )
        for status, codes in _by_status(problems).items()
    }


def _meanings(codes: Sequence[str]) -> str:
    lines = [f"`{code}`: {title_of(code, 'en')}" for code in codes]
    return lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines)


def problem_headers(problems: Mapping[str, Members]) -> dict[str, dict[str, Schema]]:
    """The headers of each status' problems, by status."""
    headers: dict[str, dict[str, Schema]] = {}
    for status, codes in _by_status(problems).items():
        headers[str(status)] = {"Content-Language": _header_of("ContentLanguage"), **_retry_header(codes)}
        if "TOO_MANY_REQUESTS" in codes:
            headers[str(status)] |= {
                "RateLimit": _header_of("RateLimit"),
                "RateLimit-Policy": _header_of("RateLimitPolicy"),
            }
        if "UNAUTHENTICATED" in codes:
            headers[str(status)]["WWW-Authenticate"] = _header_of("Authenticate")
    return headers


def _by_status(problems: Iterable[str]) -> dict[int, list[str]]:
    wanted = set(problems)
    by_status: dict[int, list[str]] = {}
    for code, (status, _title) in CATALOGUE.items():  # the catalogue's order, whoever asks
        if code in wanted:
            by_status.setdefault(status.value, []).append(code)
    if unknown := wanted - set(CATALOGUE):
        raise KeyError(f"not in the catalogue of problems: {', '.join(sorted(unknown))}")
    return dict(sorted(by_status.items()))


def _problem_schema(status: int, problems: Mapping[str, Members]) -> Schema:
    """The component, narrowed down to these codes, with the members that they have."""
    holders: dict[str, list[str]] = {}
    properties: dict[str, Schema] = {
        "status": {"type": "integer", "const": status},
        "code": {"type": "string", "enum": list(problems)},
    }
    at_times: set[str] = set()
    for code, members in problems.items():
        for marked, schema in members.items():
            name = marked.removesuffix("?")
            if name != marked:
                at_times.add(name)
            holders.setdefault(name, []).append(code)
            properties[name] = schema
    for name, codes in holders.items():
        if len(codes) < len(problems):
            text = f"{properties[name].get('description', '')} With {_either(codes)} only.".strip()
            properties[name] = {**properties[name], "description": text}
    own: Schema = {"type": "object", "properties": properties}
    if always := [name for name, codes in holders.items() if len(codes) == len(problems) and name not in at_times]:
        own["required"] = always
    return {"allOf": [{"$ref": "#/components/schemas/Problem"}, own]}


def _problem_example(code: str, members: Members) -> OpenApiExample:
    values = {name.removesuffix("?"): schema["examples"][0] for name, schema in members.items()}
    body = Problem(code, members=values).body(instance=REQUEST_ID_EXAMPLE, language="en")
    return OpenApiExample(code.capitalize().replace("_", " "), body, summary=code)


# -- Operations -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Link:
    """What an answer leads to.

    :param to: the operation's id.
    :param parameters: its parameters as runtime expressions, ``$response.body#/…``.
    :param body: its body, of such expressions and constants.
    """

    name: str
    to: str
    description: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] | None = None

    def schema(self) -> Schema:
        """The link object of the document."""
        link: Schema = {"operationId": self.to, "description": self.description}
        if self.parameters:
            link["parameters"] = dict(self.parameters)
        if self.body is not None:
            link["requestBody"] = dict(self.body)
        return link


@dataclass(frozen=True, slots=True)
class Answer:
    """A success.

    :param shape: None where there is no body.
    :param examples: bodies by name.
    """

    description: str
    shape: type[serializers.Serializer] | None = None
    examples: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, Schema] = field(default_factory=dict)
    links: Sequence[Link] = ()

    def response(self) -> OpenApiResponse:
        """In drf-spectacular's words."""
        examples = [OpenApiExample(name, value) for name, value in self.examples.items()]
        return OpenApiResponse(self.shape, description=self.description, examples=examples)


def operation(
    operation_id: str,
    *,
    tag: str,
    summary: str,
    description: str,
    answers: Mapping[int, Answer],
    problems: Mapping[str, Members],
    request: type[serializers.Serializer] | None = None,
    request_examples: Mapping[str, object] | None = None,
    parameters: Sequence[OpenApiParameter] = (),
    public: bool = False,
    links: Mapping[int, Sequence[Link]] | None = None,
) -> Callable[[View], View]:
    """Describe a view's method.

    :param answers: successes by status.
    :param problems: codes of its own with their members; what every operation can answer is added.
    :param public: whether it is for everybody; else 401 is added.
    :param links: of problems, by status; those of successes are theirs.
    """
    added = EVERYWHERE + (() if public else ("UNAUTHENTICATED",)) + (("UNSUPPORTED_MEDIA_TYPE",) if request else ())
    every = {**plain(*added), **problems}
    extra: dict[str, Schema] = {status: {"headers": headers} for status, headers in problem_headers(every).items()}
    for status, answer in answers.items():
        extra[str(status)] = {"headers": dict(answer.headers), "links": _links(answer.links)}
    for status, leads in (links or {}).items():
        extra[str(status)]["links"] = _links(leads)
    bodies = [OpenApiExample(name, value) for name, value in (request_examples or {}).items()]
    responses: dict[Any, OpenApiResponse] = {status: answer.response() for status, answer in answers.items()}
    return extend_schema(
        operation_id=operation_id,
        tags=[tag],
        summary=summary,
        description=description,
        request=None if request is None else OpenApiRequest(request, examples=bodies),
        responses=responses | problem_answers(every),
        parameters=[*parameters, *_COMMON_PARAMETERS],
        extensions={ANSWERS: extra},
    )


def _links(links: Iterable[Link]) -> dict[str, Schema]:
    return {link.name: link.schema() for link in links}
