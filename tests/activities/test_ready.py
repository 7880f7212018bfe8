"""Ready bytes: the same answers from every front, at most a second old, and Redis asked twice a second at most."""

import gzip
import json
import re
import socket
import threading
import zlib
from datetime import datetime, timedelta

import pytest
from django.utils import timezone
from services import PATIENCE_S, wait_until

from activities import listing, ready
from activities.admission import unix_ms
from seize import desk, store
from seize.keys import LIST_KEY, stock_key
from seize.requests import SeizeRequest
from seize.responses import rfc3339
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
    yield fresh
    fresh._executor.shutdown()  # what it still reads must not be counted by the next test


class Clock:
    """This process' monotonic clock as the cache reads it: it stands still until a test lets time pass.

    Steps of an eighth of a second have no rounding.
    """

    passed_s = 0.0

    def monotonic(self) -> float:
        return 1000.0 + self.passed_s


@pytest.fixture
def clock(monkeypatch) -> Clock:
    stopped = Clock()
    for module in (ready, listing):
        monkeypatch.setattr(module, "time", stopped)
    return stopped


def is_fresh(cache) -> bool:
    return not cache._taken.is_old


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


def left_of(reply: Reply) -> int:
    assert reply.status == 200
    return json.loads(reply.body)["results"][0]["stock_left"]


def test_stock_is_at_most_a_second_old_and_redis_is_asked_twice_a_second(fronts, cache, clock, monkeypatch):
    activity = offer(stock_total=10)
    reads, go_on = [], threading.Event()
    go_on.set()
    real = ready.snapshot_read

    def counted():
        reads.append(clock.passed_s)
        assert go_on.wait(PATIENCE_S)
        return real()

    monkeypatch.setattr(ready, "snapshot_read", counted)
    port = fronts["protocol"].port
    assert left_of(ask(port, get(LIST))) == 10
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
    told = {}
    while clock.passed_s <= 2.25:
        told[clock.passed_s] = {left_of(ask(port, get(LIST))) for _ in range(20)}
        wait_until(lambda: is_fresh(cache), what="what is half a second old is read again")
        clock.passed_s += 0.125
    assert reads == [0, 0.625, 1.25, 1.875]
    assert all(left == {10} for at_s, left in told.items() if at_s <= 0.5)
    assert all(left == {9} for at_s, left in told.items() if at_s >= 0.75)

    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=8)
    go_on.clear()
    clock.passed_s = 1.875 + 1.125  # what was read last is older than a second: nobody is told it any more
    late = []
    thread = threading.Thread(target=lambda: late.append(left_of(ask(port, get(LIST)))))
    thread.start()
    wait_until(lambda: len(reads) == 5, what="it is read")
    told_meanwhile = list(late)
    go_on.set()
    thread.join(PATIENCE_S)
    assert (told_meanwhile, late) == ([], [8])


