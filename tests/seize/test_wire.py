"""The gate's own way to Redis: the same wins, and every fault says whether something can have happened."""

import asyncio
import os
import select
import signal
import socket
import threading
import time

import pytest
from services import PATIENCE_S, Valkey, port_pick

from seize import store
from seize.batching import Desk
from seize.outcomes import Won
from seize.wire import Wire
from tests.loops import loop_run, until
from tests.seize.stage import ACTIVITY, load


def wire() -> Wire:
    address = store.wire_address()
    assert address is not None
    return Wire(address)


def ask(made: Wire, *users: int, activity_id: int = ACTIVITY):
    return made.seize(activity_id=activity_id, shoppers=[(user_id, 1) for user_id in users])


def asked(*users: int) -> store.SeizeReply:
    async def main():
        made = wire()
        try:
            return await ask(made, *users)
        finally:
            made.close()

    return loop_run(main())


def test_reply_is_the_one_that_the_store_gives():
    load(total=2)
    first = asked(7, 8, 9)
    again = store.seize(activity_id=ACTIVITY, shoppers=[(7, 1), (8, 1), (9, 1)])
    assert [len(entry) for entry in first.entries] == [4, 4, 2]
    assert [entry[:3] for entry in first.entries] == [entry[:3] for entry in again.entries]
    assert [entry[3] for entry in first.entries[:2]] == [0, 0]
    assert [entry[3] for entry in again.entries[:2]] == [1, 1]
    assert first.starts_ms == again.starts_ms


def test_script_that_redis_has_forgotten_is_sent_whole_and_runs_once(raw):
    load(total=5)
    raw.script_flush()
    assert len(asked(7).entries[0]) == 4
    assert raw.hget("COUPON:RESOURCE:STOCK:{1}", "11") == "4"


def test_calls_under_way_at_once_get_each_its_own_reply():
    activities = list(range(11, 19))
    for activity_id in activities:
        load(activity_id=activity_id, total=5)

    async def main():
        made = wire()
        replies = await asyncio.gather(*(ask(made, 7, activity_id=activity_id) for activity_id in activities))
        made.close()
        return replies

    replies = loop_run(main())
    assert [reply.entries[0][0] for reply in replies] == [str(activity_id) for activity_id in activities]


def test_nobody_listens_nothing_happened(settings):
    settings.REDIS_URL = f"redis://127.0.0.1:{port_pick()}/0"
    with pytest.raises(store.StoreUnavailable, match="cannot connect"):
        asked(7)


def test_server_killed_between_two_calls_is_noticed_before_anything_is_sent(own_valkey):
    load()

    async def main():
        made = wire()
        await ask(made, 7)
        connection = await made._connected()
        own_valkey.stop(kill=True)
        await until(lambda: connection.lost)
        with pytest.raises(store.StoreUnavailable, match="cannot connect"):
            await ask(made, 8)
        own_valkey.start()
        reply = await ask(made, 8)
        made.close()
        return reply

    assert loop_run(main()).entries[0][0] == -8  # not ready: it was not rebuilt yet


def test_server_that_hangs_leaves_the_outcome_unknown_in_time_and_its_late_answer_is_nobodys(own_valkey, settings):
    load(total=10)

    async def main():
        made = wire()
        await ask(made, 1)
        os.kill(own_valkey.process.pid, signal.SIGSTOP)
        settings.REDIS_TIMEOUT_S = 0.3
        results = await asyncio.gather(ask(made, 2), ask(made, 3), return_exceptions=True)
        settings.REDIS_TIMEOUT_S = PATIENCE_S
        os.kill(own_valkey.process.pid, signal.SIGCONT)
        assert [type(result) for result in results] == [store.OutcomeUnknown] * 2
        reply = await ask(made, 4)
        made.close()
        return reply

    assert loop_run(main()).entries[0][:2] == ["11", 1]
    held = store.client().hgetall("COUPON:SEIZE:LIST:{1}:11")
    assert {"1", "4"} <= held.keys()


def test_server_that_takes_the_command_and_never_answers_was_asked_once(settings):
    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def serve() -> None:
        connection, _address = listener.accept()
        with connection:
            while chunk := connection.recv(65536):
                heard.append(chunk)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    settings.REDIS_URL = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    settings.REDIS_TIMEOUT_S = 0.2
    with pytest.raises(store.OutcomeUnknown):
        asked(7)
    listener.close()
    thread.join(PATIENCE_S)
    assert b"".join(heard).count(b"EVALSHA") == 1


