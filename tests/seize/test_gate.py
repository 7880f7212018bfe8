"""What the gate's servers owe a connection: order, limits, farewell, and nobody hurt by another's misfortune."""

import asyncio
import gc
import json
import re
import select
import socket
import threading
import time
import weakref

import pytest
from services import PATIENCE_S, wait_until

from couponsite import asgi
from seize import batching, gate, protocol, store
from seize.keys import seize_keys
from seize.tokens import access_token_issue
from tests.loops import loop_run, until
from tests.seize.servers import Counted, ask, raw_request, read_reply, served
from tests.seize.stage import ACTIVITY, load

KINDS = ("asgi", "protocol")


@pytest.fixture(params=KINDS)
def server(request):
    """A server of its own: a test may stop it."""
    made = asgi.front()
    with served(Counted(made.shortcuts, made.django), kind=request.param) as running:
        yield running


def press(user_id: int = 7, *, body: bytes = b'{"id": "11", "seq": 1}', **headers: str) -> bytes:
    pairs = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Authorization": f"Bearer {access_token_issue(user_id=user_id, lifetime_s=86_400)}",
        **headers,
    }
    return raw_request(body=body, headers=tuple(pairs.items()))


def livez() -> bytes:
    return raw_request("GET", "/livez", headers=(("Host", "localhost"),))


def connect(server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)


@pytest.fixture
def slow_desk(monkeypatch):
    """Calls wait until the event is set; ``calls`` notes how many shoppers each had."""
    real, opened = batching.Desk.__call__, threading.Event()
    opened.calls = []

    async def slow(desk, activity_id: int, shoppers):
        opened.calls.append(len(shoppers))
        while not opened.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.005)
        return await real(desk, activity_id, shoppers)

    monkeypatch.setattr(batching.Desk, "__call__", slow)
    yield opened
    opened.set()


def test_connection_is_kept_alive_for_request_after_request(server):
    load()
    with connect(server) as connection:
        for status in (201, 200, 200):
            connection.sendall(press())
            assert read_reply(connection).status == status


def test_pipelined_requests_are_answered_in_order_whoever_answers_them(server, raw):
    load(total=10)
    with connect(server) as connection:
        connection.sendall(press(1) + livez() + press(2) + press(2) + livez() + press(3, Connection="close"))
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"201", b"200", b"201", b"200", b"200", b"201"]
    assert [b"SEIZED" in part for part in received.split(b"HTTP/1.1 ")[1:]] == [True, False, True, True, False, True]
    assert raw.hget(seize_keys(ACTIVITY).stock, "11") == "7"


def test_request_in_many_small_pieces_is_one_request(server):
    load()
    with connect(server) as connection:
        for byte in press():
            connection.sendall(bytes([byte]))
        assert read_reply(connection).status == 201


def test_closing_is_what_the_client_asked_for(server):
    load()
    with connect(server) as connection:
        connection.sendall(press(Connection="close"))
        reply = read_reply(connection)
        assert (reply.status, reply.headers["connection"]) == (201, "close")
        assert connection.recv(1) == b""


def test_crowd_shares_calls(server, slow_desk, raw):
    load(total=100)
    connections = [connect(server) for _ in range(41)]
    try:
        connections[0].sendall(press(1))
        wait_until(lambda: slow_desk.calls == [1], what="the first call")
        for user_id, connection in enumerate(connections[1:], start=2):
            connection.sendall(press(user_id))
        wait_until(lambda: waiting(server) == 41, what="everybody in the lane")
        slow_desk.set()
        assert [read_reply(connection).status for connection in connections] == [201] * 41
    finally:
        for connection in connections:
            connection.close()
    assert slow_desk.calls == [1, 40]
    assert raw.hlen(seize_keys(ACTIVITY).queue) == 41


def waiting(server) -> int:
    return server.front.shortcuts[0].lanes.waiting


