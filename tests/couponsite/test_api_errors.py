"""Errors that belong to no single app are problems too, and pages stay pages."""

import json

import pytest
from django.db import OperationalError

from seize.problems import title_of
from tests.seize.servers import ask, raw_request


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("get", "/market/nowhere", 404, "NOT_FOUND"),
        ("get", "/market/consumer/coupon/my", 401, "UNAUTHENTICATED"),
        ("delete", "/market/consumer/activity/list", 405, "METHOD_NOT_ALLOWED"),
        ("get", "/market/auth/token", 405, "METHOD_NOT_ALLOWED"),
    ],
)
def test_api_errors_are_problems(api, method, path, status, code):
    response = getattr(api, method)(path)
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    body = response.json()
    assert (body["code"], body["status"], body["instance"]) == (code, status, response["X-Request-ID"])


def test_not_acceptable_is_a_problem(api):
    response = api.get("/market/consumer/activity/list", HTTP_ACCEPT="text/html")
    assert (response.status_code, response.json()["code"]) == (406, "NOT_ACCEPTABLE")


CASES = (
    # (method, path, status, code); the odd, the broken and the far too long
    ("GET", "/market", 404, "NOT_FOUND"),
    ("GET", "/market/", 404, "NOT_FOUND"),
    ("GET", "/market/consumer/activity/list/", 404, "NOT_FOUND"),
    ("GET", "/market//consumer/activity/list", 404, "NOT_FOUND"),
    ("GET", "/market/consumer/../consumer/activity/list", 404, "NOT_FOUND"),
    ("GET", "/market/consumer/activity/%ff%fe", 404, "NOT_FOUND"),
    ("GET", "/market/consumer/activity/%00", 404, "NOT_FOUND"),
    ("GET", "/market/consumer/activity/%0a", 404, "NOT_FOUND"),
    ("GET", "/market/consumer/activity/12%0a", 404, "NOT_FOUND"),
    ("GET", "/market/consumer/activity/%2e%2e/%2e", 404, "NOT_FOUND"),
    ("GET", "/market/consumer/activity/%", 404, "NOT_FOUND"),
    ("GET", "/market/consumer/activity/%zz", 404, "NOT_FOUND"),
    ("GET", "/market/consumer/activity/" + "9" * 5000, 404, "NOT_FOUND"),
    ("GET", "/market/consumer/activity/list?%ff=%fe", 400, "INVALID_REQUEST"),
    ("GET", "/market/consumer/activity/list?tab=%ff", 400, "INVALID_REQUEST"),
    ("GET", "/market/consumer/activity/list?" + "a" * 30_000, 400, "INVALID_REQUEST"),
    ("GET", "/market/consumer/activity/list?" + "a=1&" * 2000, 400, "INVALID_REQUEST"),
    ("TRACE", "/market/consumer/activity/list", 405, "METHOD_NOT_ALLOWED"),
    ("PROPFIND", "/market/consumer/activity/list", 405, "METHOD_NOT_ALLOWED"),
    ("QUERY", "/market/consumer/activity/list", 405, "METHOD_NOT_ALLOWED"),
    ("TRACE", "/market/nowhere", 404, "NOT_FOUND"),
    ("OPTIONS", "/market/nowhere", 404, "NOT_FOUND"),
    ("OPTIONS", "/market/consumer/coupon/my", 401, "UNAUTHENTICATED"),
)


@pytest.mark.parametrize("kind", ["view", "asgi", "protocol"])
@pytest.mark.parametrize(("method", "path", "status", "code"), CASES, ids=lambda value: str(value)[:60])
def test_odd_requests_are_refused_by_problems_whoever_answers(fronts, kind, method, path, status, code):
    for language, title in (("en", title_of(code, "en")), ("zh-CN", title_of(code, "zh-hans"))):
        request = raw_request(method, path, headers=(("Host", "localhost"), ("Accept-Language", language)))
        reply = ask(fronts[kind].port, request, method=method)
        body = json.loads(reply.body)
        assert (reply.status, body["status"], body["code"], body["title"]) == (status, status, code, title)
        assert reply.headers["content-type"] == "application/problem+json"
        assert body["instance"] == reply.headers["x-request-id"]
        assert status != 405 or reply.headers["allow"] == "GET, HEAD, OPTIONS"


