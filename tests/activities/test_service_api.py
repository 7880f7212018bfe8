"""The routes of services: who may call, what is refused, the same answer again, and how few queries it takes."""

import threading
from datetime import timedelta
from decimal import Decimal

import orjson
import pytest
import redis
from django.core.cache import cache, caches
from django.db import OperationalError, connection
from django.utils import timezone
from rest_framework.test import APIClient
from services import PATIENCE_S

from activities import checkout, idempotency, services
from activities.admission import unix_ms
from activities.api_keys import api_key_make, api_key_revoke
from activities.audit import Actor
from activities.contention import ContentionLost
from activities.models import ApiKey, Coupon, Redemption
from seize.requests import SeizeRequest
from seize.responses import rfc3339
from seize.services import coupon_seize
from tests.factories import DraftFactory, issued, offer

pytestmark = pytest.mark.django_db(transaction=True)
AVAILABLE, QUOTE = "/market/inner/coupon/available", "/market/inner/coupon/quote"
REDEEM, ROLL_BACK = "/market/inner/coupon/redeem", "/market/inner/coupon/roll-back"
IDEM = {"HTTP_IDEMPOTENCY_KEY": "8e03978e-40d5-43e8-bc93-6894a57f9324"}


def client_of(*scopes: str, name: str = "checkout") -> APIClient:
    _key, text = api_key_make(name=name, scopes=scopes, by=Actor("test"), now=timezone.now())
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Api-Key {text}")
    return client


@pytest.fixture
def service() -> APIClient:
    return client_of("read", "redeem")


@pytest.fixture
def coupon() -> Coupon:
    return issued(DraftFactory(status="ACTIVE", name="满100减20"))


def order(coupon: Coupon, order_id: str = "A-1", **changes: object) -> dict[str, object]:
    return {
        "coupon_id": str(coupon.pk), "user_id": "7", "order_id": order_id, "order_amount": "199.00", **changes
    }  # fmt: skip


def post(client: APIClient, url: str, body: object, **headers: str):
    return client.post(url, body, format="json", **headers)


