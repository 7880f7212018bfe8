"""What the claim route answers, for the OpenAPI document only: the answer is made in :mod:`sync.claims`."""

from rest_framework import serializers

from seize.openapi import (
    CACHE_HEADER,
    SHOPPER,
    STORE_FAULTS,
    Answer,
    IdField,
    MomentField,
    SeqField,
    id_parameter,
    operation,
    plain,
)

CLAIM_STATES = [
    ("none", "not seized"),
    ("pending", "won, on its way"),
    ("issued", "among your coupons, as `coupon_id`"),
    ("failed", "won, but staff has to look at it"),
]


class ClaimShape(serializers.Serializer):
    """What became of one seq."""

    seq = SeqField()
    state = serializers.ChoiceField(choices=CLAIM_STATES)
    coupon_id = IdField(allow_null=True, help_text="Once it is `issued`.")


class ClaimsShape(serializers.Serializer):
    """What became of a shopper's claims on an activity: one entry a seq, from 1 to the activity's limit."""

    activity_id = IdField()
    server_time = MomentField()
    claims = ClaimShape(many=True)


CLAIMS = operation(
    "getClaims",
    tag=SHOPPER,
    summary="Ask what became of my claims",
    description="For each seq that a shopper may have of an activity: whether it was seized, and whether the "
    "coupon has arrived.",
    parameters=[id_parameter("activity_id", "The activity's `id`.")],
    answers={
        200: Answer(
            "The claims.",
            ClaimsShape,
            examples={
                "arrived": {
                    "activity_id": "12",
                    "server_time": "2026-12-12T12:00:01.250Z",
                    "claims": [
                        {"seq": 1, "state": "issued", "coupon_id": "840"},
                        {"seq": 2, "state": "none", "coupon_id": None},
                    ],
                }
            },
            headers=CACHE_HEADER,
        )
    },
    problems=plain("NOT_FOUND", "LEDGER_UNAVAILABLE", *STORE_FAULTS),
)
