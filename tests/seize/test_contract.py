"""One contract, three fronts: Django's view, the gate as ASGI, the gate inside the HTTP protocol.

Every case is sent, byte for byte the same, to each of them on the same state; the answers must be equal
apart from times, jitter and request ids.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import jwt
import pytest
from django.conf import settings as django_settings

from seize import batching, store
from seize.challenge import challenge_make
from seize.desk import Access
from seize.limits import press_pace
from seize.tokens import access_token_issue
from tests.seize.challenges import solve
from tests.seize.servers import Reply, ask, raw_request
from tests.seize.stage import ACTIVITY, declare_loaded, load

SEIZE = "/market/consumer/coupon/seize"
BODY = b'{"id": "11", "seq": 1}'
CHUNKED = b"16\r\n" + BODY + b"\r\n0\r\n\r\n"


def token(user_id: int = 7, **changes: object) -> str:
    now_s = int(time.time())
    claims = {"token_type": "access", "user_id": str(user_id), "iat": now_s, "exp": now_s + 86_400, **changes}
    return jwt.encode(claims, django_settings.JWT_VERIFYING_KEY, algorithm="HS256")


def press(body: bytes = BODY, *, method: str = "POST", path: str = SEIZE, version: str = "1.1", **headers: str | None):
    """A press of the button by shopper 7; a header of None is left out."""
    wanted = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Authorization": f"Bearer {access_token_issue(user_id=7, lifetime_s=86_400)}",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    pairs = tuple((name, value) for name, value in wanted.items() if value is not None)
    return raw_request(method, path, body=body, version=version, headers=pairs)


def get(path: str, **headers: str | None) -> bytes:
    wanted = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return raw_request("GET", path, headers=tuple((n, v) for n, v in wanted.items() if v is not None))


@dataclass(frozen=True)
class Case:
    """A request, what is there before it, and whether the shortcuts are to take it."""

    name: str
    request: Callable[[], bytes]
    taken: bool
    prepare: Callable[[], object] = load
    method: str = "POST"


def soon_ms(seconds: int) -> int:
    return int(time.time() * 1000) + seconds * 1000


def won_before() -> None:
    load(per_user=2)
    store.seize(activity_id=ACTIVITY, shoppers=[(7, 1)])


def settled() -> None:
    won_before()
    store.client().delete("QUEUE:COUPON:SEIZE:SYNC:{1}")


CHALLENGED = Access(challenge="always", effort=20)


def solved(*, user_id: int) -> bytes:
    """A press with a challenge solved by this shopper."""
    now_ms = int(time.time() * 1000)
    made = challenge_make(activity_id=ACTIVITY, user_id=user_id, effort=20, now_ms=now_ms)
    return json.dumps({"id": "11", "seq": 1, "altcha": solve(made)}).encode()


def used_up(prepare: Callable[[], object]) -> None:
    """Shopper 7 has pressed as often as one may."""
    prepare()
    while press_pace(user_id=7, address="") is None:
        pass


OUTCOMES = (
    Case("won", press, taken=True),
    Case("won without seq", lambda: press(b'{"id":11}'), taken=True),
    Case("won again", press, taken=True, prepare=won_before),
    Case("won again and settled", press, taken=True, prepare=settled),
    Case("seq too high", lambda: press(b'{"id":"11","seq":3}'), taken=True, prepare=won_before),
    Case("sold out", press, taken=True, prepare=lambda: load(total=0)),
    Case("not started", press, taken=True, prepare=lambda: load(starts_ms=soon_ms(3600))),
    Case("paused", press, taken=True, prepare=lambda: load(state="paused")),
    Case("voided", press, taken=True, prepare=lambda: load(state="voided")),
    Case("ended", press, taken=True, prepare=lambda: load(ends_ms=soon_ms(-1))),
    Case("unknown", press, taken=True, prepare=declare_loaded),
    Case("not ready", press, taken=True, prepare=lambda: None),
    Case("not eligible", press, taken=True, prepare=lambda: load(access=Access(percent=0))),
    Case("challenge required", press, taken=True, prepare=lambda: load(access=CHALLENGED)),
    Case("challenge solved", lambda: press(solved(user_id=7)), taken=True, prepare=lambda: load(access=CHALLENGED)),
    Case("challenge of another", lambda: press(solved(user_id=8)), taken=True, prepare=lambda: load(access=CHALLENGED)),
    Case("no challenge wanted", lambda: press(solved(user_id=8)), taken=True),
    Case(
        "too fast for the activity",
        press,
        taken=True,
        prepare=lambda: (load(access=Access(rate=1)), store.seize(activity_id=ACTIVITY, shoppers=[(8, 1)])),
    ),
    Case("too fast for this process", lambda: press(b'{"id":"11"}'), taken=True, prepare=lambda: used_up(load)),
    Case("too fast, and won before", press, taken=True, prepare=lambda: used_up(won_before)),
    Case("too fast, and not won", press, taken=True, prepare=lambda: used_up(load)),
    Case(
        "too fast, and won before, by a way that is Django's",
        lambda: press(Cookie="django_language=zh-hans"),
        taken=False,
        prepare=lambda: used_up(won_before),
    ),
)
TOKENS = tuple(
    Case(name, lambda value=value: press(Authorization=value() if callable(value) else value), taken=True)
    for name, value in {
        "no token": None,
        "empty token": "Bearer ",
        "another scheme": "Basic YTpi",
        "lower-case scheme": lambda: f"bearer {token()}",
        "two blanks": lambda: f"Bearer  {token()}",
        "no JWT": "Bearer x",
        "signature off": lambda: f"Bearer {token()}x",
        "refresh token": lambda: f"Bearer {token(token_type='refresh')}",
        "expired": lambda: f"Bearer {token(exp=int(time.time()) - 60)}",
        "expired within the leeway": lambda: f"Bearer {token(exp=int(time.time()) - 1)}",
        "not yet valid": lambda: f"Bearer {token(nbf=int(time.time()) + 3600)}",
        "issued in the future": lambda: f"Bearer {token(iat=int(time.time()) + 3600)}",
        "user 007": lambda: f"Bearer {token(user_id='007')}",
        "user 2^63-1": lambda: f"Bearer {token(user_id=2**63 - 1)}",
        "user 2^63": lambda: f"Bearer {token(user_id=2**63)}",
        "user 7.0": lambda: f"Bearer {token(user_id=7.0)}",
    }.items()
)
BODIES = tuple(
    Case(f"body {body[:40]!r}", lambda body=body: press(body), taken=taken)
    for body, taken in (
        (b"", True),
        (b"nonsense", True),
        (b"[]", True),
        (b"null", True),
        (b'{"id": "11", "seq": 1, "user_id": 8}', True),
        (b'{"id": "11", "se\xe2\x80\xa8q": 1}', True),
        (b'{"id": "011"}', True),
        (b'{"id": "\xef\xbc\x91\xef\xbc\x91"}', True),
        (b'{"id": 11.0}', True),
        (b'{"id": true}', True),
        (b'{"id": 9223372036854775807}', True),
        (b'{"id": 9223372036854775808}', True),
        (b'{"id": "11", "seq": 0}', True),
        (b'{"id": "11", "seq": "1"}', True),
        (b'{"id": "11", "seq": 1.0}', True),
        (b'{"id": "11", "id": "12"}', True),
        (b"\xff\xfe", True),
        (b'{"id": "11"}' + b" " * 1012, True),  # 1024 bytes
        (b'{"id": "11"}' + b" " * 1013, False),
        (b'{"id": "11"}' + b" " * 100_000, False),
    )
)
HEADERS = tuple(
    Case(name, lambda headers=headers: press(**headers), taken=taken)
    for name, headers, taken in (
        ("Chinese", {"Accept_Language": "zh-CN,zh;q=0.9"}, True),
        ("a language nobody has", {"Accept_Language": "tlh"}, True),
        ("a broken language", {"Accept_Language": ";;;=,"}, True),
        ("language by cookie", {"Cookie": "django_language=zh-hans"}, False),
        ("another cookie", {"Cookie": "a=b"}, True),
        ("charset", {"Content_Type": "application/json; charset=utf-8"}, True),
        ("upper-case type", {"Content_Type": "Application/JSON"}, True),
        ("no type", {"Content_Type": None}, False),
        ("a form", {"Content_Type": "application/x-www-form-urlencoded"}, False),
        ("JSON of another kind", {"Content_Type": "application/jsonx"}, False),
        ("a browser's fetch", {"Accept": "*/*"}, True),
        ("axios", {"Accept": "application/json, text/plain, */*"}, True),
        ("HTML only", {"Accept": "text/html"}, False),
        ("HTML or anything", {"Accept": "text/html,*/*;q=0.8"}, False),
        ("indented", {"Accept": "application/json; indent=4"}, False),
        ("a good request id", {"X_Request_ID": "abcd-1234.EF"}, True),
        ("a strange request id", {"X_Request_ID": "<script>alert(1)</script>"}, True),
        ("a short request id", {"X_Request_ID": "a"}, True),
        ("a host that is not ours", {"Host": "evil.example"}, False),
        ("a host with a port", {"Host": "localhost:8000"}, True),
        ("a broken host", {"Host": "localhost:80:80"}, False),
        ("no host", {"Host": None}, False),
        ("says it wants to go on", {"Expect": "100-continue"}, False),
        ("encoded", {"Content_Encoding": "gzip"}, False),
        ("forwarded as https by nobody we trust", {"X_Forwarded_Proto": "https"}, True),
        ("closing", {"Connection": "close"}, True),
    )
)
REQUESTS = (
    Case("GET", lambda: press(b"", method="GET"), taken=False, method="GET"),
    Case("HEAD", lambda: press(b"", method="HEAD"), taken=False, method="HEAD"),
    Case("OPTIONS", lambda: press(b"", method="OPTIONS"), taken=False, method="OPTIONS"),
    Case("PUT", lambda: press(method="PUT"), taken=False, method="PUT"),
    Case("a query", lambda: press(path=SEIZE + "?id=12"), taken=True),
    Case("a slash more", lambda: press(path=SEIZE + "/"), taken=False),
    Case("an escaped path", lambda: press(path=SEIZE.replace("seize", "s%65ize")), taken=True),
    Case("chunked", lambda: press(CHUNKED, Content_Length=None, Transfer_Encoding="chunked"), taken=False),
    Case("a header twice", lambda: press().replace(b"Host:", b"X-A: 1\r\nX-A: 2\r\nHost:"), taken=False),
    Case("two tokens", lambda: press().replace(b"Host:", b"Authorization: Bearer x\r\nHost:"), taken=False),
)


def comparable(reply: Reply) -> tuple[int, dict[str, str], object]:
    """Without what differs from one answer to the next: times, jitter, ids."""
    headers = {name: value for name, value in reply.headers.items() if name != "date"}
    if re.fullmatch("[0-9a-f]{32}", headers.get("x-request-id", "")):
        headers["x-request-id"] = "an id"
    if "retry-after" in headers:
        waits_long = re.search('"code": ?"(NOT_STARTED|TOO_MANY_REQUESTS)"', reply.body.decode())
        assert 1 <= int(headers["retry-after"]) <= (3602 if waits_long else 15)
        headers["retry-after"] = "some seconds"
    if "ratelimit" in headers:
        headers["ratelimit"] = re.sub(r";t=\d+$", ";t=some", headers["ratelimit"])
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "a time", reply.body.decode())
    text = re.sub(r'"instance":( ?)"[0-9a-f]{32}"', r'"instance":\1"an id"', text)
    return reply.status, headers, text


@pytest.fixture(autouse=True)
def _no_press_comes_back(settings) -> None:
    """Whoever has pressed too often has still done so when a slow machine asks."""
    settings.LIMIT_SHOPPER = "10/3600"


ALL = (*OUTCOMES, *TOKENS, *BODIES, *HEADERS, *REQUESTS)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_every_front_answers_as_the_view_does(fronts, raw, db, case):
    answers, took = {}, {}
    for kind, server in fronts.items():
        raw.flushall()
        case.prepare()
        before = server.front.taken
        answers[kind] = comparable(ask(server.port, case.request(), method=case.method))
        took[kind] = server.front.taken - before
    assert answers["asgi"] == answers["view"]
    assert answers["protocol"] == answers["view"]
    assert took == {"view": 0, "asgi": case.taken, "protocol": case.taken}


def break_both(monkeypatch, fault: Exception) -> None:
    """Let the view's way to Redis and the gate's fail alike."""

    def broken(**_arguments: object) -> None:
        raise fault

    async def broken_too(*_arguments: object) -> None:
        raise fault

    monkeypatch.setattr(store, "seize", broken)
    monkeypatch.setattr(batching.Desk, "__call__", broken_too)


@pytest.mark.parametrize(
    "fault", [store.StoreUnavailable("OOM"), store.StoreBusy("pool"), store.OutcomeUnknown("late")]
)
def test_faults_are_the_same_problems(fronts, monkeypatch, fault):
    break_both(monkeypatch, fault)
    answers = {kind: comparable(ask(server.port, press())) for kind, server in fronts.items()}
    assert answers["view"][0] == 503
    assert answers["asgi"] == answers["protocol"] == answers["view"]


def test_a_fault_that_nobody_expected_is_an_internal_error_that_says_nothing_more(fronts, monkeypatch):
    break_both(monkeypatch, KeyError("surprise"))
    for kind in ("asgi", "protocol"):
        reply = ask(fronts[kind].port, press())
        assert (reply.status, json.loads(reply.body)["code"]) == (500, "INTERNAL_ERROR")
        assert b"surprise" not in reply.body
    view = ask(fronts["view"].port, press())
    assert (view.status, json.loads(view.body)["code"]) == (500, "INTERNAL_ERROR")


def test_in_production_django_redirects_what_is_not_https_and_the_shortcuts_tell_browsers_to_stay_there(
    fronts, settings
):
    settings.SECURE_SSL_REDIRECT, settings.SECURE_HSTS_SECONDS = True, 3600
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    load()
    for server in (fronts["asgi"], fronts["protocol"]):
        before = server.front.taken
        ask(server.port, press())
        assert server.front.taken == before
        secure = ask(server.port, press(X_Forwarded_Proto="https"))
        assert server.front.taken == before + 1
        assert secure.headers["strict-transport-security"] == "max-age=3600"


def test_header_with_an_underscore_passes_for_no_other(fronts):
    """WSGI would read ``X_Request_ID`` as ``X-Request-ID``, and ``X_Forwarded_Proto`` as what a proxy vouches for."""
    load()
    for server in fronts.values():
        request = press(Accept_Language="en").replace(b"Host:", b"X_Request_Id: abcd-1234\r\nHost:")
        assert ask(server.port, request).headers["x-request-id"] != "abcd-1234"


def test_shoppers_of_every_front_take_from_the_same_stock(fronts):
    load(total=2, per_user=1)
    codes = []
    for user_id, server in enumerate(fronts.values(), start=100):
        header = f"Bearer {access_token_issue(user_id=user_id, lifetime_s=86_400)}"
        codes.append(json.loads(ask(server.port, press(Authorization=header)).body)["code"])
    assert codes == ["SEIZED", "SEIZED", "SOLD_OUT"]