def test_full_lane_sheds_at_once_with_busy_and_when_to_come_back(settings, slow_desk):
    settings.SEIZE_GATE_WAITING_MAX = 2
    made = asgi.front()
    load()
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server:
        first, second = connect(server), connect(server)
        with first, second:
            first.sendall(press(1))
            second.sendall(press(2))
            wait_until(lambda: waiting(server) == 2, what="a full lane")
            shed = ask(server.port, press(3))
            assert (shed.status, json.loads(shed.body)["code"]) == (503, "BUSY")
            assert int(shed.headers["retry-after"]) in (1, 2, 3)
            slow_desk.set()
            assert {read_reply(first).status, read_reply(second).status} == {201}
        assert ask(server.port, press(3)).status == 201


def test_who_was_shed_and_asks_again_at_once_is_not_read_from_for_a_second(settings, slow_desk, monkeypatch):
    assert gate.SHED_REST_S == 1.0
    monkeypatch.setattr(gate, "SHED_REST_S", PATIENCE_S)  # longer than this test takes on any machine
    settings.SEIZE_GATE_WAITING_MAX = 1
    made = asgi.front()
    load()
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server:
        first, eager = connect(server), connect(server)
        with first, eager:
            first.sendall(press(1))
            wait_until(lambda: waiting(server) == 1, what="a full lane")
            eager.sendall(press(2))
            assert read_reply(eager).status == 503
            slow_desk.set()
            assert read_reply(first).status == 201
            eager.sendall(press(2))
            assert ask(server.port, press(4)).status == 201
            assert select.select([eager], [], [], 0.1)[0] == []


def test_who_was_shed_is_heard_again_by_itself_and_one_who_left_is_let_go(settings, slow_desk, monkeypatch):
    monkeypatch.setattr(gate, "SHED_REST_S", 0.05)
    settings.SEIZE_GATE_WAITING_MAX = 1
    made = asgi.front()
    load()
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server:
        first, eager, gone = connect(server), connect(server), connect(server)
        with first, eager:
            first.sendall(press(1))
            wait_until(lambda: waiting(server) == 1, what="a full lane")
            for shed in (gone, eager):
                shed.sendall(press(2))
                assert read_reply(shed).status == 503
            gone.close()
            slow_desk.set()
            assert read_reply(first).status == 201
            eager.sendall(press(2))
            assert read_reply(eager).status == 201
        wait_until(lambda: not server.uvicorn.server_state.connections, what="the farewells")


def test_client_that_leaves_before_it_was_asked_for_takes_no_coupon(slow_desk, raw):
    made = asgi.front()
    load(total=10)
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server, connect(server) as first:
        first.sendall(press(1))
        wait_until(lambda: slow_desk.calls == [1], what="the first call")
        gone, last = connect(server), connect(server)
        gone.sendall(press(2))
        last.sendall(press(3))
        wait_until(lambda: waiting(server) == 3, what="both in the lane")
        gone.close()
        wait_until(lambda: len(server.uvicorn.server_state.connections) == 2, what="the farewell")
        slow_desk.set()
        assert (read_reply(first).status, read_reply(last).status) == (201, 201)
        last.close()
    assert raw.hkeys(seize_keys(ACTIVITY).holders) == ["_", "1", "3"]


def test_client_that_leaves_midway_hurts_nobody_and_keeps_its_coupon(server, slow_desk, raw):
    load(total=10)
    gone = connect(server)
    gone.sendall(press(1))
    wait_until(lambda: slow_desk.calls == [1], what="the call")
    gone.close()
    slow_desk.set()
    assert ask(server.port, press(2)).status == 201
    assert ask(server.port, press(1)).status == 200
    assert raw.hget(seize_keys(ACTIVITY).stock, "11") == "8"


def test_graceful_stop_answers_what_was_accepted_and_then_hangs_up(server, slow_desk):
    load(total=10)
    idle = connect(server)
    idle.sendall(livez())
    assert read_reply(idle, "GET").status == 200
    with connect(server) as accepted, idle:
        accepted.sendall(press(1))
        wait_until(lambda: slow_desk.calls == [1], what="the call")
        server.stop()
        assert idle.recv(1) == b""
        time.sleep(0.3)
        slow_desk.set()
        reply = read_reply(accepted)
        assert (reply.status, reply.headers["connection"]) == (201, "close")
        assert accepted.recv(1) == b""
    with pytest.raises(OSError, match="refused"):
        connect(server)


