"""What the list, the details and "my coupons" answer, for the OpenAPI document only: nothing is rendered by these.

The answers are made in :mod:`activities.listing` and :mod:`activities.wallet`.
"""

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from activities.listing import TABS
from activities.models import DiscountTerms
from activities.statuses import CouponStatus
from activities.wallet import STATUSES
from seize.openapi import (
    CACHE_HEADER,
    ETAG_HEADER,
    IF_NONE_MATCH_PARAMETER,
    SHOPPER,
    STORE_FAULTS,
    Answer,
    IdField,
    Link,
    MomentField,
    MoneyField,
    SeqField,
    id_parameter,
    operation,
    plain,
)

ACTIVITY_STATUSES = [
    ("upcoming", "starts at `starts_at`"),
    ("ongoing", "can be seized"),
    ("paused", "is stopped for a while"),
    ("ended", "is over"),
    ("voided", "was withdrawn, and its coupons with it"),
]
COUPON_STATUSES = [
    (CouponStatus.UNUSED.value.lower(), "can be used"),
    (CouponStatus.REDEEMED.value.lower(), "was used"),
    (CouponStatus.EXPIRED.value.lower(), "is past `expires_at`"),
    (CouponStatus.VOIDED.value.lower(), "was withdrawn"),
]
KINDS = [
    (DiscountTerms.Kind.FIXED.value, "`amount_off` yuan less"),
    (DiscountTerms.Kind.PERCENT.value, "`pay_percent` % is paid, `max_off` yuan less at most"),
]
CHALLENGES = [("off", "no"), ("pressure", "when `CHALLENGE_REQUIRED` says so"), ("always", "yes")]
COUPON_STATES = [("pending", "won, on its way, without an id"), ("issued", "in the ledger")]
TAB_NAMES = [(tab, f"those that are {tab}") for tab in TABS]


class TermsShape(serializers.Serializer):
    """What a coupon is worth."""

    kind = serializers.ChoiceField(choices=KINDS)
    min_spend = MoneyField(help_text="Yuan that the order must come to; `0.00` = any.")
    amount_off = MoneyField(allow_null=True, help_text="Yuan; of `FIXED`.")
    pay_percent = serializers.IntegerField(
        allow_null=True, min_value=1, max_value=99, help_text="80 = 80 % is paid (8折); of `PERCENT`."
    )
    max_off = MoneyField(allow_null=True, help_text="Yuan at most; of `PERCENT`, null = no such limit.")
    min_payable = MoneyField(help_text="Yuan that stay to be paid, whatever the discount.")


class ActivityShape(TermsShape):
    """An activity as the list shows it."""

    id = IdField()
    name = serializers.CharField()
    status = serializers.ChoiceField(choices=ACTIVITY_STATUSES, help_text="As it is at `server_time`.")
    starts_at = MomentField(help_text="From this moment on a coupon can be seized.")
    ends_at = MomentField(help_text="From this moment on it cannot.")
    stock_total = serializers.IntegerField(min_value=1, help_text="Coupons on offer in all.")
    stock_left = serializers.IntegerField(
        allow_null=True, min_value=0, help_text="Coupons left, at most a second old; null = not known at the moment."
    )
    per_user_limit = serializers.IntegerField(min_value=1, help_text="Coupons for one shopper.")
    challenge = serializers.ChoiceField(
        choices=CHALLENGES, help_text="Whether to get a challenge and solve it before seizing."
    )
    coming_soon = serializers.BooleanField(
        help_text="It is not open to you (yet): shown as `upcoming`, whatever its start."
    )


class ActivityListShape(serializers.Serializer):
    """What is on offer, those that run first, then by start."""

    server_time = MomentField(help_text="Let countdowns go by it.")
    personal = serializers.BooleanField(
        help_text="Whether some shoppers see other activities than this answer: ask with a token for your own."
    )
    results = ActivityShape(many=True)


class ActivityDetailShape(ActivityShape):
    """One activity with its rules."""

    server_time = MomentField(help_text="Let countdowns go by it.")
    rules_text = serializers.CharField(allow_blank=True, help_text="For people.")
    valid_days = serializers.IntegerField(
        allow_null=True, min_value=1, help_text="A coupon is good for so many times 24 hours from seizing; or:"
    )
    valid_until = MomentField(allow_null=True, help_text="A coupon is good until then.")


class CouponShape(TermsShape):
    """A coupon with the terms of the moment in which it was seized."""

    id = IdField(allow_null=True, help_text="Null while the coupon is `pending`.")
    activity_id = IdField()
    activity_name = serializers.CharField()
    seq = SeqField(help_text="Which of your coupons of this activity.")
    state = serializers.ChoiceField(choices=COUPON_STATES)
    status = serializers.ChoiceField(choices=COUPON_STATUSES, help_text="As it is at `server_time`.")
    seized_at = MomentField()
    expires_at = MomentField(help_text="From this moment on it cannot be used.")
    redeemed_at = MomentField(allow_null=True, help_text="When an order used it; null while none has it.")


class CouponDetailShape(CouponShape):
    """One coupon with its activity's rules."""

    server_time = MomentField()
    rules_text = serializers.CharField(allow_blank=True, help_text="For people.")


class CouponPageShape(serializers.Serializer):
    """A page of coupons: pending ones first, then newest first."""

    server_time = MomentField()
    results = CouponShape(many=True)
    next_cursor = serializers.CharField(
        allow_null=True, help_text="`cursor` of the next page; null = this is the last."
    )


CURSOR = {"type": "string", "pattern": "^c[1-9][0-9]{0,17}$", "examples": ["c840"]}

