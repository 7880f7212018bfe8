"""Access tokens: who is the shopper? Decided from the token alone, without SQL."""

import time

import jwt
from django.conf import settings

from seize.requests import id_parse


class TokenInvalid(Exception):
    """The token does not prove who the shopper is; ``str()`` says why in a word or two."""


def access_token_verify(token: str) -> int:
    """The shopper's user id, 1 to 2**63 - 1.

    Checked: algorithm, signature, ``token_type`` = access, exp, nbf, iat (leeway 30 s), iss and aud
    where the settings name them, and that ``user_id`` is a canonical decimal.

    :raises TokenInvalid: any of these fails.
    """
    required = ["exp", "user_id"]
    if settings.JWT_ISSUER:
        required.append("iss")
    if settings.JWT_AUDIENCE:
        required.append("aud")
    try:
        claims = jwt.decode(
            token,
            settings.JWT_VERIFYING_KEY,
            algorithms=[settings.JWT_ALGORITHM],
            leeway=settings.JWT_LEEWAY_S,
            issuer=settings.JWT_ISSUER,
            audience=settings.JWT_AUDIENCE,
            options={"require": required, "verify_aud": settings.JWT_AUDIENCE is not None, "verify_sub": False},
        )
    except (jwt.InvalidTokenError, ValueError, TypeError, OverflowError) as error:
        raise TokenInvalid(type(error).__name__) from error
    if claims.get("token_type") != "access":
        raise TokenInvalid("not an access token")
    user_id = id_parse(claims["user_id"])
    if user_id is None:
        raise TokenInvalid("user_id is not a canonical id")
    return user_id


def access_token_issue(*, user_id: int, lifetime_s: int, now_s: int | None = None) -> str:
    """Sign an access token for a shopper; what development tokens and tests use.

    :param now_s: Unix time in seconds; None = now.
    """
    issued_s = int(time.time()) if now_s is None else now_s
    claims: dict[str, object] = {
        "token_type": "access",
        "user_id": str(user_id),
        "iat": issued_s,
        "exp": issued_s + lifetime_s,
    }
    if settings.JWT_ISSUER:
        claims["iss"] = settings.JWT_ISSUER
    if settings.JWT_AUDIENCE:
        claims["aud"] = settings.JWT_AUDIENCE
    return jwt.encode(claims, settings.JWT_SIGNING_KEY, algorithm=settings.JWT_ALGORITHM)