def test_crowd_that_reloads_keeps_it_fresh_with_one_reader_and_without_django(fronts, cache, clock, monkeypatch):
    activity = offer(stock_total=100)
    reads = []
    real = ready.snapshot_read
    asked, lefts, over = [0] * 20, [], threading.Event()

    def everybody_asks() -> None:
        before = list(asked)
        wait_until(
            lambda: over.is_set() or all(now > then for now, then in zip(asked, before, strict=True)),
            what="everybody asks",
        )

    def counted():
        reads.append(clock.passed_s)
        if len(reads) > 1:
            everybody_asks()  # and is told what was read before
        return real()

    monkeypatch.setattr(ready, "snapshot_read", counted)
    server = fronts["protocol"]
    before = server.front.taken

    def reload(number: int) -> None:
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as connection:
            while not over.is_set():
                at_s = clock.passed_s
                connection.sendall(get(LIST))
                lefts.append((at_s, left_of(read_reply(connection, "GET"))))
                asked[number] += 1

    threads = [threading.Thread(target=reload, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    try:
        while clock.passed_s < 2.25:
            everybody_asks()
            wait_until(lambda: is_fresh(cache), what="somebody reads it again")
            if clock.passed_s == 1:
                coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
            clock.passed_s += 0.125
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert reads == [0, 0.625, 1.25, 1.875]
    assert server.front.taken - before == sum(asked) >= 20 * 18
    assert {left for at_s, left in lefts if at_s < 1} == {100}
    assert {left for at_s, left in lefts if at_s > 1.25} == {99}


def test_fault_of_redis_is_told_to_all_who_ask_and_not_found_out_by_each(clock, monkeypatch):
    calls, came, faults = [], [], []

    def hanging():
        calls.append(1)
        wait_until(lambda: len(came) >= 20, what="all have come")
        raise store.OutcomeUnknown("no answer")

    monkeypatch.setattr(ready, "snapshot_read", hanging)

    def look() -> None:
        came.append(1)
        try:
            ready.list_ready(tab=None)
        except store.OutcomeUnknown as fault:
            faults.append(fault)

    threads = [threading.Thread(target=look) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert (len(calls), len(faults)) == (1, 20)
    clock.passed_s += 0.5
    look()
    assert (len(calls), len(faults)) == (2, 21)


def test_clock_in_the_answer_is_that_of_the_reading_and_not_ahead_by_a_slow_redis(clock, monkeypatch):
    offer()
    real, read_ms = desk.list_read, []

    def slow():
        clock.passed_s += 0.25
        text, now_ms = real()
        read_ms.append(now_ms)
        return text, now_ms

    monkeypatch.setattr(desk, "list_read", slow)
    assert json.loads(ready.list_ready(tab=None).body())["server_time"] == rfc3339(read_ms[0])


def test_server_time_goes_on_while_the_bytes_stay(fronts, clock):
    offer()
    port = fronts["protocol"].port
    first = ask(port, get(LIST))
    clock.passed_s += 0.25
    second = ask(port, get(LIST))
    assert first.headers["etag"] == second.headers["etag"]
    times = [datetime.fromisoformat(json.loads(reply.body)["server_time"]) for reply in (first, second)]
    assert times[1] - times[0] == timedelta(milliseconds=250)


def test_status_in_the_bytes_always_holds_at_their_server_time_also_when_the_sale_starts(
    fronts, cache, clock, monkeypatch
):
    starts_at = timezone.now() + timedelta(hours=1)
    offer(starts_at=starts_at, ends_at=starts_at + timedelta(hours=1))
    starts_ms, real = unix_ms(starts_at), desk.list_read

    def at_the_stopped_clock():
        """Redis' clock goes with this process', from a second and a quarter before the start."""
        text, _now_ms = real()
        return text, starts_ms - 1250 + int(clock.passed_s * 1000)

    monkeypatch.setattr(desk, "list_read", at_the_stopped_clock)
    port = fronts["protocol"].port
    told: dict[float, set[str]] = {}

    def look() -> None:
        body = json.loads(ask(port, get(LIST)).body)
        status, at_ms = body["results"][0]["status"], unix_ms(datetime.fromisoformat(body["server_time"]))
        assert status == ("upcoming" if at_ms < starts_ms else "ongoing")
        told.setdefault(clock.passed_s, set()).add(status)

    while clock.passed_s <= 2:
        for _ in range(5):
            look()
        wait_until(lambda: is_fresh(cache), what="it is read again")
        look()
        clock.passed_s += 0.125
    assert all(seen == {"upcoming"} for at_s, seen in told.items() if at_s < 1.25)
    assert "upcoming" in told[1.25], "the bytes of before, whose time stops short of the start"
    assert "ongoing" in told[1.25]
    assert all(seen == {"ongoing"} for at_s, seen in told.items() if at_s > 1.25)


def test_redis_that_went_away_is_told_within_a_second(fronts, settings, clock):
    offer()
    port = fronts["protocol"].port
    assert ask(port, get(LIST)).status == 200
    assert ask(port, get("/market/consumer/activity/987654")).status == 404
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    clock.passed_s += 1.125
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


def test_many_threads_that_find_it_old_ask_redis_once(clock, monkeypatch):
    offer()
    reads, came = [], []
    real = ready.snapshot_read

    def slow():
        reads.append(1)
        wait_until(lambda: len(came) >= 20, what="all have come")
        return real()

    monkeypatch.setattr(ready, "snapshot_read", slow)

    def look() -> None:
        came.append(1)
        ready.list_ready(tab=None)

    threads = [threading.Thread(target=look) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(reads) == 1
