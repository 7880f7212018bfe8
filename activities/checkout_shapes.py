"""What services ask and are answered at checkout, for the OpenAPI document only: nothing is rendered by these.

The requests are parsed by :mod:`activities.serializers`, the answers made in :mod:`activities.service_views`.
"""

from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers

from activities.models.redemption import ORDER_ID_MAX
from activities.serializers import ORDER_ID, REASON, REASON_MAX
from activities.shapes import COUPON_EXAMPLE, CouponShape
from seize.openapi import (
    CACHE_HEADER,
    ERRORS,
    ID_TEXT,
    MONEY,
    SERVICE,
    Answer,
    IdField,
    IdGivenField,
    Link,
    Members,
    MomentField,
    MoneyField,
    Schema,
    constant,
    operation,
    plain,
)
from seize.problems import title_of

MONEY_GIVEN: Schema = {
    "type": "string",
    "pattern": r"^(?!0(\.0{1,2})?$)(0|[1-9][0-9]{0,7})(\.[0-9]{1,2})?$",
    "examples": ["199.00"],
}
ORDER_ID_GIVEN: Schema = {
    "type": "string",
    "pattern": f"^{ORDER_ID}$",
    "maxLength": ORDER_ID_MAX,
    "examples": ["2026-000123"],
}
REASON_GIVEN: Schema = {
    "type": "string",
    "pattern": f"^{REASON}$",
    "maxLength": REASON_MAX,
    "examples": ["the shopper cancelled"],
}


@extend_schema_field(MONEY_GIVEN)
class MoneyGivenField(serializers.CharField):
    """Yuan as decimal text, above zero."""


@extend_schema_field(ORDER_ID_GIVEN)
class OrderIdField(serializers.CharField):
    """A service's name for an order."""


@extend_schema_field(REASON_GIVEN)
class ReasonField(serializers.CharField):
    """Why a coupon is given back."""


# -- Requests ---------------------------------------------------------------------------------------------


class QuoteRequestShape(serializers.Serializer):
    """Which coupon of whom, for an order of which amount."""

    coupon_id = IdGivenField()
    user_id = IdGivenField(help_text="The shopper whose coupon it is.")
    order_amount = MoneyGivenField(help_text="What the order comes to before this coupon.")


class RedeemRequestShape(QuoteRequestShape):
    """The same, and the order that uses it."""

    order_id = OrderIdField(
        help_text="Your id of the order, compared byte for byte; no two services may use the same one."
    )


class RollBackRequestShape(serializers.Serializer):
    """Which order gives which coupon back, and why."""

    coupon_id = IdGivenField()
    order_id = OrderIdField(help_text="The order that redeemed it.")
    reason = ReasonField(help_text="For the record: one line.")


# -- Answers ----------------------------------------------------------------------------------------------

UNUSABLE = [
    ("COUPON_PENDING", "won, on its way; in a moment"),
    ("COUPON_EXPIRED", "past `expires_at`"),
    ("COUPON_VOIDED", "withdrawn"),
    ("COUPON_REDEEMED", "used by an order"),
    ("BELOW_MIN_SPEND", "the amount is below `min_spend`"),
    ("NO_DISCOUNT", "it would take nothing off"),
]
RESTORED = [("unused", "can be used again"), ("expired", "its time is over"), ("voided", "its activity was withdrawn")]


class QuotedShape(serializers.Serializer):
    """An amount split in two."""

    discount = MoneyField()
    payable = MoneyField(help_text="The amount less the discount.")


class UsableCouponShape(CouponShape):
    """A coupon, and what it takes off."""

    discount = MoneyField()
    payable = MoneyField(help_text="The amount less the discount.")


class UnusableCouponShape(CouponShape):
    """A coupon, and why it cannot be used."""

    reason = serializers.ChoiceField(choices=UNUSABLE)
    reason_title = serializers.CharField(help_text="The same for people, by `Accept-Language`.")