def test_limit_of_connections_is_uvicorns(slow_desk):
    made = asgi.front()
    load()
    with (
        served(Counted(made.shortcuts, made.django), kind="protocol", limit_concurrency=2) as server,
        connect(server) as first,
        connect(server) as second,
    ):
        wait_until(lambda: len(server.uvicorn.server_state.connections) == 2, what="both connections")
        first.sendall(press())
        assert read_reply(first).status == 503
        second.close()
        wait_until(lambda: len(server.uvicorn.server_state.connections) <= 1, what="the farewell")
        slow_desk.set()
        assert ask(server.port, press()).status in (201, 503)


def test_idle_connection_is_closed_after_its_time(slow_desk):
    slow_desk.set()
    made = asgi.front()
    load()
    with (
        served(Counted(made.shortcuts, made.django), kind="protocol", timeout_keep_alive=1) as server,
        connect(server) as connection,
    ):
        connection.sendall(press())
        assert read_reply(connection).status == 201
        assert connection.recv(1) == b""


def test_connection_in_use_outlives_the_time_of_an_idle_one():
    """The timer looks when the last answer was: here when the test says so, since a slow machine may pause anywhere."""
    made = asgi.front()
    load()
    with (
        served(Counted(made.shortcuts, made.django), kind="protocol", timeout_keep_alive=PATIENCE_S) as server,
        connect(server) as connection,
    ):
        dues: list[float | None] = []
        for idle_s in (PATIENCE_S / 2, PATIENCE_S / 2, PATIENCE_S + 1):
            connection.sendall(press())
            assert read_reply(connection).status in (200, 201)
            [held] = server.uvicorn.server_state.connections
            dues.append(asyncio.run_coroutine_threadsafe(timer_goes_off(held, idle_s), held.loop).result(PATIENCE_S))
        assert connection.recv(1) == b""
    assert dues == [pytest.approx(PATIENCE_S / 2, abs=0.001)] * 2 + [None]


async def timer_goes_off(held: protocol.ShortcutProtocol, idle_s: float) -> float | None:
    """In the server's loop: so long after the last answer. In how many seconds it goes off again, if it does."""
    await until(lambda: held._idle_since is not None)  # the client may have read the answer before that
    now = held._idle_since
    held._idle_since -= idle_s
    held.timeout_keep_alive_task.cancel()
    held.timeout_keep_alive_handler()
    return None if held.timeout_keep_alive_task is None else held.timeout_keep_alive_task.when() - now


