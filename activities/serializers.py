"""What services send to ``/market/inner/``: parsed strictly, so that nothing is guessed about money or ids."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from activities.models.redemption import ORDER_ID_MAX
from seize.requests import id_parse

MONEY = r"(0|[1-9][0-9]{0,7})(\.[0-9]{1,2})?"
REASON_MAX = 200
# No control characters, no line ends, nothing that turns the direction of the text around it.
REASON = rf"(?=.*\S)[^\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]{{1,{REASON_MAX}}}"
ORDER_ID = rf"[A-Za-z0-9._:-]{{1,{ORDER_ID_MAX}}}"


class StrictSerializer(serializers.Serializer):
    """A serializer that refuses what it does not know: a misspelt field is a mistake, not a default."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping) and (unknown := sorted(set(data) - set(self.fields))):
            raise serializers.ValidationError({str(name)[:40]: [_("Unknown field.")] for name in unknown})
        return super().to_internal_value(data)


class IdField(serializers.Field):
    """An id: a decimal string or an integer from 1 to 2^63-1; becomes an int."""

    default_error_messages: ClassVar = {"invalid": _("Must be an id: a decimal string or integer from 1 to 2^63-1.")}

    def to_internal_value(self, data: Any) -> int:
        parsed = id_parse(data)
        if parsed is None:
            self.fail("invalid")
        return parsed

    def to_representation(self, value: int) -> str:
        return str(value)


class MoneyField(serializers.Field):
    """An amount above zero: text in yuan such as "199.00"; a JSON number could be yuan or fen and is refused."""

    default_error_messages: ClassVar = {
        "invalid": _('Must be text in yuan from "0.01" to "99999999.99", such as "199.00".')
    }

    def to_internal_value(self, data: Any) -> Decimal:
        if type(data) is not str or not re.fullmatch(MONEY, data, re.ASCII) or not Decimal(data):
            self.fail("invalid")
        return Decimal(data).quantize(Decimal("0.01"))

    def to_representation(self, value: Decimal) -> str:
        return f"{value:.2f}"


class OrderIdField(serializers.Field):
    """The caller's name for an order, compared byte for byte."""

    default_error_messages: ClassVar = {"invalid": _("Must be 1 to 64 of A-Z a-z 0-9 . _ : - and nothing else.")}

    def to_internal_value(self, data: Any) -> str:
        if type(data) is not str or not re.fullmatch(ORDER_ID, data, re.ASCII):
            self.fail("invalid")
        return str(data)

    def to_representation(self, value: str) -> str:
        return value


class ReasonField(serializers.Field):
    """One line of text that is not blank."""

    default_error_messages: ClassVar = {"invalid": _("Must be one line of 1 to 200 characters.")}

    def to_internal_value(self, data: Any) -> str:
        if type(data) is not str or not re.fullmatch(REASON, data):
            self.fail("invalid")
        return str(data)

    def to_representation(self, value: str) -> str:
        return value


class AvailableQuery(StrictSerializer):
    """``?user_id=7&amount=199.00``."""

    user_id = IdField()
    amount = MoneyField()


class QuoteRequest(StrictSerializer):
    """A dry run: which coupon of whom, and the order's amount."""

    coupon_id = IdField()
    user_id = IdField()
    order_amount = MoneyField()


class RedeemRequest(QuoteRequest):
    """The same for an order."""

    order_id = OrderIdField()


class RollBackRequest(StrictSerializer):
    """Which order gives which coupon back, and why."""

    coupon_id = IdField()
    order_id = OrderIdField()
    reason = ReasonField()