class AvailableShape(serializers.Serializer):
    """A shopper's coupons held against an amount."""

    server_time = MomentField()
    amount = MoneyField(help_text="The amount asked about.")
    usable = UsableCouponShape(many=True, help_text="The largest discount first, then what expires first.")
    unusable = UnusableCouponShape(many=True, help_text="Unused ones first, then the newest of the others.")
    complete = serializers.BooleanField(
        help_text="False when there are more than the 500 unused ones that are looked at, or pending ones are unknown."
    )


class QuoteShape(QuotedShape):
    """What redeeming would say."""

    code = constant("USABLE")
    coupon_id = IdField()
    order_amount = MoneyField()


class _EntryShape(QuotedShape):
    coupon_id = IdField()
    user_id = IdField()
    order_id = OrderIdField()
    order_amount = MoneyField()


class RedeemedShape(_EntryShape):
    """The order has the coupon."""

    code = constant("REDEEMED")
    redeemed_at = MomentField()


class RolledBackShape(_EntryShape):
    """The order gave the coupon back."""

    code = constant("ROLLED_BACK")
    status = serializers.ChoiceField(choices=RESTORED, help_text="What the coupon became.")
    reason = serializers.CharField(help_text="That was given first.")
    rolled_back_at = MomentField()


# -- Operations -------------------------------------------------------------------------------------------

_KEY = OpenApiParameter(
    "Idempotency-Key",
    {
        "type": "string",
        "pattern": "^[!-~]{1,255}$",
        "maxLength": 255,
        "examples": ["8e03978e-40d5-43e8-bc93-6894a57f9324"],
    },
    OpenApiParameter.HEADER,
    description="The same key and request get the same answer for 24 hours. Without it the same order does, too.",
)
_REPLAYED: dict[str, Schema] = {
    "Idempotency-Replayed": {
        "description": "`true` on an answer that was given before to the same Idempotency-Key.",
        "required": False,
        "schema": {"type": "string", "const": "true"},
    }
}
_WRITTEN = CACHE_HEADER | _REPLAYED
_NOT_USABLE: dict[str, Members] = {
    **plain("UNKNOWN_COUPON", "COUPON_EXPIRED", "COUPON_VOIDED", "COUPON_REDEEMED", "NO_DISCOUNT"),
    "BELOW_MIN_SPEND": {"min_spend": {**MONEY, "description": "That the coupon asks for."}},
}
_ALL: dict[str, Members] = {**plain("FORBIDDEN", "LEDGER_UNAVAILABLE"), "INVALID_REQUEST": ERRORS}
_KEPT = plain("IDEMPOTENCY_IN_FLIGHT", "IDEMPOTENCY_MISMATCH")
_ASKED = {"coupon_id": "840", "user_id": "1001", "order_amount": "199.00"}
_ORDER = {"order_id": "2026-000123"}
_QUOTED = {"discount": "20.00", "payable": "179.00"}
_AT = "2026-12-13T08:00:00.000Z"
_ENTRY = {**_ASKED, **_ORDER, **_QUOTED}
_REDEEMED = {"redeemed": {"code": "REDEEMED", **_ENTRY, "redeemed_at": _AT}}
_ROLLED_BACK = {
    "rolled back": {
        "code": "ROLLED_BACK",
        **_ENTRY,
        "status": "unused",
        "reason": "payment timed out",
        "rolled_back_at": _AT,
    }
}