def test_client_that_reads_nothing_does_not_fill_the_memory(raw):
    """uvicorn stops reading from a connection whose answers pile up; the shortcuts must not go around that."""
    made = asgi.front()
    load(total=10)
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server, connect(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(1)
        sent = 0
        request = press()
        try:
            while sent < 60_000:
                connection.sendall(request)
                sent += 1
        except TimeoutError:
            pass
        assert sent < 60_000
        buffered = [held.transport.get_write_buffer_size() for held in server.uvicorn.server_state.connections]
        assert max(buffered) < 1_000_000


def test_switch_leaves_the_view_alone_in_place(settings):
    settings.SEIZE_GATE = False
    made = asgi.front()
    load()
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server:
        assert ask(server.port, press()).status == 201
        assert server.front.taken == 0


MY = "/market/consumer/coupon/my"


def plain_get(path: str) -> bytes:
    return raw_request("GET", path, headers=(("Host", "localhost"),))


def test_django_behind_the_gate_has_so_many_threads_and_a_bounded_queue_and_probes_are_beyond_it(settings, monkeypatch):
    settings.WEB_THREADS, settings.WEB_WAITING_MAX = 2, 1
    opened, names, real = threading.Event(), set(), asgi.django

    def slow(environ, start_response):
        if environ["PATH_INFO"] == "/livez":
            return real(environ, start_response)
        names.add(threading.current_thread().name)
        assert opened.wait(PATIENCE_S)
        start_response("204 No Content", [])
        return []

    monkeypatch.setattr(asgi, "django", slow)
    made = asgi.front()
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server:
        connections = [connect(server) for _ in range(3)]
        for connection in connections:
            connection.sendall(plain_get(MY))
        wait_until(lambda: made.django.running == 3, what="two at work and one waiting")
        shed = ask(server.port, plain_get(MY), method="GET")
        assert (shed.status, json.loads(shed.body)["code"]) == (503, "BUSY")
        assert ask(server.port, livez(), method="GET").status == 200
        opened.set()
        assert [read_reply(connection, "GET").status for connection in connections] == [204] * 3
        for connection in connections:
            connection.close()
    assert len(names) == 2


def test_clients_that_never_send_their_body_take_no_thread_and_are_told_so(settings):
    settings.WEB_THREADS, settings.WEB_BODY_TIMEOUT_S = 2, PATIENCE_S
    made = asgi.front()
    half = raw_request(
        path="/market/auth/token", body=b"{",
        headers=(
            ("Host", "localhost"), ("Content-Type", "application/json"), ("Content-Length", "100"),
            ("X-Request-ID", "abcd-1234.EF"), ("Accept-Language", "zh-CN"),
        ),
    )  # fmt: skip
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server:
        connections = [connect(server) for _ in range(5)]
        for connection in connections:
            connection.sendall(half)
        assert ask(server.port, plain_get(MY), method="GET").status == 401
        for connection in connections:
            connection.close()
        settings.WEB_BODY_TIMEOUT_S = 0.3
        with connect(server) as connection:
            connection.sendall(half)
            reply = read_reply(connection)
            assert (reply.status, json.loads(reply.body)["code"]) == (408, "REQUEST_TIMEOUT")
            assert reply.headers["connection"] == "close"
            assert json.loads(reply.body)["instance"] == reply.headers["x-request-id"] == "abcd-1234.EF"
            assert json.loads(reply.body)["title"] == "请求传输超时。"
            assert reply.headers["content-language"] == "zh-hans"


def test_body_that_is_too_long_is_refused_before_it_is_all_here(settings):
    settings.WEB_BODY_MAX_BYTES = 100_000
    made = asgi.front()
    request = raw_request(
        path="/market/auth/token", body=b"x" * 200_000,
        headers=(("Host", "localhost"), ("Content-Type", "application/json"), ("Content-Length", "9000000")),
    )  # fmt: skip
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server:
        reply = ask(server.port, request)
        assert (reply.status, json.loads(reply.body)["code"]) == (413, "TOO_LARGE")
        assert json.loads(reply.body)["instance"] == reply.headers["x-request-id"]


def test_press_leaves_no_cycle_for_the_collector_which_comes_seldom(monkeypatch):
    made = asgi.front()
    load(total=10)
    cycles = []
    real = protocol.ShortCycle.start

    def noted(cycle):
        cycles.append(weakref.ref(cycle))
        real(cycle)

    monkeypatch.setattr(protocol.ShortCycle, "start", noted)
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server, connect(server) as connection:
        gc.disable()
        try:
            for user_id in (1, 2, 3):
                connection.sendall(press(user_id))
                assert read_reply(connection).status == 201
            assert [cycle() is None for cycle in cycles] == [True, True, False]  # the last one is the connection's
        finally:
            gc.enable()


def test_nothing_is_remembered_a_winner_who_lost_the_answer_hears_it_after_the_sale(server):
    """A remembered "sold out" would be told to the winner as well."""
    load(total=1)
    store.seize(activity_id=ACTIVITY, shoppers=[(7, 1)])
    assert json.loads(ask(server.port, press(8)).body)["code"] == "SOLD_OUT"
    assert ask(server.port, press(7)).status == 200


def test_start_tells_sigterm_apart_and_freezes_what_is_loaded(monkeypatch):
    """Without the freeze the collector walks all of Django again and again, in pauses of 50 ms."""
    told: list[str] = []
    thresholds = gc.get_threshold()
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    monkeypatch.setattr(asgi, "stopping_on_sigterm", lambda: told.append("sigterm"))

    async def receive():
        return next(messages)

    async def send(message):
        told.append(message["type"])

    try:
        loop_run(asgi.front()({"type": "lifespan"}, receive, send))
        assert gc.get_freeze_count() > 100_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    assert told == ["sigterm", "lifespan.startup.complete", "lifespan.shutdown.complete"]