_TERMS = {"kind": "FIXED", "min_spend": "100.00", "amount_off": "20.00", "pay_percent": None, "max_off": None,
          "min_payable": "0.00"}  # fmt: skip
_NOW = "2026-12-12T12:00:00.003Z"
_ACTIVITY = {
    "id": "12",
    "name": "满100减20",
    **_TERMS,
    "status": "ongoing",
    "starts_at": "2026-12-12T12:00:00.000Z",
    "ends_at": "2026-12-12T14:00:00.000Z",
    "stock_total": 1000,
    "stock_left": 412,
    "per_user_limit": 1,
    "challenge": "off",
    "coming_soon": False,
}
_DETAILS = {"rules_text": "每人限领一张。", "valid_days": 7, "valid_until": None}
COUPON_EXAMPLE = {
    "id": "840",
    "activity_id": "12",
    "activity_name": "满100减20",
    "seq": 1,
    "state": "issued",
    "status": "unused",
    **_TERMS,
    "seized_at": "2026-12-12T12:00:00.003Z",
    "expires_at": "2026-12-19T12:00:00.003Z",
    "redeemed_at": None,
}
_PENDING = {**COUPON_EXAMPLE, "id": None, "state": "pending"}

_SAME = Answer("The same as the one with this `ETag`.", headers=ETAG_HEADER | CACHE_HEADER)
_AS_IT_IS = ETAG_HEADER | CACHE_HEADER

LIST = operation(
    "listActivities",
    tag=SHOPPER,
    summary="List what is on offer",
    description="Activities that run, start within a month, or are over since a few days, with their live stock. For "
    "everybody; with a token also those that are open to its shopper alone, and without those that are closed to them. "
    "Made for a crowd that reloads: ask once a second at most, with `If-None-Match`.",
    parameters=[
        OpenApiParameter(
            "tab", {"type": "string", "enum": [*TABS]}, description="Only those with this status.", allow_blank=False
        ),
        IF_NONE_MATCH_PARAMETER,
    ],
    answers={
        200: Answer(
            "What is on offer.",
            ActivityListShape,
            examples={"one activity": {"server_time": _NOW, "personal": False, "results": [_ACTIVITY]}},
            headers=_AS_IT_IS,
            links=[
                Link("first", "getActivity", "Its rules.", parameters={"activity_id": "$response.body#/results/0/id"}),
                Link("seize", "seizeCoupon", "Seize it.", body={"id": "$response.body#/results/0/id", "seq": 1}),
            ],
        ),
        304: _SAME,
    },
    problems=plain(*STORE_FAULTS),
    public=True,
)

DETAIL = operation(
    "getActivity",
    tag=SHOPPER,
    summary="Show an activity",
    description="One activity of the list with its rules. For everybody; with a token as its shopper sees it.",
    parameters=[id_parameter("activity_id", "The activity's `id`."), IF_NONE_MATCH_PARAMETER],
    answers={
        200: Answer(
            "The activity.",
            ActivityDetailShape,
            examples={"activity": {"server_time": _NOW, **_ACTIVITY, **_DETAILS}},
            headers=_AS_IT_IS,
            links=[
                Link("seize", "seizeCoupon", "Seize it.", body={"id": "$response.body#/id", "seq": 1}),
                Link("claims", "getClaims", "What you have of it.", parameters={"activity_id": "$response.body#/id"}),
            ],
        ),
        304: _SAME,
    },
    problems=plain("NOT_FOUND", *STORE_FAULTS),
    public=True,
)

MY = operation(
    "listMyCoupons",
    tag=SHOPPER,
    summary="List my coupons",
    description="The caller's coupons, 20 a page: those that are still on their way first, then newest first. A coupon "
    "won is here from the moment in which seizing says so.",
    parameters=[
        OpenApiParameter(
            "status",
            {"type": "string", "enum": [*STATUSES]},
            description="Only those with this status.",
            allow_blank=False,
        ),
        OpenApiParameter("cursor", CURSOR, description="`next_cursor` of the page before.", allow_blank=False),
    ],
    answers={
        200: Answer(
            "A page of coupons.",
            CouponPageShape,
            examples={"one of each": {"server_time": _NOW, "results": [_PENDING, COUPON_EXAMPLE], "next_cursor": None}},
            headers=CACHE_HEADER,
            links=[
                Link(
                    "next",
                    "listMyCoupons",
                    "The next page, unless `next_cursor` is null.",
                    parameters={"cursor": "$response.body#/next_cursor"},
                ),
                Link(
                    "coupon",
                    "getCoupon",
                    "One of them, unless its `id` is null.",
                    parameters={"coupon_id": "$response.body#/results/0/id"},
                ),
                Link(
                    "claims",
                    "getClaims",
                    "What became of the claims on its activity.",
                    parameters={"activity_id": "$response.body#/results/0/activity_id"},
                ),
            ],
        )
    },
    problems=plain("LEDGER_UNAVAILABLE", *STORE_FAULTS),
)

COUPON = operation(
    "getCoupon",
    tag=SHOPPER,
    summary="Show a coupon",
    description="One of the caller's coupons with its activity's rules. A coupon that is `pending` has no id yet, and "
    "is in the list only.",
    parameters=[id_parameter("coupon_id", "The coupon's `id`.")],
    answers={
        200: Answer(
            "The coupon.",
            CouponDetailShape,
            examples={"coupon": {"server_time": _NOW, **COUPON_EXAMPLE, "rules_text": "每人限领一张。"}},
            headers=CACHE_HEADER,
        )
    },
    problems=plain("NOT_FOUND", "LEDGER_UNAVAILABLE"),
)
