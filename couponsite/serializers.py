"""What log-in takes: Simple JWT's serializers, but nothing is guessed and nothing is passed over."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from rest_framework import serializers
from rest_framework_simplejwt.serializers import TokenObtainPairSerializer, TokenRefreshSerializer


class _Strict(serializers.Serializer):
    """Text only, and no member that is unknown."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            wrong: dict[str, list[Any]] = {
                name[:40]: [_("Unknown field.")] for name in sorted(data.keys() - self.fields.keys())
            }
            for name, field in self.fields.items():
                if type(data.get(name, "")) not in (str, type(None)):
                    wrong[name] = [field.error_messages["invalid"]]
            if wrong:
                raise serializers.ValidationError(wrong)
        return super().to_internal_value(data)


class LogInSerializer(_Strict, TokenObtainPairSerializer):
    """A user name and a password, the latter with the blanks that it has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"] = serializers.CharField(write_only=True, trim_whitespace=False)


class RefreshSerializer(_Strict, TokenRefreshSerializer):
    """A refresh token."""