@pytest.mark.parametrize("kind", ["view", "asgi", "protocol"])
@pytest.mark.parametrize("host", ["evil.example", "localhost:80:80", "", "localhost,localhost"])
def test_host_that_is_not_ours_is_refused_by_a_problem(fronts, kind, host):
    request = raw_request("GET", "/market/consumer/activity/list", headers=(("Host", host),))
    reply = ask(fronts[kind].port, request, method="GET")
    assert (reply.status, reply.headers["content-type"]) == (400, "application/problem+json")
    assert json.loads(reply.body)["instance"] == reply.headers["x-request-id"]


def test_head_has_the_headers_of_get_and_no_body(fronts):
    for path, status in (("/market/nowhere", 404), ("/market/consumer/coupon/my", 401), ("/market/schema", 200)):
        replies = [
            ask(fronts["protocol"].port, raw_request(verb, path, headers=(("Host", "localhost"),)), method=verb)
            for verb in ("GET", "HEAD")
        ]
        assert [reply.status for reply in replies] == [status, status]
        assert replies[0].headers.keys() == replies[1].headers.keys()
        assert replies[1].body == b""


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /market/consumer/activity/\xff HTTP/1.1",
        b"GET /market/consumer/activity/list?\xff=1 HTTP/1.1",
        b"GET /market/consumer/activity/a b HTTP/1.1",
        b"GET /market/" + b"a" * 100_000 + b" HTTP/1.1",
        b"FROBNICATE /market/consumer/activity/list HTTP/1.1",
        b"get /market/consumer/activity/list HTTP/1.1",
        b"nonsense",
    ],
    ids=lambda line: line[:40].decode("latin-1"),
)
def test_what_is_no_http_is_refused_by_a_problem_and_the_connection_closed(fronts, request_line):
    reply = ask(fronts["protocol"].port, request_line + b"\r\nHost: localhost\r\n\r\n", method="GET")
    body = json.loads(reply.body)
    assert (reply.status, body["code"]) == (400, "INVALID_REQUEST")
    assert (reply.headers["content-type"], reply.headers["connection"]) == ("application/problem+json", "close")
    assert body["instance"] == reply.headers["x-request-id"]


def test_missing_page_outside_the_api_is_html(client):
    response = client.get("/nowhere")
    assert response.status_code == 404
    assert response["Content-Type"].startswith("text/html")


