"""The HTTP contract of the seize route, as the reference view serves it."""

import math
import time
from datetime import datetime

import pytest

from seize import store, views
from seize.outcomes import Refusal
from tests.seize.stage import ACTIVITY, declare_loaded, load

URL = "/market/consumer/coupon/seize"


def press(client, body: object = None, **headers: str):
    return client.post(URL, body or {"id": str(ACTIVITY), "seq": 1}, format="json", **headers)


def test_winning_is_201_and_asking_again_with_the_same_seq_200(shopper_api):
    load()
    won, again = press(shopper_api(7)), press(shopper_api(7))
    assert (won.status_code, again.status_code) == (201, 200)
    body = won.json()
    assert list(body) == ["code", "activity_id", "seq", "seized_at", "state", "claim_url", "server_time"]
    assert (body["code"], body["activity_id"], body["seq"], body["state"]) == ("SEIZED", "11", 1, "pending")
    assert body["claim_url"] == "/market/consumer/activity/11/claim"
    assert datetime.fromisoformat(body["seized_at"]).tzinfo is not None
    assert again.json()["seized_at"] == body["seized_at"]


def test_replay_that_left_the_queue_is_settled_without_seized_at(shopper_api, raw):
    load()
    press(shopper_api(7))
    raw.delete("QUEUE:COUPON:SEIZE:SYNC:{1}")
    again = press(shopper_api(7))
    assert again.status_code == 200
    assert again.json()["state"] == "settled"
    assert "seized_at" not in again.json()


@pytest.mark.parametrize(
    ("reason", "status", "retries", "prepare"),
    [
        ("SOLD_OUT", 409, False, lambda client: (load(total=1), press(client(8)))),
        ("NOT_STARTED", 409, True, lambda _: load(starts_ms=int(time.time() * 1000) + 3_600_000)),
        ("PAUSED", 409, True, lambda _: load(state="paused")),
        ("ENDED", 410, False, lambda _: load(ends_ms=int(time.time() * 1000) - 1)),
        ("VOIDED", 410, False, lambda _: load(state="voided")),
        ("UNKNOWN_ACTIVITY", 404, False, lambda _: declare_loaded()),
        ("NOT_READY", 503, True, lambda _: None),
    ],
)
def test_refusals_are_problems_with_a_reason(shopper_api, reason, status, retries, prepare):
    prepare(shopper_api)
    before_ms = int(time.time() * 1000)
    response = press(shopper_api(7))
    body = response.json()
    assert (response.status_code, body["status"], body["code"]) == (status, status, reason)
    assert response["Content-Type"] == "application/problem+json"
    assert body["title"]
    assert body["activity_id"] == "11"
    assert body["instance"] == response["X-Request-ID"]
    assert before_ms / 1000 <= datetime.fromisoformat(body["server_time"]).timestamp() <= time.time()
    assert ("Retry-After" in response) is retries


def test_limit_reached_tells_what_is_held_and_where_to_look(shopper_api):
    load()
    press(shopper_api(7))
    response = press(shopper_api(7), {"id": "11"})
    assert response.status_code == 409
    assert response.json()["code"] == "LIMIT_REACHED"
    assert response.json()["held"] == 1
    assert response.json()["claim_url"] == "/market/consumer/activity/11/claim"


def test_not_started_tells_when_and_spreads_the_crowd_that_waits(shopper_api):
    wanted = load(starts_ms=int(time.time() * 1000) + 3_600_000)
    responses = [press(shopper_api(shopper)) for shopper in range(1, 31)]
    starts_at = datetime.fromisoformat(responses[0].json()["starts_at"])
    assert int(starts_at.timestamp() * 1000) == wanted.starts_ms
    spreads = set()
    for response in responses:
        left = starts_at - datetime.fromisoformat(response.json()["server_time"])
        spreads.add(int(response["Retry-After"]) - math.ceil(left.total_seconds()))
    assert spreads <= {0, 1, 2}
    assert len(spreads) > 1


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (store.StoreUnavailable("OOM"), "NOT_READY"),
        (store.StoreBusy("pool"), "BUSY"),
        (store.OutcomeUnknown("timeout"), "OUTCOME_UNKNOWN"),
    ],
)
def test_faults_of_redis_are_typed_503(shopper_api, monkeypatch, fault, code):
    def broken(**_request: object) -> None:
        raise fault

    monkeypatch.setattr(views, "coupons_seize", broken)
    response = press(shopper_api(7))
    assert response.status_code == 503
    assert response.json()["code"] == code
    assert int(response["Retry-After"]) in (1, 2, 3)


