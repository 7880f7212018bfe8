"""Coming in and going out: who gets a cookie, what it opens, and what another site can do with it: nothing."""

import re
import time
from types import SimpleNamespace

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.test import Client

from centre.sessions import SESSION, TOKEN_LIFETIME_S
from seize import limits
from seize.tokens import access_token_verify, token_issue
from tests.factories import offer

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = " a long word of hers "


@pytest.fixture
def ann():
    return get_user_model().objects.create_user("ann", password=PASSWORD)


def shopper_of(client: Client) -> int | None:
    response = client.post("/session/token")
    return access_token_verify(response.json()["token"]) if response.status_code == 200 else None


def test_password_opens_the_pages_and_log_out_closes_them(client, ann):
    offer()
    response = client.post("/login", {"username": "ann", "password": PASSWORD, "next": "/coupons"})
    assert (response.status_code, response["Location"]) == (302, "/coupons")
    assert shopper_of(client) == ann.pk
    assert f"You are shopper {ann.pk}." in client.get("/account").content.decode()
    assert client.post("/logout")["Location"] == "/"
    assert shopper_of(client) is None
    assert client.get("/account")["Location"] == "/login"


@pytest.mark.parametrize(
    "given",
    [
        {"username": "ann", "password": PASSWORD.strip()},
        {"username": "bob", "password": PASSWORD},
        {"username": "ann"},
        {},
    ],
)
def test_wrong_password_says_so_and_gives_no_cookie(client, ann, given):
    response = client.post("/login", given)
    assert response.status_code == 422
    assert 'class="wrong"' in response.content.decode()
    assert "shopper" not in response.cookies


def test_what_is_wrong_with_a_field_is_read_with_it_and_browsers_know_what_to_fill_in(client):
    page = client.post("/login", {"username": "", "password": ""}).content.decode()
    for field, filled in (("username", "username"), ("password", "current-password")):
        [described] = re.findall(rf'<input[^>]*name="{field}"[^>]*aria-describedby="([^"]+)"', page)
        assert re.search(rf'<span class="wrong" id="{described}">[^<]+</span>', page)
        assert re.search(rf'<input[^>]*name="{field}"[^>]*autocomplete="{filled}"', page)
    page = client.post("/login", {"shopper": "0"}).content.decode()
    [described] = re.findall(r'<input[^>]*name="shopper"[^>]*aria-describedby="([^"]+)"', page)
    assert f'id="{described}" role="alert"' in page


def test_link_to_the_log_out_leads_to_the_form_and_logs_nobody_out(client):
    """The page that refuses a form has a link to itself in the other language."""
    client.post("/login", {"shopper": "7"})
    assert client.get("/language/zh-hans", {"next": "/logout"})["Location"] == "/logout"
    response = client.get("/logout")
    assert (response.status_code, response["Location"]) == (302, "/account")
    assert shopper_of(client) == 7


def test_ledger_that_is_away_is_told_and_gives_no_cookie(client, monkeypatch):
    def away(*_args, **_given: str) -> None:
        raise OperationalError(2006, "server has gone away")

    monkeypatch.setattr("centre.entry.authenticate", away)
    response = client.post("/login", {"username": "ann", "password": PASSWORD})
    assert (response.status_code, "shopper" in response.cookies) == (503, False)
    assert "Please load this page again shortly" in response.content.decode()


def test_user_who_was_switched_off_gets_no_cookie(client, ann):
    ann.is_active = False
    ann.save()
    assert client.post("/login", {"username": "ann", "password": PASSWORD}).status_code == 422


@pytest.mark.parametrize("shopper", ["1001", "9223372036854775807"])
def test_development_lets_anybody_in_as_any_shopper(client, shopper):
    client.post("/login", {"shopper": shopper})
    assert shopper_of(client) == int(shopper)


@pytest.mark.parametrize("shopper", ["0", "-1", "x", "9223372036854775808", ""])
def test_development_lets_nobody_in_who_cannot_be(client, shopper):
    response = client.post("/login", {"shopper": shopper})
    assert (response.status_code, "shopper" in response.cookies) == (422, False)


def test_production_knows_no_such_door(client, settings):
    settings.DEVELOPMENT = False
    assert client.post("/login", {"shopper": "1001"}).status_code == 404
    assert "as any shopper" not in client.get("/login").content.decode()


