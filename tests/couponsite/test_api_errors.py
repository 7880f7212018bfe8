"""Errors that belong to no single app are problems too, and pages stay pages."""

import pytest
from django.db import OperationalError


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
