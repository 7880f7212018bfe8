"""Access tokens: who is the shopper? Decided from the token alone, without SQL.

PyJWT decides. Beside it runs a short way for the plain case, which takes an eighth of the time and may only say yes:
whatever it is not sure of, PyJWT looks at.
"""

import binascii
import hmac
import time
from typing import NamedTuple

import jwt
import orjson
from django.conf import settings

from seize.frozen import settings_cached
from seize.requests import id_parse

ACCESS = "access"


class TokenInvalid(Exception):
    """The token does not prove who the shopper is; ``str()`` says why in a word or two."""


def bearer_verify(header: str) -> int:
    """The user id that an ``Authorization: Bearer <access token>`` header proves.

    :raises TokenInvalid: another scheme, or no good token.
    """
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        raise TokenInvalid("not a bearer token")
    return access_token_verify(token.strip())


def access_token_verify(token: str) -> int:
    """The shopper's user id, 1 to 2**63 - 1.

    Checked: algorithm, signature, ``token_type`` = access, exp, nbf, iat (leeway 30 s), iss and aud
    where the settings name them, and that ``user_id`` is a canonical decimal.

    :raises TokenInvalid: any of these fails.
    """
    return _plain_verify(token) or _full_verify(token)


def _full_verify(token: str) -> int:
    user_id = token_verify(token, kind=ACCESS)
    _header_trust(token)
    return user_id


def token_verify(token: str, *, kind: str) -> int:
    """The user id of a token of one ``token_type``, whichever it is; PyJWT decides.

    :raises TokenInvalid: as :func:`access_token_verify` does, or a token of another type.
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
    if claims.get("token_type") != kind:
        raise TokenInvalid(f"not a token of the type {kind}")
    user_id = id_parse(claims["user_id"])
    if user_id is None:
        raise TokenInvalid("user_id is not a canonical id")
    return user_id


_TO_URLSAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URLSAFE = bytes.maketrans(b"-_", b"+/")
_HEADERS_MAX = 16
_trusted_headers: set[tuple[str, str]] = set()  # (key, header part) of tokens that PyJWT found good


def _header_trust(token: str) -> None:
    """Remember a header that PyJWT accepted with this key: the same bytes get the same verdict."""
    if settings.JWT_ALGORITHM == "HS256":
        if len(_trusted_headers) >= _HEADERS_MAX:
            _trusted_headers.clear()
        _trusted_headers.add((settings.JWT_VERIFYING_KEY, token.partition(".")[0]))


class _PlainSettings(NamedTuple):
    """What the short way needs of the settings; reading seven of them by name costs a press a tenth."""

    key: str
    key_bytes: bytes
    issuer: str | None
    audience: str | None


@settings_cached
def _plain_settings() -> _PlainSettings | None:
    """None where the short way is not to be taken."""
    if settings.JWT_ALGORITHM != "HS256":
        return None
    key: str = settings.JWT_VERIFYING_KEY
    return _PlainSettings(key, key.encode(), settings.JWT_ISSUER, settings.JWT_AUDIENCE)


def _plain_verify(token: str) -> int:
    """The user id of a plain and valid HS256 token; 0 = not sure."""
    site = _plain_settings()
    signed, _, signature = token.rpartition(".")
    header, _, payload = signed.partition(".")
    if site is None or (site.key, header) not in _trusted_headers:
        return 0
    try:
        digest = hmac.digest(site.key_bytes, signed.encode("ascii"), "sha256")
        wanted = binascii.b2a_base64(digest, newline=False).translate(_TO_URLSAFE).rstrip(b"=")
        if not hmac.compare_digest(wanted, signature.encode("ascii")):
            return 0
        text = payload.encode("ascii").translate(_FROM_URLSAFE) + b"=" * (-len(payload) % 4)
        claims = orjson.loads(binascii.a2b_base64(text, strict_mode=True))
    except ValueError:  # not ASCII, not base64, not JSON
        return 0
    return _plain_user_id(claims, site) if type(claims) is dict else 0


def _plain_user_id(claims: dict[str, object], site: _PlainSettings) -> int:
    """The user id of claims that are valid beyond doubt, leeway not needed; 0 = not sure."""
    now_s = time.time()
    expires_s, issued_s, not_before_s = claims.get("exp"), claims.get("iat", 0), claims.get("nbf", 0)
    if not (type(expires_s) is int and type(issued_s) is int and type(not_before_s) is int):
        return 0
    if not (issued_s <= now_s < expires_s and not_before_s <= now_s):
        return 0
    if claims.get("token_type") != ACCESS or type(claims.get("jti", "")) is not str:
        return 0
    if site.issuer and claims.get("iss") != site.issuer:
        return 0
    if site.audience and claims.get("aud") != site.audience:
        return 0
    return id_parse(claims.get("user_id")) or 0


def access_token_issue(*, user_id: int, lifetime_s: int, now_s: int | None = None) -> str:
    """Sign an access token for a shopper: what development tokens, the coupon centre's script and tests use.

    :param now_s: Unix time in seconds; None = now.
    """
    return token_issue(kind=ACCESS, user_id=user_id, lifetime_s=lifetime_s, now_s=now_s)


def token_issue(*, kind: str, user_id: int, lifetime_s: int, now_s: int | None = None) -> str:
    """Sign a token of one ``token_type``, which is good where that type is asked for and nowhere else."""
    issued_s = int(time.time()) if now_s is None else now_s
    claims: dict[str, object] = {
        "token_type": kind,
        "user_id": str(user_id),
        "iat": issued_s,
        "exp": issued_s + lifetime_s,
    }
    if settings.JWT_ISSUER:
        claims["iss"] = settings.JWT_ISSUER
    if settings.JWT_AUDIENCE:
        claims["aud"] = settings.JWT_AUDIENCE
    return jwt.encode(claims, settings.JWT_SIGNING_KEY, algorithm=settings.JWT_ALGORITHM)
