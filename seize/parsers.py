"""Bodies of the API for REST framework: JSON, strict and small."""

from collections.abc import Mapping
from typing import IO, Any

import orjson
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from seize.requests import RequestTooLarge

BODY_MAX_BYTES = 8 * 1024


class SmallJsonParser(BaseParser):
    """JSON of at most 8 kB; no NaN, no broken UTF-8, no nesting that would exhaust a stack."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The parsed body.

        :raises RequestTooLarge: above 8 kB.
        :raises rest_framework.exceptions.ParseError: not JSON.
        """
        body = stream.read(BODY_MAX_BYTES + 1)
        if len(body) > BODY_MAX_BYTES:
            raise RequestTooLarge(f"The body may have at most {BODY_MAX_BYTES} bytes.")
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            raise ParseError("The body must be JSON.") from None
