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
    id_parameter,
    operation,
    plain,
)
from seize.requests import ALTCHA_MAX
from seize.responses import CHALLENGE_URL, CLAIM_URL

SEIZED_STATES = [("pending", "on its way to your coupons"), ("settled", "arrived: ask for the claim or your coupons")]
CLAIM_PATH = {
    "type": "string",
    "format": "uri-reference",
    "pattern": f"^{CLAIM_URL.format('[1-9][0-9]{0,18}')}$",
    "examples": [CLAIM_URL.format(12)],
}


CHALLENGE_PATH = {
    "type": "string",
    "format": "uri-reference",
    "pattern": f"^{CHALLENGE_URL.format('[1-9][0-9]{0,18}')}$",
    "description": "Where to get a challenge.",
    "examples": [CHALLENGE_URL.format(12)],
}


@extend_schema_field(CLAIM_PATH)
class ClaimUrlField(serializers.CharField):
    """The path of an activity's claims."""


@extend_schema_field(
    {
        "type": "string",
        "pattern": "^[A-Za-z0-9+/=]+$",
        "maxLength": ALTCHA_MAX,
        "examples": ["eyJhbGdvcml0aG0iOiJTSEEtMjU2IiwiY2hhbGxlbmdlIjoiLi4uIn0="],
    }
)
class AltchaField(serializers.CharField):
    """Base64 of the JSON object that ALTCHA's widget makes: algorithm, challenge, number, salt, signature."""


@extend_schema_field({"type": "string", "pattern": "^[0-9a-f]{64}$"})
class HexField(serializers.CharField):
    """A SHA-256 in hexadecimal."""


class SeizeRequestShape(serializers.Serializer):
    """A press of the button. At most 1024 bytes."""

    id = IdGivenField(help_text="The activity.")
    seq = SeqField(
        required=False,
        help_text="Which of your coupons of this activity: 1, 2, … up to its limit. With it a request can be repeated "
        "safely; without it, a repeat asks for the next coupon. Written without a fraction.",
    )
    altcha = AltchaField(required=False, help_text="What solves this activity's challenge, where it asks for one.")


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
    "TOO_MANY_REQUESTS": {"activity_id?": ID, "server_time?": MOMENT},
    "NOT_ELIGIBLE": _REFUSAL,
    "CHALLENGE_REQUIRED": {**_REFUSAL, "challenge_url": CHALLENGE_PATH},
    "CHALLENGE_INVALID": {**_REFUSAL, "challenge_url": CHALLENGE_PATH},
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


class AltchaChallengeShape(serializers.Serializer):
    """A challenge as ALTCHA's widget takes it: find the number whose hash behind ``salt`` is ``challenge``."""

    algorithm = constant("SHA-256")
    challenge = HexField(help_text="SHA-256 of the salt and the number in decimal, in hexadecimal.")
    maxnumber = serializers.IntegerField(min_value=1, max_value=1_000_000, help_text="The number is at most this.")
    salt = serializers.CharField(help_text="Says for whom, for what and until when it is good.")
    signature = HexField(help_text="Send it back as it is.")
    expires_at = MomentField(help_text="Get another one before this.")


CHALLENGE = operation(
    "getChallenge",
    tag=SHOPPER,
    summary="Get a challenge",
    description="Work for the caller's device, where the activity asks for it: its refusals are `CHALLENGE_REQUIRED`. "
    "Send what solves it as `altcha` with the seize request. It is good for one coupon of this activity, for this "
    "shopper, for four minutes: get it before the start, and solve it while the countdown runs.",
    answers={
        200: Answer(
            "A new challenge.",
            AltchaChallengeShape,
            examples={
                "challenge": {
                    "algorithm": "SHA-256",
                    "challenge": "8e2c" * 16,
                    "maxnumber": 50_000,
                    "salt": "0f3a8be1c5d9427e60b1a4c2?expires=1797076800&activity=12&shopper=7&set_ms=1797076560000&",
                    "signature": "51ab" * 16,
                    "expires_at": "2026-12-12T12:04:00Z",
                }
            },
            headers=CACHE_HEADER,
        )
    },
    problems=plain("NOT_FOUND", *STORE_FAULTS),
    parameters=[id_parameter("activity_id", "The activity.")],
)
