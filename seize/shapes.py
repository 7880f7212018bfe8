"""What the seize route takes and answers, for the OpenAPI document only: nothing is parsed or rendered by these.

The parser is :func:`seize.requests.seize_request_parse`, the answers are made in :mod:`seize.responses`.
"""

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from seize.openapi import (
    CACHE_HEADER,
    ID,
    MOMENT,
    SEQ,
    SHOPPER,
    STORE_FAULTS,
    Answer,
    IdField,
    IdGivenField,
    Link,
    Members,
    MomentField,
    SeqField,
    constant,
    operation,
    plain,
)
from seize.responses import CLAIM_URL

SEIZED_STATES = [("pending", "on its way to your coupons"), ("settled", "arrived: ask for the claim or your coupons")]
CLAIM_PATH = {
    "type": "string",
    "format": "uri-reference",
    "pattern": f"^{CLAIM_URL.format('[1-9][0-9]{0,18}')}$",
    "examples": [CLAIM_URL.format(12)],
}


@extend_schema_field(CLAIM_PATH)
class ClaimUrlField(serializers.CharField):
    """The path of an activity's claims."""


class SeizeRequestShape(serializers.Serializer):
    """A press of the button. At most 1024 bytes."""

    id = IdGivenField(help_text="The activity.")
    seq = SeqField(
        required=False,
        help_text="Which of your coupons of this activity: 1, 2, … up to its limit. With it a request can be repeated "
        "safely; without it, a repeat asks for the next coupon. Written without a fraction.",
    )


class _WonShape(serializers.Serializer):
    code = constant("SEIZED")
    activity_id = IdField()
    seq = SeqField(help_text="Which of your coupons of this activity it is.")


class SeizedShape(_WonShape):
    """A coupon won just now."""

    seized_at = MomentField(help_text="By the clock that decides, which is also that of `server_time`.")
    state = constant("pending")
    claim_url = ClaimUrlField(help_text="Where to ask what became of it.")
    server_time = MomentField()


class SeizedBeforeShape(_WonShape):
    """The same seq was won before; nothing changed now."""

    seized_at = MomentField(required=False, help_text="While the coupon is `pending`.")
    state = serializers.ChoiceField(choices=SEIZED_STATES)
    claim_url = ClaimUrlField(help_text="Where to ask what became of it.")
    server_time = MomentField()


TO_CLAIMS = Link(
    "claims",
    "getClaims",
    "What became of the coupon.",
    parameters={"activity_id": "$response.body#/activity_id"},
)

_REFUSAL: Members = {"activity_id": ID, "server_time": MOMENT}
_REFUSALS: dict[str, Members] = {
    "LIMIT_REACHED": {
        **_REFUSAL,
        "held": {
            **SEQ,
            "minimum": 0,
            "description": "The highest seq that you hold; below the activity's limit when `seq` was above it.",
        },
        "claim_url": {**CLAIM_PATH, "description": "Where to look at it."},
    },
    "SOLD_OUT": _REFUSAL,
    "NOT_STARTED": {**_REFUSAL, "starts_at": {**MOMENT, "description": "When it starts."}},
    "PAUSED": _REFUSAL,
    "ENDED": _REFUSAL,
    "VOIDED": _REFUSAL,
    "UNKNOWN_ACTIVITY": _REFUSAL,
    "NOT_READY": {"activity_id?": ID, "server_time?": MOMENT},
}
_WON = {"code": "SEIZED", "activity_id": "12", "seq": 1}
_TIMES = {"claim_url": CLAIM_URL.format(12), "server_time": "2026-12-12T12:00:00.003Z"}
_SEIZED_AT = {"seized_at": "2026-12-12T12:00:00.003Z"}

SEIZE = operation(
    "seizeCoupon",
    tag=SHOPPER,
    summary="Seize a coupon",
    description="Claims one coupon of an activity for the caller. Decided at once and for good: a coupon won is shown "
    "by `GET …/coupon/my` from the same moment, as `pending`, and about a second later as `issued`.\n\n"
    "Send `seq`. A request whose answer was lost is then repeated as it was, and costs nothing: 200 says that the "
    "coupon was won before.\n\nA refusal changes nothing, and a repeat after `Retry-After` is welcome.",
    request=SeizeRequestShape,
    request_examples={"first coupon": {"id": "12", "seq": 1}, "next coupon": {"id": "12"}},
    answers={
        201: Answer(
            "Won just now.",
            SeizedShape,
            examples={"won": {**_WON, **_SEIZED_AT, "state": "pending", **_TIMES}},
            headers=CACHE_HEADER,
            links=[TO_CLAIMS],
        ),
        200: Answer(
            "Won before with the same seq.",
            SeizedBeforeShape,
            examples={
                "still on its way": {**_WON, **_SEIZED_AT, "state": "pending", **_TIMES},
                "arrived": {**_WON, "state": "settled", **_TIMES},
            },
            headers=CACHE_HEADER,
            links=[TO_CLAIMS],
        ),
    },
    problems=plain(*STORE_FAULTS) | _REFUSALS,
    links={409: [TO_CLAIMS]},
)
