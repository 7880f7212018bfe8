"""Who is the shopper? Every way in which a token can be wrong is wrong here."""

import base64
import json
import time
from collections.abc import Callable

import jwt
import pytest
import time_machine
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings as django_settings
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from rest_framework_simplejwt.tokens import AccessToken, RefreshToken

from seize import tokens
from seize.tokens import TokenInvalid, access_token_issue, access_token_verify

ABSENT = object()


def in_s(seconds: int) -> Callable[[], int]:
    """A time claim relative to the moment of the test, not to that of its collection."""
    return lambda: int(time.time()) + seconds


GOOD = {"token_type": "access", "user_id": "7", "exp": in_s(86_400), "iat": in_s(0)}


def claims_of(**changes: object) -> dict[str, object]:
    wanted = {name: value for name, value in {**GOOD, **changes}.items() if value is not ABSENT}
    return {name: value() if callable(value) else value for name, value in wanted.items()}


def signed(*, key: str | None = None, algorithm: str = "HS256", **changes: object) -> str:
    claims = claims_of(**changes)
    return jwt.encode(claims, key or django_settings.JWT_VERIFYING_KEY, algorithm=algorithm)


@pytest.mark.parametrize(
    ("changes", "user_id"),
    [
        ({}, 7),
        ({"user_id": 7}, 7),
        ({"user_id": "9223372036854775807"}, 2**63 - 1),
        ({"iat": ABSENT}, 7),
        ({"exp": in_s(-20)}, 7),  # within the leeway of 30 s
        ({"nbf": in_s(20)}, 7),
        ({"iat": in_s(20)}, 7),
        ({"aud": "anybody"}, 7),  # aud and iss matter where the settings name them
    ],
)
def test_good_tokens(changes, user_id):
    with time_machine.travel(time.time(), tick=False):
        assert access_token_verify(signed(**changes)) == user_id


def unsigned() -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none', 'typ': 'JWT'})}.{part(claims_of())}."


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "another-key-of-32-characters-or-more"},
        {"algorithm": "HS512"},
        {"token_type": "refresh"},
        {"token_type": ABSENT},
        {"token_type": None},
        {"exp": ABSENT},
        {"exp": in_s(-60)},
        {"exp": "never"},
        {"nbf": in_s(60)},
        {"iat": in_s(60)},
        {"user_id": ABSENT},
        {"user_id": None},
        {"user_id": True},
        {"user_id": 7.0},
        {"user_id": "007"},
        {"user_id": " 7"},
        {"user_id": "７"},
        {"user_id": "-7"},
        {"user_id": 0},
        {"user_id": 10**30},
        {"user_id": "1" + "0" * 30},
        {"user_id": 2**63},
        {"user_id": ["7"]},
        {"user_id": {"id": 7}},
    ],
    ids="-".join,
)
def test_p17_bad_tokens_are_refused(changes):
    with time_machine.travel(time.time(), tick=False), pytest.raises(TokenInvalid):
        access_token_verify(signed(**changes))


@given(
    name=st.sampled_from(["token_type", "user_id", "exp", "iat", "nbf", "jti", "iss", "aud", "sub", "else"]),
    value=st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=True),
        st.text(max_size=5),
        st.sampled_from(["access", "7", "007", "shop"]),
        st.lists(st.integers(), max_size=2),
        st.integers(-100, 100).map(lambda seconds: int(time.time()) + seconds),
    ),
    damage=st.sampled_from([None, "signature", "payload", "header", "padding", "parts"]),
    at=st.integers(0, 200),
)
@example(name="exp", value=None, damage=None, at=0)
@hypothesis_settings(max_examples=400)
def test_short_way_never_says_yes_where_pyjwt_says_no(name, value, damage, at):  # fmt: skip
    """And it does say yes to the plain case, see below."""
    tokens._trusted_headers.clear()
    assert access_token_verify(signed()) == 7  # from here on the header is known
    claims = json.dumps(claims_of(**{name: value})).encode()  # PyJWT itself would not sign all of these
    text = damaged(jwt.PyJWS().encode(claims, django_settings.JWT_VERIFYING_KEY, algorithm="HS256"), damage, at)
    with time_machine.travel(time.time(), tick=False):  # both look at one moment
        said = tokens._plain_verify(text)
        try:
            full = tokens._full_verify(text)
        except TokenInvalid:
            full = 0
    assert said in (0, full)


def damaged(token: str, damage: str | None, at: int) -> str:
    header, payload, signature = token.split(".")
    if damage == "signature":
        at %= len(signature)
        signature = signature[:at] + ("A" if signature[at] != "A" else "B") + signature[at + 1 :]
    elif damage == "payload":
        at %= len(payload)
        payload = payload[:at] + "_" + payload[at + 1 :]
    elif damage == "header":
        header = base64.urlsafe_b64encode(b'{"typ":"JWT","alg":"none"}').decode().rstrip("=")
    elif damage == "padding":
        signature += "="
    elif damage == "parts":
        return f"{header}.{payload}.{signature}.{signature}"
    return f"{header}.{payload}.{signature}"


def test_short_way_is_taken_by_plain_tokens_once_their_header_is_known(monkeypatch):
    tokens._trusted_headers.clear()
    assert tokens._plain_verify(signed()) == 0
    access_token_verify(signed())
    monkeypatch.setattr(tokens, "_full_verify", lambda _token: pytest.fail("the long way"))
    assert access_token_verify(signed(user_id="12")) == 12
    login = AccessToken()
    login["user_id"] = "7"
    assert access_token_verify(str(login)) == 7


def test_header_that_was_good_with_one_key_is_not_known_with_another(settings):
    tokens._trusted_headers.clear()
    access_token_verify(signed())
    old = signed()
    settings.JWT_VERIFYING_KEY = "another-key-of-32-characters-or-more"
    assert tokens._plain_verify(old) == 0
    with pytest.raises(TokenInvalid):
        access_token_verify(old)


def test_p17_what_is_no_token_at_all_is_refused():
    for text in ("", "x", "a.b.c", unsigned(), signed() + "x", signed()[:-3], f" {signed()}"):
        with pytest.raises(TokenInvalid):
            access_token_verify(text)


def test_issuer_and_audience_are_required_where_the_settings_name_them(settings):
    settings.JWT_ISSUER, settings.JWT_AUDIENCE = "shop", "coupons"
    assert access_token_verify(access_token_issue(user_id=7, lifetime_s=86_400)) == 7
    for changes in ({}, {"iss": "shop"}, {"aud": "coupons"}, {"iss": "other", "aud": "coupons"}):
        with pytest.raises(TokenInvalid):
            access_token_verify(signed(**changes))


def test_rs256_by_setting_and_a_token_signed_with_the_public_key_as_secret_is_refused(settings):
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    settings.JWT_ALGORITHM, settings.JWT_SIGNING_KEY, settings.JWT_VERIFYING_KEY = "RS256", pem, public.decode()
    assert access_token_verify(access_token_issue(user_id=7, lifetime_s=86_400)) == 7
    with pytest.raises(TokenInvalid):
        access_token_verify(signed(key="another-key-of-32-characters-or-more"))


def test_tokens_of_the_log_in_endpoint_pass_and_its_refresh_tokens_do_not():
    access, refresh = AccessToken(), RefreshToken()
    access["user_id"] = refresh["user_id"] = "7"
    assert access_token_verify(str(access)) == 7
    with pytest.raises(TokenInvalid):
        access_token_verify(str(refresh))
