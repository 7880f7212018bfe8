"""Proof of work against bots that ask in thousands: ALTCHA's challenge, bound to a shopper and an activity.

Format and check are those of the ``altcha`` package (its version 1, which fits into a press: 400 bytes). The moment at
which a challenge was set is its number: ``seize.lua`` takes each once, by noting the last one that a shopper used.
"""

import base64
import binascii
import secrets
from datetime import timedelta
from typing import Any, cast

import orjson
from altcha.v1 import ChallengeOptions, create_challenge, extract_params, verify_solution
from django.conf import settings
from django.utils.crypto import salted_hmac

from seize.frozen import settings_cached
from seize.times import moment_of

LIFETIME_S = 240  # as seize.lua has it: less than the time for which it remembers what was used
NONE, WRONG = 0, -1
_MEMBERS = {"algorithm": str, "challenge": str, "number": int, "salt": str, "signature": str}


@settings_cached
def _key() -> str:
    return salted_hmac("seize.challenge", "altcha", secret=settings.SECRET_KEY, algorithm="sha256").hexdigest()


def challenge_make(*, activity_id: int, user_id: int, effort: int, now_ms: int) -> dict[str, Any]:
    """A challenge for one coupon of this activity for this shopper: ALTCHA's members, and ``expires_at`` (RFC 3339).

    :param effort: hashes at most; on average half of it.
    :param now_ms: Redis' clock, which judges it as well: hosts' clocks may differ.
    """
    expires = moment_of(now_ms).replace(microsecond=0) + timedelta(seconds=LIFETIME_S)
    made = create_challenge(
        ChallengeOptions(
            max_number=effort,
            hmac_key=_key(),
            number=secrets.randbelow(effort) + 1,
            expires=expires,
            params={"activity": str(activity_id), "shopper": str(user_id), "set_ms": str(now_ms)},
        )
    )
    return {
        "algorithm": made.algorithm,
        "challenge": made.challenge,
        "maxnumber": made.max_number,
        "salt": made.salt,
        "signature": made.signature,
        "expires_at": expires.isoformat().replace("+00:00", "Z"),
    }


def solution_check(text: str, *, activity_id: int, user_id: int) -> int:
    """The number of the challenge that ``text`` (base64 of JSON, as ALTCHA's widget makes it) solves for this shopper.

    :return: ``NONE`` for an empty text; ``WRONG`` for what is forged, another's, or no solution at all.
    """
    if not text:
        return NONE
    try:
        given = orjson.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return WRONG
    if type(given) is not dict or any(type(given.get(name)) is not kind for name, kind in _MEMBERS.items()):
        return WRONG
    # Whether it has expired is the script's to say, by its clock.
    is_right, _why = verify_solution(cast("Any", given), _key(), check_expires=False)
    if not is_right:
        return WRONG
    facts = extract_params(cast("Any", given))  # ours: the signature is
    if (facts.get("activity"), facts.get("shopper")) != ([str(activity_id)], [str(user_id)]):
        return WRONG
    return int(facts["set_ms"][0])