def test_process_that_stood_still_longer_than_an_answer_may_take_still_reads_it(settings):
    load(total=5)

    async def main():
        made = wire()
        await ask(made, 1)
        settings.REDIS_TIMEOUT_S = 0.2
        call = asyncio.ensure_future(ask(made, 2))
        await asyncio.sleep(0)  # it is sent
        await asyncio.sleep(0)
        # The whole loop stands still: until the answer lies here, and longer than it may take.
        select.select([(await made._connected())._transport.get_extra_info("socket")], [], [], PATIENCE_S)
        time.sleep(0.4)  # noqa: ASYNC251
        reply = await call
        made.close()
        return reply

    assert len(loop_run(main()).entries[0]) == 4


def test_command_on_a_connection_that_is_gone_was_not_sent():
    async def main():
        made = wire()
        connection = await made._connected()
        connection.close("gone")
        with pytest.raises(store.StoreUnavailable, match="gone"):
            await connection.command("PING")

    loop_run(main())


def test_answer_that_nobody_waits_for_ends_the_connection_instead_of_becoming_the_next_ones(settings):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _address = listener.accept()
        connection.sendall(b"+HELLO\r\n")
        connection.recv(65536)
        connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    settings.REDIS_URL = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"

    async def main():
        made = wire()
        connection = await made._connected()
        await until(lambda: connection.lost)
        made.close()

    loop_run(main())
    listener.close()
    thread.join(PATIENCE_S)


def test_connection_that_breaks_after_sending_leaves_the_outcome_unknown(settings):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _address = listener.accept()
        connection.recv(65536)
        connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    settings.REDIS_URL = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
    with pytest.raises(store.OutcomeUnknown, match="went away"):
        asked(7)
    listener.close()
    thread.join(PATIENCE_S)


def test_server_that_refuses_changes_nothing(own_valkey):
    load()
    store.client().replicaof("127.0.0.1", str(port_pick()))
    with pytest.raises(store.StoreRefused, match=r"(?i)read ?only"):
        asked(7)
    store.client().replicaof("NO", "ONE")
    assert store.client().hget("COUPON:RESOURCE:STOCK:{1}", "11") == "5"


def test_full_server_refuses_and_changes_nothing(own_valkey):
    load()
    store.client().config_set("maxmemory", "1")
    with pytest.raises(store.StoreRefused, match="OOM"):
        asked(7)
    store.client().config_set("maxmemory", "0")
    assert store.client().hget("COUPON:RESOURCE:STOCK:{1}", "11") == "5"


def test_password_and_database_of_the_url_are_greeted_with(tmp_path, valkey, settings):
    server = Valkey(tmp_path, binary=valkey.binary, extra=("requirepass geheim",))
    server.start()
    try:
        settings.REDIS_URL = f"redis://:geheim@127.0.0.1:{server.port}/3"
        load(total=5)
        assert len(asked(7).entries[0]) == 4
        assert store.client().info("keyspace").keys() == {"db3"}
        settings.REDIS_URL = f"redis://:falsch@127.0.0.1:{server.port}/3"
        with pytest.raises(store.StoreUnavailable, match="WRONGPASS"):
            asked(7)
    finally:
        server.stop(kill=True)


def test_socket_file_will_do(tmp_path, valkey, settings):
    server = Valkey(tmp_path, binary=valkey.binary, extra=(f"unixsocket {tmp_path / 's'}",))
    server.start()
    try:
        settings.REDIS_URL = f"unix://{tmp_path / 's'}"
        load(total=5)
        assert len(asked(7).entries[0]) == 4
    finally:
        server.stop(kill=True)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "rediss://127.0.0.1:6379/0",
        "redis+cluster://127.0.0.1:6379",
        "redis+sentinel://127.0.0.1:6379/shop",
        "redis://127.0.0.1:6379/0?protocol=3",
    ],
)
def test_everything_else_is_left_to_the_store(settings, url):
    settings.REDIS_URL = url
    assert store.wire_address() is None


@pytest.mark.parametrize("kind", ["valkey", "cluster"])
def test_desk_takes_the_way_that_the_url_allows(request, settings, kind):
    server = request.getfixturevalue(kind)
    settings.REDIS_URL = server.url
    load(total=5)
    desk = Desk(threads=2)

    async def main():
        outcomes = await desk(ACTIVITY, [(7, 1)])
        desk.close()
        return outcomes

    [outcome] = loop_run(main())
    assert isinstance(outcome, Won)
    assert (desk._wire() is None) == (kind == "cluster")