class TestAnswers:
    def test_redeem_says_what_is_taken_off_and_the_same_order_hears_the_same(self, service, coupon):
        first = post(service, REDEEM, order(coupon))
        again = post(service, REDEEM, order(coupon))
        assert (first.status_code, again.status_code) == (201, 200)
        body = first.json()
        assert body == {
            "code": "REDEEMED", "coupon_id": str(coupon.pk), "user_id": "7", "order_id": "A-1",
            "order_amount": "199.00", "discount": "20.00", "payable": "179.00",
            "redeemed_at": rfc3339(unix_ms(Redemption.objects.get().created_at)),
        }  # fmt: skip
        assert again.json() == first.json()
        assert Redemption.objects.get().made_by == "Api-Key checkout"

    def test_roll_back_says_what_the_coupon_is_now(self, service, coupon):
        post(service, REDEEM, order(coupon))
        body = {"coupon_id": str(coupon.pk), "order_id": "A-1", "reason": "payment timed out"}
        first, again = post(service, ROLL_BACK, body), post(service, ROLL_BACK, {**body, "reason": "refund"})
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()
        said = first.json()
        assert (said["code"], said["status"], said["reason"], said["discount"]) == (
            "ROLLED_BACK", "unused", "payment timed out", "20.00",
        )  # fmt: skip
        refused = post(service, REDEEM, order(coupon))
        assert (refused.status_code, refused.json()["code"]) == (409, "ORDER_ROLLED_BACK")
        assert post(service, REDEEM, order(coupon, "A-2")).status_code == 201

    def test_quote_is_what_redeem_will_say_and_changes_nothing(self, service, coupon):
        before = Coupon.objects.values().get()
        asked = {"coupon_id": str(coupon.pk), "user_id": 7, "order_amount": "100"}
        quoted = post(service, QUOTE, asked)
        assert (quoted.status_code, quoted.json()) == (200, {
            "code": "USABLE", "coupon_id": str(coupon.pk), "order_amount": "100.00", "discount": "20.00",
            "payable": "80.00",
        })  # fmt: skip
        assert Coupon.objects.values().get() == before
        redeemed = post(service, REDEEM, order(coupon, order_amount="100")).json()
        assert (redeemed["discount"], redeemed["payable"]) == ("20.00", "80.00")

    def test_available_has_whole_coupons_with_quotes_and_reasons(self, service, coupon):
        high = issued(DraftFactory(status="ACTIVE", min_spend=Decimal(500)))
        body = service.get(AVAILABLE, {"user_id": "7", "amount": "199"}, HTTP_ACCEPT_LANGUAGE="zh-hans").json()
        assert (body["amount"], body["complete"]) == ("199.00", True)
        [usable], [unusable] = body["usable"], body["unusable"]
        assert (usable["id"], usable["activity_name"], usable["discount"], usable["payable"]) == (
            str(coupon.pk), "满100减20", "20.00", "179.00",
        )  # fmt: skip
        assert (unusable["id"], unusable["reason"]) == (str(high.pk), "BELOW_MIN_SPEND")
        assert unusable["reason_title"] == "订单金额未达到此优惠券的使用门槛。"
        nobody = service.get(AVAILABLE, {"user_id": "8", "amount": "199"}).json()
        assert (nobody["usable"], nobody["unusable"]) == ([], [])

    @pytest.mark.parametrize(
        ("change", "status", "code", "members"),
        [
            ({"coupon_id": "999999999"}, 404, "UNKNOWN_COUPON", {}),
            ({"user_id": "8"}, 404, "UNKNOWN_COUPON", {}),
            ({"order_amount": "99.99"}, 409, "BELOW_MIN_SPEND", {"min_spend": "100.00"}),
        ],
    )
    def test_refusal_is_a_problem_with_what_helps(self, service, coupon, change, status, code, members):
        for url, body in ((REDEEM, order(coupon, **change)), (QUOTE, order(coupon, **change))):
            if url == QUOTE:
                body.pop("order_id")
            response = post(service, url, body)
            assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")
            problem = response.json()
            assert (problem["code"], problem["instance"]) == (code, response["X-Request-ID"])
            assert members.items() <= problem.items()
        assert Redemption.objects.count() == 0


class TestWhoMayCall:
    CALLS = (
        ("get", AVAILABLE, "read"), ("post", QUOTE, "read"), ("post", REDEEM, "redeem"), ("post", ROLL_BACK, "redeem"),
    )  # fmt: skip

    @pytest.mark.parametrize(("method", "url", "scope"), CALLS)
    def test_scope_is_needed_and_nothing_else_opens_the_route(self, api, shopper_api, method, url, scope):
        for client in (api, shopper_api(7)):
            refused = getattr(client, method)(url)
            assert (refused.status_code, refused.json()["code"]) == (401, "UNAUTHENTICATED")
            assert refused["WWW-Authenticate"] == 'Api-Key realm="coupons"'
        other = {"read": "redeem", "redeem": "read"}[scope]
        refused = getattr(client_of(other, name="other"), method)(url)
        assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
        assert f"'{scope}'" in refused.json()["detail"]
        assert getattr(client_of(scope), method)(url).status_code == 400  # in, and told what is missing

    def test_p17_key_of_a_service_opens_no_route_of_shoppers(self, service):
        assert service.get("/market/consumer/coupon/my").status_code == 401
        assert post(service, "/market/consumer/coupon/seize", {"id": "1"}).status_code == 401

    def test_revoked_key_is_refused_at_once(self, service, coupon):
        assert post(service, REDEEM, order(coupon, order_amount="1.00")).status_code == 409
        api_key_revoke(key_id=ApiKey.objects.get().pk, by=Actor("x"), now=timezone.now())
        assert post(service, REDEEM, order(coupon)).status_code == 401
        assert Redemption.objects.count() == 0

    @pytest.mark.parametrize(
        "header",
        ["Api-Key", "Api-Key ", "Api-Key x", "api-key csk_1_2", "Basic YTpi", "Api-Key ü", "csk_x", "Api-Key  "],
    )
    def test_p17_what_is_no_key_is_401(self, api, header):
        response = api.get(AVAILABLE, HTTP_AUTHORIZATION=header)
        assert (response.status_code, response.json()["code"]) == (401, "UNAUTHENTICATED")


