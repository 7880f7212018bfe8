"""The same endpoint as a plain REST framework view: serializer, simplejwt, django-redis, one EVALSHA a request."""

from typing import Any

from answers import SCRIPT, answer, keys_of, problem
from django_redis import get_redis_connection
from rest_framework import serializers
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.views import exception_handler as stock_handler

PROBLEM = "application/problem+json"
seize_script = get_redis_connection("default").register_script(SCRIPT)


class WantedSerializer(serializers.Serializer):
    """The body."""

    id = serializers.RegexField(r"^[1-9][0-9]{0,18}$")
    seq = serializers.IntegerField(min_value=1, max_value=1_000_000, required=False, default=0)


class SeizeView(APIView):
    """Claim one coupon for the caller."""

    def post(self, request: Request) -> Response:
        wanted = WantedSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        activity_id = wanted.validated_data["id"]
        arguments = [activity_id, 0, request.user.id, wanted.validated_data["seq"], 0]
        status, body = answer(seize_script(keys=keys_of(activity_id), args=arguments), activity_id)
        kind = None if status < 300 else PROBLEM
        return Response(body, status, headers={"Cache-Control": "no-store"}, content_type=kind)


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """REST framework's own answers as problem details."""
    response = stock_handler(error, context)
    if response is None:
        return None
    if isinstance(error, AuthenticationFailed | NotAuthenticated):
        body = problem("UNAUTHENTICATED", 401, "Please log in.")
    else:
        body = problem("INVALID_REQUEST", response.status_code, "The request is not valid.")
    return Response(body, body["status"], headers={"WWW-Authenticate": "Bearer"}, content_type=PROBLEM)