AVAILABLE = operation(
    "listAvailableCoupons",
    tag=SERVICE,
    summary="List a shopper's coupons for an order",
    description="Usable ones, the best first, each with its discount; the rest with why not. Nothing is reserved. "
    "Needs the scope `read`.",
    parameters=[
        OpenApiParameter("user_id", ID_TEXT, required=True, description="The shopper.", allow_blank=False),
        OpenApiParameter("amount", MONEY_GIVEN, required=True, description="The order's amount.", allow_blank=False),
    ],
    answers={
        200: Answer(
            "The shopper's coupons.",
            AvailableShape,
            examples={
                "one of each": {
                    "server_time": _AT,
                    "amount": "199.00",
                    "usable": [{**COUPON_EXAMPLE, **_QUOTED}],
                    "unusable": [
                        {
                            **COUPON_EXAMPLE,
                            "id": "841",
                            "min_spend": "500.00",
                            "reason": "BELOW_MIN_SPEND",
                            "reason_title": title_of("BELOW_MIN_SPEND", "en"),
                        }
                    ],
                    "complete": True,
                }
            },
            headers=CACHE_HEADER,
            links=[
                Link(
                    "redeem",
                    "redeemCoupon",
                    "Use the best one.",
                    body={
                        "coupon_id": "$response.body#/usable/0/id",
                        "user_id": "$request.query.user_id",
                        "order_amount": "$request.query.amount",
                        "order_id": "2026-000123",
                    },
                ),
                Link(
                    "quote",
                    "quoteCoupon",
                    "Ask about the best one for this amount.",
                    body={
                        "coupon_id": "$response.body#/usable/0/id",
                        "user_id": "$request.query.user_id",
                        "order_amount": "$request.query.amount",
                    },
                ),
            ],
        )
    },
    problems=_ALL,
)

QUOTE = operation(
    "quoteCoupon",
    tag=SERVICE,
    summary="Compute what a coupon takes off",
    description="A dry run of redeeming: the same answer or refusal, and nothing changes. Needs the scope `read`.",
    request=QuoteRequestShape,
    request_examples={"quote": _ASKED},
    answers={
        200: Answer(
            "It can be used.",
            QuoteShape,
            examples={"usable": {"code": "USABLE", "coupon_id": "840", "order_amount": "199.00", **_QUOTED}},
            headers=CACHE_HEADER,
        )
    },
    problems=_ALL | _NOT_USABLE,
)

REDEEM = operation(
    "redeemCoupon",
    tag=SERVICE,
    summary="Use a coupon for an order",
    description="Of many orders at once exactly one gets it. The same order again gets the same answer, with 200; an "
    "order that gave the coupon back cannot have it again. Needs the scope `redeem`.",
    request=RedeemRequestShape,
    request_examples={"redeem": {**_ASKED, **_ORDER}},
    parameters=[_KEY],
    answers={
        201: Answer(
            "Entered now.",
            RedeemedShape,
            examples=_REDEEMED,
            headers=_WRITTEN,
            links=[
                Link(
                    "rollBack",
                    "rollBackCoupon",
                    "Give it back when the order is cancelled, not paid, or refunded.",
                    body={
                        "coupon_id": "$response.body#/coupon_id",
                        "order_id": "$response.body#/order_id",
                        "reason": "the shopper cancelled",
                    },
                )
            ],
        ),
        200: Answer("Entered before for the same order.", RedeemedShape, examples=_REDEEMED, headers=_WRITTEN),
    },
    problems=_ALL
    | _NOT_USABLE
    | _KEPT
    | plain("ORDER_ROLLED_BACK")
    | {"ORDER_DIFFERS": {"order_amount": {**MONEY, "description": "That the order redeemed it with."}}},
)

ROLL_BACK = operation(
    "rollBackCoupon",
    tag=SERVICE,
    summary="Give a coupon back",
    description="The coupon becomes what it is by now: unused, expired or voided. The same again gets the same answer, "
    "with 200. Ask `redeem` until it answers before you give back. Needs the scope `redeem`.",
    request=RollBackRequestShape,
    request_examples={"roll back": {"coupon_id": "840", **_ORDER, "reason": "payment timed out"}},
    parameters=[_KEY],
    answers={
        201: Answer(
            "Entered now.",
            RolledBackShape,
            examples=_ROLLED_BACK,
            headers=_WRITTEN,
        ),
        200: Answer("Entered before for the same order.", RolledBackShape, examples=_ROLLED_BACK, headers=_WRITTEN),
    },
    problems=_ALL | _KEPT | plain("UNKNOWN_COUPON", "NOT_REDEEMED"),
)