def test_titles_follow_accept_language_and_caches_are_told(shopper_api):
    load(state="paused")
    english = press(shopper_api(7), HTTP_ACCEPT_LANGUAGE="en")
    chinese = press(shopper_api(7), HTTP_ACCEPT_LANGUAGE="zh-CN,zh;q=0.9")
    assert english.json()["title"] == "This activity is paused. Please try again later."
    assert chinese.json()["title"] == "活动已暂停，请稍后再试。"
    assert (english["Content-Language"], chinese["Content-Language"]) == ("en", "zh-hans")
    assert "Accept-Language" in english["Vary"]
    assert english["X-Content-Type-Options"] == "nosniff"


def test_p17_without_a_good_token_there_is_401_that_says_how(api):
    load()
    for headers in ({}, {"HTTP_AUTHORIZATION": "Bearer x"}, {"HTTP_AUTHORIZATION": "Basic YTpi"}):
        response = press(api, **headers)
        assert response.status_code == 401
        assert response.json()["code"] == "UNAUTHENTICATED"
        assert response["WWW-Authenticate"] == 'Bearer realm="coupons"'


@pytest.mark.parametrize(
    ("method", "body", "content_type", "status", "code"),
    [
        ("post", b'{"id": "abc"}', "application/json", 400, "INVALID_REQUEST"),
        ("post", b'{"id": "11", "user_id": 8}', "application/json", 400, "INVALID_REQUEST"),
        ("post", b"id=11", "application/x-www-form-urlencoded", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("post", b'{"id": "11"}' + b" " * 2000, "application/json", 413, "TOO_LARGE"),
        ("get", b"", "application/json", 405, "METHOD_NOT_ALLOWED"),
        ("put", b'{"id": "11"}', "application/json", 405, "METHOD_NOT_ALLOWED"),
    ],
)
def test_bad_requests_are_problems_and_change_nothing(shopper_api, raw, method, body, content_type, status, code):
    load()
    response = shopper_api(7).generic(method.upper(), URL, body, content_type=content_type)
    assert response.status_code == status
    assert response.json()["code"] == code
    assert response["Content-Type"] == "application/problem+json"
    assert raw.hget("COUPON:RESOURCE:STOCK:{1}", "11") == "5"


def test_bad_body_says_what_to_change(shopper_api):
    response = shopper_api(7).generic("POST", URL, b'{"id": "11", "user_id": 8}', content_type="application/json")
    assert "user_id" in response.json()["detail"]


def test_zero_sql_whatever_the_outcome(shopper_api, django_assert_num_queries, db):
    load(total=1)
    with django_assert_num_queries(0):
        codes = [press(shopper_api(user_id)).status_code for user_id in (7, 7, 8)]
    assert codes == [201, 200, 409]


def test_seize_path_works_while_the_database_is_forbidden(shopper_api):
    """No database mark: any query would raise."""
    load()
    assert press(shopper_api(7)).status_code == 201


def test_harmless_request_id_of_a_proxy_is_kept_and_a_strange_one_replaced(shopper_api):
    assert press(shopper_api(7), HTTP_X_REQUEST_ID="abc-123.DEF")["X-Request-ID"] == "abc-123.DEF"
    replaced = press(shopper_api(7), HTTP_X_REQUEST_ID="<script>")["X-Request-ID"]
    assert len(replaced) == 32


def test_every_refusal_of_the_script_has_a_problem():
    from seize.problems import CATALOGUE

    assert {refusal.name for refusal in Refusal} <= set(CATALOGUE)