class TestStrictness:
    WRONG = (
        ({"order_amount": 199}, "order_amount"), ({"order_amount": 199.0}, "order_amount"),
        ({"order_amount": "199.001"}, "order_amount"), ({"order_amount": "0"}, "order_amount"),
        ({"order_amount": "0.00"}, "order_amount"), ({"order_amount": "-1"}, "order_amount"),
        ({"order_amount": "1e3"}, "order_amount"), ({"order_amount": "１００"}, "order_amount"),
        ({"order_amount": "100000000"}, "order_amount"), ({"order_amount": " 1"}, "order_amount"),
        ({"order_amount": "1\n"}, "order_amount"), ({"order_amount": "01"}, "order_amount"),
        ({"order_amount": "NaN"}, "order_amount"), ({"order_amount": None}, "order_amount"),
        ({"order_amount": ["1"]}, "order_amount"), ({"order_amount": True}, "order_amount"),
        ({"user_id": 0}, "user_id"), ({"user_id": "007"}, "user_id"), ({"user_id": 2**63}, "user_id"),
        ({"user_id": True}, "user_id"), ({"user_id": 7.0}, "user_id"), ({"user_id": None}, "user_id"),
        ({"coupon_id": "x"}, "coupon_id"), ({"coupon_id": {}}, "coupon_id"),
        ({"order_id": ""}, "order_id"), ({"order_id": "a b"}, "order_id"), ({"order_id": "x" * 65}, "order_id"),
        ({"order_id": 5}, "order_id"), ({"order_id": "订单"}, "order_id"), ({"order_id": "a\n"}, "order_id"),
        ({"amount": "1"}, "amount"), ({"discount": "100.00"}, "discount"),
    )  # fmt: skip

    @pytest.mark.parametrize(("change", "field"), WRONG, ids=[repr(change) for change, _field in WRONG])
    def test_field_that_is_wrong_or_unknown_is_named_and_nothing_is_entered(self, service, coupon, change, field):
        response = post(service, REDEEM, order(coupon, **change))
        assert (response.status_code, response.json()["code"]) == (400, "INVALID_REQUEST")
        assert list(response.json()["errors"]) == [field]
        assert (Redemption.objects.count(), Coupon.objects.get().status) == (0, "UNUSED")

    @pytest.mark.parametrize("reason", ["", "  ", 5, None, "x" * 201, ["x"], True, "nul \0", "two\nlines", "\u202etxt"])
    def test_roll_back_needs_a_reason(self, service, coupon, reason):
        post(service, REDEEM, order(coupon))
        response = post(service, ROLL_BACK, {"coupon_id": str(coupon.pk), "order_id": "A-1", "reason": reason})
        assert (response.status_code, list(response.json()["errors"])) == (400, ["reason"])
        assert Coupon.objects.get().status == "REDEEMED"

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ("user_id=7", "amount"), ("amount=1", "user_id"), ("user_id=7&amount=0", "amount"),
            ("user_id=7&amount=1&user_id=8", "user_id"), ("user_id=7&amount=1&status=unused", "status"),
        ],
    )  # fmt: skip
    def test_query_that_is_wrong_unknown_or_twice_is_named(self, service, query, field):
        response = service.get(f"{AVAILABLE}?{query}")
        problem = response.json()
        assert (response.status_code, problem["code"]) == (400, "INVALID_REQUEST")
        assert list(problem.get("errors", ())) == [field] or repr(field) in problem["detail"]

    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            (b"", 400, "INVALID_REQUEST"), (b"{", 400, "INVALID_REQUEST"), (b"[]", 400, "INVALID_REQUEST"),
            (b"NaN", 400, "INVALID_REQUEST"), (b'"x"', 400, "INVALID_REQUEST"), (b"\xff", 400, "INVALID_REQUEST"),
            (b"[" * 4000, 400, "INVALID_REQUEST"), (b'{"a":' * 1500, 400, "INVALID_REQUEST"),
            (b" " * 8193, 413, "TOO_LARGE"),
        ],
        ids=["empty", "brace", "list", "nan", "text", "no UTF-8", "deep list", "deep object", "9 kB"],
    )  # fmt: skip
    def test_body_that_is_no_small_object_is_refused(self, service, body, status, code):
        response = service.generic("POST", REDEEM, body, content_type="application/json")
        assert (response.status_code, response.json()["code"]) == (status, code)

    def test_other_media_type_is_415(self, service):
        response = service.generic("POST", REDEEM, "a=b", content_type="application/x-www-form-urlencoded")
        assert (response.status_code, response.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")


class TestIdempotencyKey:
    def test_same_key_and_body_gets_the_first_answer_word_for_word(self, service, coupon):
        first = post(service, REDEEM, order(coupon), **IDEM)
        respelt = orjson.dumps({**order(coupon), "user_id": 7})
        again = service.generic("POST", REDEEM, respelt, content_type="application/json", **IDEM)
        assert (again.status_code, again.json()) == (201, first.json())
        assert (first.get("Idempotency-Replayed"), again["Idempotency-Replayed"]) == (None, "true")
        assert Redemption.objects.count() == 1

    def test_refusal_is_replayed_too_with_the_id_of_the_request_that_asks(self, service, coupon):
        low = order(coupon, order_amount="1.00")
        first, again = post(service, REDEEM, low, **IDEM), post(service, REDEEM, low, **IDEM)
        assert again.status_code == first.status_code == 409
        assert again.json()["instance"] == again["X-Request-ID"] != first["X-Request-ID"]
        assert again["Content-Type"] == "application/problem+json"

    def test_same_key_with_another_body_or_route_is_422(self, service, coupon):
        post(service, REDEEM, order(coupon), **IDEM)
        body = {"coupon_id": str(coupon.pk), "order_id": "A-1", "reason": "x"}
        for response in (
            post(service, REDEEM, order(coupon, order_amount="200.00"), **IDEM),
            post(service, ROLL_BACK, body, **IDEM),
        ):
            assert (response.status_code, response.json()["code"]) == (422, "IDEMPOTENCY_MISMATCH")
        assert Redemption.objects.count() == 1

    def test_replay_is_as_the_first_answer_would_be_for_whoever_asks_now(self, service, coupon):
        low = order(coupon, order_amount="1.00")
        post(service, REDEEM, low, **IDEM)
        again = post(service, REDEEM, low, **IDEM, HTTP_ACCEPT_LANGUAGE="zh-hans")
        assert (again["Content-Language"], again.json()["title"]) == ("zh-hans", "订单金额未达到此优惠券的使用门槛。")
        assert (again["Cache-Control"], again["Idempotency-Replayed"]) == ("no-store", "true")

    def test_not_redeemed_only_holds_so_far_and_is_not_kept(self, service, coupon):
        """The roll-back came before its redeem; the same key gives the coupon back once that has arrived."""
        back = {"coupon_id": str(coupon.pk), "order_id": "A-1", "reason": "cancelled"}
        early = post(service, ROLL_BACK, back, **IDEM)
        assert (early.status_code, early.json()["code"]) == (409, "NOT_REDEEMED")
        assert post(service, REDEEM, order(coupon)).status_code == 201
        late, again = post(service, ROLL_BACK, back, **IDEM), post(service, ROLL_BACK, back, **IDEM)
        assert (late.status_code, late.json()["status"], again.json()) == (201, "unused", late.json())

    def test_marker_whose_answer_was_lost_does_not_refuse_the_request_that_set_it(self, service, coupon, monkeypatch):
        """The cache took the marker and its answer timed out: that is our own marker."""
        kind = type(caches["default"])
        add = kind.add
        monkeypatch.setattr(kind, "add", lambda self, *given: bool(add(self, *given)) and None)
        assert post(service, REDEEM, order(coupon), **IDEM).status_code == 201

    def test_request_that_outlives_its_marker_does_not_overwrite_the_answer_of_another(
        self, service, coupon, monkeypatch
    ):
        redeem = checkout.coupon_redeem

        def slow(**arguments):
            cache.clear()  # the marker's time is over
            monkeypatch.setattr(checkout, "coupon_redeem", redeem)
            other = post(service, REDEEM, order(coupon), **IDEM)
            assert other.status_code == 201
            return redeem(**arguments)

        monkeypatch.setattr(checkout, "coupon_redeem", slow)
        assert post(service, REDEEM, order(coupon), **IDEM).status_code == 200
        assert post(service, REDEEM, order(coupon), **IDEM).status_code == 201

    def test_key_of_another_service_is_another_key(self, service, coupon):
        post(service, REDEEM, order(coupon), **IDEM)
        other = post(client_of("redeem", name="other"), REDEEM, order(coupon, "B-1"), **IDEM)
        assert (other.status_code, other.json()["code"]) == (409, "COUPON_REDEEMED")

    def test_key_in_flight_is_409_until_the_first_request_is_answered(self, service, coupon, monkeypatch):
        entered, go_on = threading.Event(), threading.Event()
        redeem = checkout.coupon_redeem

        def slow(**arguments):
            entered.set()
            assert go_on.wait(PATIENCE_S)
            return redeem(**arguments)

        monkeypatch.setattr(checkout, "coupon_redeem", slow)
        monkeypatch.setattr(idempotency, "UNDER_WAY_S", PATIENCE_S)
        answers = []

        def first() -> None:
            answers.append(post(service, REDEEM, order(coupon), **IDEM))
            connection.close()

        thread = threading.Thread(target=first)
        thread.start()
        assert entered.wait(PATIENCE_S)
        meanwhile = post(service, REDEEM, order(coupon), **IDEM)
        go_on.set()
        thread.join(PATIENCE_S)
        assert (meanwhile.status_code, meanwhile.json()["code"]) == (409, "IDEMPOTENCY_IN_FLIGHT")
        assert int(meanwhile["Retry-After"]) >= 1
        assert answers[0].status_code == 201
        assert post(service, REDEEM, order(coupon), **IDEM).json() == answers[0].json()

    @pytest.mark.parametrize(
        ("fault", "code"),
        [(OperationalError(2006, "gone away"), "LEDGER_UNAVAILABLE"), (ContentionLost("x"), "BUSY")],
    )
    def test_fault_is_not_kept_and_the_same_key_may_try_again(self, service, coupon, monkeypatch, fault, code):
        def broken(**_arguments):
            raise fault

        with monkeypatch.context() as patch:
            patch.setattr(checkout, "coupon_redeem", broken)
            response = post(service, REDEEM, order(coupon), **IDEM)
            assert (response.status_code, response.json()["code"]) == (503, code)
            assert int(response["Retry-After"]) >= 1
        assert post(service, REDEEM, order(coupon), **IDEM).status_code == 201

    def test_lost_keys_lose_nothing(self, service, coupon):
        first = post(service, REDEEM, order(coupon), **IDEM)
        cache.clear()
        again = post(service, REDEEM, order(coupon), **IDEM)
        assert (again.status_code, again.json()) == (200, first.json())
        assert Redemption.objects.count() == 1

    def test_cache_that_is_away_is_an_empty_one(self, service, coupon, settings):
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/2"}}
        first, again = post(service, REDEEM, order(coupon), **IDEM), post(service, REDEEM, order(coupon), **IDEM)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()

    def test_key_is_kept_for_a_day(self, service, coupon, valkey):
        client = redis.Redis(port=valkey.port, db=2)
        before_s = client.time()[0]
        post(service, REDEEM, order(coupon), **IDEM)
        after_s = client.time()[0] + 1
        [name] = [name for name in client.keys("*") if "idempotency:" in str(name)]
        kept_s = idempotency.KEPT_S
        assert kept_s == 86_400
        assert before_s + kept_s <= client.pexpiretime(name) / 1000 <= after_s + kept_s
        client.close()

    @pytest.mark.parametrize("key", ["", "x" * 256, "a b", "é"])
    def test_key_that_is_none_is_refused(self, service, coupon, key):
        response = post(service, REDEEM, order(coupon), HTTP_IDEMPOTENCY_KEY=key)
        assert (response.status_code, response.json()["code"]) == (400, "INVALID_REQUEST")
        assert "Idempotency-Key" in response.json()["detail"]
        assert Redemption.objects.count() == 0


class TestCost:
    """Statements that ask the database something; the transaction's own BEGIN and COMMIT are not among them."""

    @staticmethod
    def asked(queries) -> list[str]:
        return [q["sql"] for q in queries if not q["sql"].startswith(("BEGIN", "COMMIT", "SET AUTOCOMMIT"))]

    @pytest.fixture
    def counted(self, django_assert_max_num_queries, monkeypatch):
        # However long a test takes, the use of its key is noted once.
        monkeypatch.setattr("activities.api_keys.USE_RECORDED_EVERY", timedelta(days=1))

        def call(most: int, ask) -> int:
            with django_assert_max_num_queries(99) as captured:
                response = ask()
            assert response.status_code < 300, response.content
            statements = self.asked(captured.captured_queries)
            assert len(statements) <= most, "\n".join(statements)
            return len(statements)

        return call

    def test_each_route_asks_the_ledger_so_often_and_not_more(self, service, coupon, counted):
        for _number in range(3):
            coupon_seize(wanted=SeizeRequest(activity_id=offer().pk, seq=1), user_id=7)  # on its way: one query more
        query = {"user_id": "7", "amount": "199.00"}
        assert counted(5, lambda: service.get(AVAILABLE, query)) == 5  # the first use of the key in a minute is noted
        assert counted(4, lambda: service.get(AVAILABLE, query)) == 4
        quote = {"coupon_id": coupon.pk, "user_id": 7, "order_amount": "199.00"}
        assert counted(2, lambda: post(service, QUOTE, quote)) == 2
        assert counted(4, lambda: post(service, REDEEM, order(coupon), **IDEM)) == 4
        assert counted(1, lambda: post(service, REDEEM, order(coupon), **IDEM)) == 1
        assert counted(3, lambda: post(service, REDEEM, order(coupon))) == 3
        back = {"coupon_id": coupon.pk, "order_id": "A-1", "reason": "refund"}
        assert counted(5, lambda: post(service, ROLL_BACK, back)) == 5
        ApiKey.objects.update(last_used_at=None)  # at most, with the use of the key to be noted
        assert counted(5, lambda: post(service, REDEEM, order(coupon, "A-2"))) == 5

    def test_number_of_queries_does_not_grow_with_coupons(self, service, counted):
        activity = DraftFactory(status="ACTIVE", per_user_limit=100)
        for seq in range(1, 61):
            issued(activity, seq=seq, expires_at=timezone.now() + timedelta(days=seq))
        service.get(AVAILABLE, {"user_id": "7", "amount": "199.00"})
        assert counted(3, lambda: service.get(AVAILABLE, {"user_id": "7", "amount": "199.00"})) == 3


def test_l20_void_reaches_checkout_at_once(service):
    activity = offer()
    coupon = issued(activity)
    services.activity_void(activity_id=activity.pk, reason="x", now=timezone.now())
    response = post(service, REDEEM, order(coupon))
    assert (response.status_code, response.json()["code"]) == (409, "COUPON_VOIDED")