def test_unexpected_error_is_a_problem_without_a_traceback(monkeypatch, client):
    def broken(**_arguments: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("activities.views.list_ready", broken)
    client.raise_request_exception = False
    response = client.get("/market/consumer/activity/list")
    assert response.status_code == 500
    assert response.json()["code"] == "INTERNAL_ERROR"
    assert "secret" not in response.content.decode()


def test_database_that_is_away_is_a_typed_503(monkeypatch, shopper_api, raw):
    def away(**_arguments: object) -> None:
        raise OperationalError(2002, "Can't connect")

    monkeypatch.setattr("activities.views.wallet_page", away)
    response = shopper_api(7).get("/market/consumer/coupon/my")
    assert (response.status_code, response.json()["code"]) == (503, "LEDGER_UNAVAILABLE")
    assert int(response["Retry-After"]) >= 1


@pytest.mark.django_db
class TestLogIn:
    @pytest.fixture
    def user(self, django_user_model):
        return django_user_model.objects.create_user("shopper", password="a-long-password")

    def test_token_of_the_log_in_is_the_shoppers(self, api, user, raw):
        pair = api.post("/market/auth/token", {"username": "shopper", "password": "a-long-password"}, format="json")
        assert pair.status_code == 200
        access, refresh = pair.json()["access"], pair.json()["refresh"]
        from seize.tokens import access_token_verify

        assert access_token_verify(access) == user.pk
        api.credentials(HTTP_AUTHORIZATION=f"Bearer {access}")
        assert api.get("/market/consumer/coupon/my").status_code == 200
        api.credentials(HTTP_AUTHORIZATION=f"Bearer {refresh}")
        assert api.get("/market/consumer/coupon/my").status_code == 401
        api.credentials()
        fresh = api.post("/market/auth/token/refresh", {"refresh": refresh}, format="json")
        assert access_token_verify(fresh.json()["access"]) == user.pk

    def test_wrong_password_and_wrong_refresh_token_are_401_problems(self, api, user):
        for path, body in (
            ("/market/auth/token", {"username": "shopper", "password": "wrong"}),
            ("/market/auth/token/refresh", {"refresh": "x.y.z"}),
        ):
            response = api.post(path, body, format="json")
            assert (response.status_code, response.json()["code"]) == (401, "UNAUTHENTICATED")

    def test_refresh_token_of_a_deleted_user_is_401(self, api, user):
        pair = api.post("/market/auth/token", {"username": "shopper", "password": "a-long-password"}, format="json")
        user.delete()
        response = api.post("/market/auth/token/refresh", {"refresh": pair.json()["refresh"]}, format="json")
        assert (response.status_code, response.json()["code"]) == (401, "UNAUTHENTICATED")

    def test_missing_field_is_named(self, api):
        response = api.post("/market/auth/token", {"username": "shopper"}, format="json")
        assert (response.status_code, response.json()["code"]) == (400, "INVALID_REQUEST")
        assert "password" in response.json()["errors"]

    @pytest.mark.parametrize("path", ["/market/auth/token", "/market/auth/token/refresh"])
    def test_unknown_member_is_refused_and_named(self, api, path):
        body = {"username": "shopper", "password": "x", "refresh": "x.y.z", "is_staff": True}
        response = api.post(path, body, format="json")
        assert (response.status_code, response.json()["code"]) == (400, "INVALID_REQUEST")
        assert response.json()["errors"]["is_staff"] == ["Unknown field."]

    @pytest.mark.parametrize("value", [7, 7.5, True, [], {}])
    def test_what_is_no_text_is_not_taken_for_text(self, api, value):
        response = api.post("/market/auth/token", {"username": value, "password": "x"}, format="json")
        assert (response.status_code, response.json()["errors"]) == (400, {"username": ["Not a valid string."]})

    def test_password_has_the_blanks_that_it_has(self, api, django_user_model):
        django_user_model.objects.create_user("blank", password=" a-long-password ")
        codes = [
            api.post("/market/auth/token", {"username": "blank", "password": password}, format="json").status_code
            for password in (" a-long-password ", "a-long-password")
        ]
        assert codes == [200, 401]

    @pytest.mark.parametrize("path", ["/market/auth/token", "/market/auth/token/refresh"])
    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            (b"[" * 5000, 400, "INVALID_REQUEST"),  # nested too deep for a stack
            (b'{"a":' * 1000, 400, "INVALID_REQUEST"),
            (b"[" * 100_000, 413, "TOO_LARGE"),
            (b"\xff", 400, "INVALID_REQUEST"),
            (b"NaN", 400, "INVALID_REQUEST"),
            (b'{"username": "\\ud800", "password": "x", "refresh": "\\ud800"}', 400, "INVALID_REQUEST"),
            (b'{"username": "\\u0000", "password": "x", "refresh": "\\u0000"}', 400, "INVALID_REQUEST"),
            (b'{"username": 1' + b"0" * 5000 + b"}", 400, "INVALID_REQUEST"),
            (b"null", 400, "INVALID_REQUEST"),
            (b"[]", 400, "INVALID_REQUEST"),
            (b"", 400, "INVALID_REQUEST"),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_body_that_no_client_should_send_is_refused(self, api, path, body, status, code):
        response = api.generic("POST", path, body, content_type="application/json")
        assert (response.status_code, response.json()["code"]) == (status, code)

    def test_refusals_of_log_in_say_how_in_the_words_of_every_other_route(self, api):
        response = api.post("/market/auth/token", {"username": "nobody", "password": "x"}, format="json")
        assert (response.status_code, response["WWW-Authenticate"]) == (401, 'Bearer realm="coupons"')
