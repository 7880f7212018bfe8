"""What log-in takes and answers, for the OpenAPI document only: Simple JWT's serializers parse and answer."""

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from seize.openapi import ERRORS, JWT, LOG_IN, Answer, JwtField, Link, operation, plain

USERNAME = {"type": "string", "pattern": r"^[^\u0000]*[^\s\u0000][^\u0000]*$", "examples": ["shopper"]}
PASSWORD = {"type": "string", "format": "password", "pattern": r"^[^\u0000]+$", "examples": ["a-long-password"]}


@extend_schema_field(USERNAME)
class UsernameField(serializers.CharField):
    """Text that is not blank."""


@extend_schema_field(PASSWORD)
class PasswordField(serializers.CharField):
    """Text, blanks and all."""


class LogInShape(serializers.Serializer):
    """Who logs in."""

    username = UsernameField()
    password = PasswordField()


class TokenPairShape(serializers.Serializer):
    """Two tokens."""

    refresh = JwtField(help_text="For new access tokens, good for 14 days. Keep it secret.")
    access = JwtField(help_text="For `Authorization: Bearer …`, good for an hour unless the operator says otherwise.")


class RefreshShape(serializers.Serializer):
    """A refresh token."""

    refresh = JwtField()


class AccessShape(serializers.Serializer):
    """A new access token."""

    access = JwtField(help_text="For `Authorization: Bearer …`.")


_TOKEN = JWT["examples"][0]
_REFUSED = plain("UNAUTHENTICATED", "LEDGER_UNAVAILABLE") | {"INVALID_REQUEST": ERRORS}

LOG_IN_OPERATION = operation(
    "logIn",
    tag=LOG_IN,
    summary="Log in",
    description="An access and a refresh token for a user name and a password. A site that takes the tokens of another "
    "issuer does not have this.",
    request=LogInShape,
    request_examples={"shopper": {"username": "shopper", "password": "a-long-password"}},
    answers={
        200: Answer(
            "The tokens.",
            TokenPairShape,
            examples={"tokens": {"refresh": _TOKEN, "access": _TOKEN}},
            links=[Link("refresh", "refreshToken", "A new access token.", body={"refresh": "$response.body#/refresh"})],
        )
    },
    problems=_REFUSED,
    public=True,
)

REFRESH_OPERATION = operation(
    "refreshToken",
    tag=LOG_IN,
    summary="Renew an access token",
    description="A new access token for a refresh token.",
    request=RefreshShape,
    request_examples={"token": {"refresh": _TOKEN}},
    answers={200: Answer("The token.", AccessShape, examples={"token": {"access": _TOKEN}})},
    problems=_REFUSED,
    public=True,
)
