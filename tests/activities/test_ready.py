"""Ready bytes: the same answers from every front, at most a second old, and Redis asked twice a second at most."""

import gzip
import itertools
import json
import re
import socket
import threading
import time
import zlib
from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from activities import ready
from seize import desk, store
from seize.keys import LIST_KEY, stock_key
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.factories import offer
from tests.seize.servers import Reply, ask, raw_request, read_reply

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/market/consumer/activity/list"


@pytest.fixture(autouse=True)
def cache(settings, monkeypatch):
    """A cache of its own, of one second."""
    settings.LIST_CACHE_S = 1.0
    fresh = ready._Cache()
    monkeypatch.setattr(ready, "_cache", fresh)
    return fresh


def get(path: str, *, method: str = "GET", **headers: str) -> bytes:
    wanted = {"Host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return raw_request(method, path, headers=tuple(wanted.items()))


def comparable(reply: Reply) -> tuple[int, dict[str, str], str]:
    headers = {name: value for name, value in reply.headers.items() if name != "date"}
    headers["x-request-id"] = "an id"
    content = gzip.decompress(reply.body) if reply.body and "content-encoding" in headers else reply.body
    body = re.sub(r'"server_time":"[^"]+"', '"server_time":"now"', content.decode())
    return reply.status, headers, re.sub(r'"instance":"[0-9a-f]+"', '"instance":"an id"', body)


@pytest.mark.parametrize(
    ("request_of", "taken"),
    [
        (lambda _: get(LIST), True),
        (lambda _: get(LIST + "?tab=ongoing"), True),
        (lambda _: get(LIST + "?tab=upcoming"), True),
        (lambda _: get(LIST, Accept_Language="zh-CN"), True),
        (lambda _: get(LIST, If_None_Match='"x", W/"y"'), True),
        (lambda _: get(LIST, Accept_Encoding="gzip, deflate, br"), True),
        (lambda _: get(LIST, Accept_Encoding="br, GZIP;q=0.5"), True),
        (lambda _: get(LIST, Accept_Encoding="gzip;q=0, br"), True),
        (lambda _: get(LIST, Accept_Encoding="identity"), True),
        (lambda _: get(LIST, method="HEAD", Accept_Encoding="gzip"), False),
        (lambda activity: get(f"/market/consumer/activity/{activity.pk}", Accept_Encoding="gzip"), True),
        (lambda _: get("/market/consumer/activity/987654", Accept_Encoding="gzip"), True),
        (lambda _: get(LIST + "?tab=nonsense"), False),
        (lambda _: get(LIST + "?tab=ongoing&a=b"), False),
        (lambda _: get(LIST + "?tab=ongoing&tab=ongoing"), False),
        (lambda _: get(LIST + "?"), True),
        (lambda _: get(LIST, method="HEAD"), False),
        (lambda _: get(LIST, method="POST"), False),
        (lambda _: get(LIST, Accept="text/html"), False),
        (lambda activity: get(f"/market/consumer/activity/{activity.pk}"), True),
        (lambda activity: get(f"/market/consumer/activity/{activity.pk}?a=b"), False),
        (lambda activity: get(f"/market/consumer/activity/0{activity.pk}"), False),
        (lambda _: get("/market/consumer/activity/987654"), True),
        (lambda _: get(LIST, If_None_Match="*"), False),
        (lambda _: get(LIST, If_Match='"x"'), False),
        (lambda _: get(LIST, If_Unmodified_Since="Sun, 06 Nov 1994 08:49:37 GMT"), False),
        (lambda _: get(LIST, If_Modified_Since="Sun, 06 Nov 1994 08:49:37 GMT"), True),
        (lambda activity: get(f"/market/consumer/activity/{activity.pk}/claim"), False),
    ],
)
def test_every_front_answers_as_the_view_does(fronts, request_of, taken):
    activity = offer(name="满减 “八折”", rules_text="a\nb\u2028c" * 200)
    for _number in range(3):  # a list that is worth compressing
        offer(name="Another")
    request = request_of(activity)
    method = request.split(b" ")[0].decode()
    answers, took = {}, {}
    for kind, server in fronts.items():
        ready.list_ready(tab=None)  # there, and fresh
        before = server.front.taken
        answers[kind] = comparable(ask(server.port, request, method=method))
        took[kind] = server.front.taken - before
    assert answers["asgi"] == answers["view"]
    assert answers["protocol"] == answers["view"]
    assert took == {"view": 0, "asgi": taken, "protocol": taken}


def test_same_list_again_is_304_for_every_front(fronts):
    offer()
    for server in fronts.values():
        etag = ask(server.port, get(LIST)).headers["etag"]
        again = ask(server.port, get(LIST, If_None_Match=etag))
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", etag)
        assert again.headers["cache-control"] == "public, max-age=1"
    answers = {kind: comparable(ask(server.port, get(LIST, If_None_Match=etag))) for kind, server in fronts.items()}
    assert answers["asgi"] == answers["protocol"] == answers["view"]


@pytest.mark.parametrize("front", ["view", "asgi", "protocol"])
def test_client_that_takes_gzip_gets_the_same_list_in_a_tenth_of_the_bytes(fronts, front):
    for number in range(200):
        offer(name=f"双十二 {number}")
    plain, small = (ask(fronts[front].port, get(LIST, **wanted)) for wanted in ({}, {"Accept-Encoding": "gzip"}))
    assert small.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == small.headers["vary"] == "Accept-Encoding, Authorization, Accept-Language"
    assert plain.headers["etag"] == small.headers["etag"]
    assert len(small.body) < len(plain.body) / 10
    same = [json.loads(body) for body in (plain.body, gzip.decompress(small.body))]
    assert len(same[0]["results"]) == 200
    assert same[0]["results"] == same[1]["results"]
    assert zlib.decompressobj(wbits=31).decompress(small.body).startswith(b'{"server_time":"2')
    again = ask(fronts[front].port, get(LIST, Accept_Encoding="gzip", If_None_Match=small.headers["etag"]))
    assert (again.status, again.body, again.headers["vary"]) == (
        304,
        b"",
        "Accept-Encoding, Authorization, Accept-Language",
    )


def test_list_is_compressed_once_a_change_and_never_for_an_answer(settings, monkeypatch):
    packs = []
    real = ready.tail_pack
    monkeypatch.setattr(ready, "tail_pack", lambda tail: packs.append(len(tail)) or real(tail))
    activities = [offer(name=f"双十二 {number}") for number in range(10)]
    settings.LIST_CACHE_S = 0.0
    for _number in range(5):
        ready.list_ready(tab=None).content(accept_encoding="gzip")
    assert len(packs) == 3, "all, what is on, what is coming up"
    coupon_seize(wanted=SeizeRequest(activity_id=activities[0].pk, seq=1), user_id=7)
    for _number in range(5):
        ready.list_ready(tab=None).content(accept_encoding="gzip")
    assert len(packs) == 5, "what is coming up has not changed"


def test_stock_is_at_most_a_second_old_and_redis_is_asked_twice_a_second(fronts, monkeypatch):
    activity = offer(stock_total=10)
    reads = []
    real = ready.snapshot_read

    def counted():
        reads.append(time.monotonic())
        return real()

    monkeypatch.setattr(ready, "snapshot_read", counted)
    port = fronts["protocol"].port
    began = time.monotonic()
    assert b'"stock_left":10' in ask(port, get(LIST)).body
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
    seen_after_s = None
    asked = 0
    while time.monotonic() - began < 2.2:
        asked += 1
        if seen_after_s is None and b'"stock_left":9' in ask(port, get(LIST)).body:
            seen_after_s = time.monotonic() - began
    assert seen_after_s is not None
    assert seen_after_s < 1.2
    assert len(reads) <= 6
    assert asked > 20 * len(reads)


def test_crowd_that_reloads_keeps_it_fresh_with_one_reader_and_without_django(fronts, monkeypatch):
    activity = offer(stock_total=100)
    reads = []
    real = ready.snapshot_read

    def counted():
        reads.append(time.monotonic())
        time.sleep(0.02)
        return real()

    monkeypatch.setattr(ready, "snapshot_read", counted)
    server = fronts["protocol"]
    began, before = time.monotonic(), server.front.taken
    asked, lefts = [0] * 20, []

    def reload(number: int) -> None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            while time.monotonic() - began < 2.2:
                connection.sendall(get(LIST))
                reply = read_reply(connection, "GET")
                assert reply.status == 200
                asked[number] += 1
                lefts.append((time.monotonic() - began, json.loads(reply.body)["results"][0]["stock_left"]))

    threads = [threading.Thread(target=reload, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
    seized_s = time.monotonic() - began
    for thread in threads:
        thread.join(20)
    assert server.front.taken - before == sum(asked) > 500
    gaps = [later - earlier for earlier, later in itertools.pairwise(reads)]
    assert 3 <= len(reads) <= 6
    assert 0.45 < min(gaps) <= max(gaps) < 0.95
    assert all(left == 99 for at_s, left in lefts if at_s > seized_s + 1.1)


def test_fault_of_redis_is_told_to_all_who_ask_and_not_found_out_by_each(cache, monkeypatch):
    calls = []

    def hanging():
        calls.append(1)
        time.sleep(0.1)
        raise store.OutcomeUnknown("no answer")

    monkeypatch.setattr(ready, "snapshot_read", hanging)
    faults = []

    def look() -> None:
        try:
            ready.list_ready(tab=None)
        except store.OutcomeUnknown as fault:
            faults.append(fault)

    threads = [threading.Thread(target=look) for _ in range(20)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (len(calls), len(faults)) == (1, 20)
    assert time.monotonic() - began < 0.4


def test_clock_in_the_answer_is_that_of_the_reading_and_not_ahead_by_a_slow_redis(cache, monkeypatch):
    offer()
    real = desk.list_read

    def slow():
        time.sleep(0.2)
        return real()

    monkeypatch.setattr(desk, "list_read", slow)
    told = json.loads(ready.list_ready(tab=None).body())["server_time"]
    ahead_s = datetime.fromisoformat(told).timestamp() - store.time_us() / 1e6
    assert abs(ahead_s) < 0.1


def test_server_time_goes_on_while_the_bytes_stay(fronts):
    offer()
    port = fronts["protocol"].port
    ask(port, get(LIST))
    first, _pause, second = ask(port, get(LIST)), time.sleep(0.2), ask(port, get(LIST))
    assert first.headers["etag"] == second.headers["etag"]
    times = [re.search(rb'"server_time":"([^"]+)"', reply.body)[1] for reply in (first, second)]
    assert times[0] < times[1]


def test_status_in_the_bytes_always_holds_at_their_server_time_also_when_the_sale_starts(fronts):
    starts_at = timezone.now() + timedelta(seconds=1.3)
    offer(starts_at=starts_at)
    port = fronts["protocol"].port
    seen: list[tuple[str, bool]] = []
    until = time.monotonic() + 1.8
    while time.monotonic() < until:
        body = json.loads(ask(port, get(LIST)).body)
        started = datetime.fromisoformat(body["server_time"]) >= starts_at.replace(
            microsecond=starts_at.microsecond // 1000 * 1000
        )
        seen.append((body["results"][0]["status"], started))
    assert set(seen) == {("upcoming", False), ("ongoing", True)}
    assert len(seen) > 50


def test_redis_that_went_away_is_told_within_a_second(fronts, settings):
    offer()
    port = fronts["protocol"].port
    assert ask(port, get(LIST)).status == 200
    assert ask(port, get("/market/consumer/activity/987654")).status == 404
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    time.sleep(1.1)
    assert ask(port, get(LIST)).status == 503


def test_absent_list_is_503_and_never_an_empty_one(fronts, raw):
    offer()
    raw.delete(LIST_KEY)
    for server in fronts.values():
        assert ask(server.port, get(LIST)).status == 503


def test_unknown_stock_is_null_and_not_none_left(raw):
    activity = offer()
    raw.delete(stock_key(activity.pk % 10))
    body = ready.list_ready(tab=None).body()
    assert b'"stock_left":null' in body


def test_many_threads_that_find_it_old_ask_redis_once(cache, monkeypatch):
    offer()
    reads = []
    real = ready.snapshot_read

    def slow():
        reads.append(1)
        time.sleep(0.05)
        return real()

    monkeypatch.setattr(ready, "snapshot_read", slow)
    threads = [threading.Thread(target=lambda: ready.list_ready(tab=None)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(reads) == 1
    assert store.time_us() > 0
