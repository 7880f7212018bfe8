"""A crowd in the same instant. First: that the harness can see an oversell at all."""

import time

import pytest
import redis

from activities.models import Activity, Coupon
from seize import desk
from seize.keys import seize_keys
from seize.outcomes import Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from seize.tokens import access_token_issue
from tests.factories import drain, offer
from tests.race.conftest import crowd, harm_seen, outcomes, press_http

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.controls
def test_s13_control_without_lua_read_check_write_oversells(record_property, valkey):
    """The naive way with the same crowd must sell too much, or none of these tests proves anything."""
    pool = redis.BlockingConnectionPool.from_url(valkey.url, decode_responses=True, max_connections=200)

    def press(_number: int) -> bool:
        client = redis.Redis(connection_pool=pool)
        left = int(client.get("naive:stock"))
        if left <= 0:
            return False
        time.sleep(0.001)  # what a request does between reading and writing
        client.set("naive:stock", str(left - 1))
        return True

    def sold_of_fifty() -> int:
        redis.Redis(connection_pool=pool).set("naive:stock", "50")
        return sum(crowd(200, press))

    sold = harm_seen(sold_of_fifty, over=50)
    pool.disconnect()
    record_property("harm", f"without Lua, sold of 50: {sold}")


def test_s02_p01_p02_two_hundred_threads_on_the_script_sell_exactly_the_stock():
    activity = offer(stock_total=50)
    wanted = SeizeRequest(activity_id=activity.pk, seq=1)
    results = crowd(200, lambda number: coupon_seize(wanted=wanted, user_id=number))
    assert sum(isinstance(result, Won) for result in results) == 50
    assert desk.stock_left([activity.pk]) == {activity.pk: 0}


def test_p01_fifty_threads_on_one_coupon_sell_it_once():
    activity = offer(stock_total=1)
    wanted = SeizeRequest(activity_id=activity.pk, seq=1)
    results = crowd(50, lambda number: coupon_seize(wanted=wanted, user_id=number))
    assert sum(isinstance(result, Won) for result in results) == 1


def test_s01_five_hundred_shoppers_and_fifty_coupons_over_real_http(web_server, raw):
    """Two server processes of two workers each; exactly 50 rows, 450 refusals with reasons, Redis = MySQL."""
    activity = offer(stock_total=50)
    ports = [web_server(), web_server()]
    tokens = {number: access_token_issue(user_id=number, lifetime_s=86_400) for number in range(1, 501)}
    body = {"id": str(activity.pk), "seq": 1}

    results = crowd(500, lambda number: press_http(ports[number % 2], tokens[number], body))

    assert outcomes(results) == {(201, "SEIZED"): 50, (409, "SOLD_OUT"): 450}
    winners = {number for number, (status, _body) in enumerate(results, start=1) if status == 201}
    assert all(answer["title"] for status, answer in results if status == 409)
    assert drain(activity).inserted == 50
    rows = set(Coupon.objects.values_list("user_id", "seq"))
    assert rows == {(number, 1) for number in winners}
    keys = seize_keys(activity.pk)
    held = {int(user) for user in raw.hkeys(keys.holders) if user != "_"}
    assert held == winners
    assert (raw.hget(keys.stock, str(activity.pk)), raw.hlen(keys.queue)) == ("0", 0)
    assert Activity.objects.get().issued == 50


def test_p05_one_shopper_pressing_five_hundred_times_at_once_over_http_gets_one(web_server, monkeypatch):
    monkeypatch.setenv("LIMIT_SHOPPER", "")  # all of them come to the script
    activity = offer(stock_total=100)
    port = web_server()
    token = access_token_issue(user_id=7, lifetime_s=86_400)

    without_seq = crowd(250, lambda _n: press_http(port, token, {"id": str(activity.pk)}))
    with_seq = crowd(250, lambda _n: press_http(port, token, {"id": str(activity.pk), "seq": 1}))

    assert outcomes(without_seq) == {(201, "SEIZED"): 1, (409, "LIMIT_REACHED"): 249}
    assert outcomes(with_seq) == {(200, "SEIZED"): 250}
    assert desk.stock_left([activity.pk]) == {activity.pk: 99}
    assert drain(activity).inserted == 1
    assert Coupon.objects.count() == 1


def test_shopper_over_the_processes_limit_is_told_of_the_win_five_hundred_times(web_server, monkeypatch):
    monkeypatch.setenv("LIMIT_SHOPPER", "10/3600")  # five in each process, and the next one comes free in ten minutes
    activity = offer(stock_total=100)
    port = web_server()
    token = access_token_issue(user_id=7, lifetime_s=86_400)
    press = {"id": str(activity.pk), "seq": 1}
    # The win comes first: a press that is over the limit claims nothing, and may overtake those that are not.
    assert outcomes([press_http(port, token, press)]) == {(201, "SEIZED"): 1}
    assert outcomes(crowd(249, lambda _n: press_http(port, token, press))) == {(200, "SEIZED"): 249}
    slowed = outcomes(crowd(250, lambda _n: press_http(port, token, {"id": str(activity.pk)})))
    assert slowed.keys() <= {(409, "LIMIT_REACHED"), (429, "TOO_MANY_REQUESTS")}
    assert slowed[429, "TOO_MANY_REQUESTS"] > 200
    assert desk.stock_left([activity.pk]) == {activity.pk: 99}


def test_limit_three_pressed_by_many_threads_of_one_shopper_gives_seq_one_to_three():
    activity = offer(stock_total=100, per_user_limit=3)
    wanted = SeizeRequest(activity_id=activity.pk, seq=0)
    results = crowd(60, lambda _n: coupon_seize(wanted=wanted, user_id=7))
    assert sorted(result.seq for result in results if isinstance(result, Won)) == [1, 2, 3]
    assert desk.stock_left([activity.pk]) == {activity.pk: 97}


def test_p02_stock_added_amid_the_crowd_is_sold_and_not_one_more():
    from django.utils import timezone

    from activities import services

    activity = offer(stock_total=40)
    wanted = SeizeRequest(activity_id=activity.pk, seq=1)

    def press(number: int) -> object:
        if number == 50:
            from django.db import connection

            try:
                return services.activity_add_stock(activity_id=activity.pk, amount=20, now=timezone.now())
            finally:
                connection.close()
        return coupon_seize(wanted=wanted, user_id=number)

    first = crowd(100, press)
    second = crowd(100, lambda number: coupon_seize(wanted=wanted, user_id=1000 + number))
    won = sum(isinstance(result, Won) for result in first + second)
    assert won == 60
    assert desk.stock_left([activity.pk]) == {activity.pk: 0}
    assert drain(activity).inserted == 60