@pytest.mark.parametrize(("is_secure", "name"), [(False, "shopper"), (True, "__Host-shopper")])
def test_no_script_reads_the_cookie_and_no_other_site_sends_it(client, settings, is_secure, name):
    settings.SESSION_COOKIE_SECURE = is_secure
    cookie = client.post("/login", {"shopper": "7"}).cookies[name]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["domain"]) == (True, "Lax", "/", "")
    assert bool(cookie["secure"]) is is_secure
    assert cookie["max-age"] == settings.SHOPPER_SESSION_S


@pytest.mark.parametrize(("path", "body"), [("/login", {"shopper": "7"}), ("/logout", {})])
def test_form_of_another_site_changes_nothing(path, body):
    """Log-in as well: a shopper must not win for somebody else without knowing."""
    client = Client(enforce_csrf_checks=True)
    client.cookies["shopper"] = token_issue(kind=SESSION, user_id=1, lifetime_s=86_400)
    response = client.post(path, body)
    assert response.status_code == 403
    assert "Nothing was changed" in response.content.decode()
    assert "shopper" not in response.cookies
    assert shopper_of(client) == 1


def test_form_of_the_page_itself_is_taken():
    client = Client(enforce_csrf_checks=True)
    client.get("/login")
    token = client.cookies["csrftoken"].value
    assert client.post("/login", {"shopper": "7", "csrfmiddlewaretoken": token}).status_code == 302


@pytest.mark.parametrize("origin", ["cross-site", "same-site", "none"])
def test_token_is_for_the_page_of_this_site_alone(client, origin):
    client.post("/login", {"shopper": "7"})
    response = client.post("/session/token", HTTP_SEC_FETCH_SITE=origin)
    assert (response.status_code, response.json()["code"]) == (403, "FORBIDDEN")
    assert client.post("/session/token", HTTP_SEC_FETCH_SITE="same-origin").status_code == 200
    assert client.get("/session/token").status_code == 405


def test_token_is_short_lived_kept_nowhere_and_costs_no_query(client, django_assert_num_queries):
    client.post("/login", {"shopper": "7"})
    with django_assert_num_queries(0):
        response = client.post("/session/token")
    assert response.json()["expires_in"] == TOKEN_LIFETIME_S
    assert response["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in response


def test_cookie_opens_nothing_of_the_api(client):
    activity = offer()
    client.post("/login", {"shopper": "7"})
    assert client.get("/market/consumer/coupon/my").status_code == 401
    body = {"id": str(activity.pk), "seq": 1}
    assert client.post("/market/consumer/coupon/seize", body, content_type="application/json").status_code == 401


@pytest.mark.parametrize("lifetime_s", [-3600, 0])
def test_cookie_that_is_over_is_none(client, lifetime_s, settings):
    settings.JWT_LEEWAY_S = -1
    client.cookies["shopper"] = token_issue(kind=SESSION, user_id=7, lifetime_s=lifetime_s)
    assert shopper_of(client) is None


def test_cookie_of_another_key_is_none(client, settings):
    client.cookies["shopper"] = token_issue(kind=SESSION, user_id=7, lifetime_s=86_400)
    settings.JWT_VERIFYING_KEY = settings.JWT_SIGNING_KEY = "another secret of more than thirty-two characters"
    assert shopper_of(client) is None


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/login", {"username": "ann", "password": PASSWORD}),
        ("/market/auth/token", {"username": "ann", "password": PASSWORD}),
        ("/admin/login/", {"username": "ann", "password": PASSWORD}),
    ],
)
def test_client_that_tries_password_after_password_has_to_wait_and_no_other_has(
    client, ann, settings, monkeypatch, path, form
):
    stopped_ns = time.monotonic_ns()  # by a clock that goes on a slow machine has waited already
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic_ns=lambda: stopped_ns))
    ann.is_staff = True
    ann.save()
    settings.LIMIT_LOG_IN, settings.BEHIND_PROXY = "4/60", True

    def enter(address: str, **changes: str):
        given = {**form, **changes}
        kind = {"content_type": "application/json"} if path.startswith("/market") else {}
        return client.post(path, given, HTTP_X_FORWARDED_FOR=address, HTTP_ACCEPT_LANGUAGE="en", **kind)

    for _try in range(2):
        assert "Too many" not in enter("198.51.100.7", password="wrong").content.decode()
    refused = enter("198.51.100.7")  # the right one, too late
    assert "Too many" in refused.content.decode()
    if path != "/admin/login/":
        assert refused.status_code == 429
        assert refused["RateLimit-Policy"] == '"log-in";q=4;w=60'
        assert refused["RateLimit"] == '"log-in";r=0;t=20'
        assert int(refused["Retry-After"]) >= 20
    assert enter("198.51.100.8").status_code in (200, 302)
    assert "Too many" not in enter("198.51.100.8").content.decode()
