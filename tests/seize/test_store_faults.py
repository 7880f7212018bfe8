"""Every way in which Redis can fail says whether something can have happened."""

import socket
import threading

import pytest
from services import PATIENCE_S, port_pick

from seize import store
from seize.keys import seize_keys
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.seize.stage import ACTIVITY, load


def seize():
    return coupon_seize(wanted=SeizeRequest(activity_id=ACTIVITY, seq=1), user_id=7)


def test_nobody_listens_nothing_happened(settings):
    settings.REDIS_URL = f"redis://127.0.0.1:{port_pick()}/0"
    with pytest.raises(store.StoreUnavailable, match="cannot connect"):
        seize()


@pytest.mark.parametrize("url", ["", "http://127.0.0.1/"])
def test_no_or_wrong_url_says_what_to_do(settings, url):
    settings.REDIS_URL = url
    with pytest.raises(store.StoreUnavailable, match="REDIS_URL"):
        seize()


def test_server_killed_between_two_calls_is_never_an_answer_of_its_own(own_valkey):
    load()
    seize()
    own_valkey.stop(kill=True)
    with pytest.raises((store.StoreUnavailable, store.OutcomeUnknown)):
        seize()
    with pytest.raises(store.StoreUnavailable, match="cannot connect"):
        seize()


def test_acknowledged_coupon_survives_kill_9_and_the_desk_stays_closed_until_a_rebuild(own_valkey):
    load()
    won = seize()
    own_valkey.stop(kill=True)
    own_valkey.start()
    assert store.client().hgetall(seize_keys(ACTIVITY).queue) == {"11:7:1": f"{won.seized_ms}:a1b2c3d4"}
    refused = coupon_seize(wanted=SeizeRequest(activity_id=ACTIVITY, seq=1), user_id=8)
    assert refused.refusal.name == "NOT_READY"


def test_server_that_takes_the_command_and_never_answers_leaves_the_outcome_unknown(settings):
    """Also: the call is sent once. redis-py's own retries would run the script a second time.

    On a slow machine the greeting is late as well: then with more patience, until it comes to the call.
    """
    for timeout_s in (0.3, 3, 30, 300):
        heard = heard_of_a_call_never_answered(settings, timeout_s=timeout_s)
        if heard is not None:
            break
    assert heard.count(b"EVALSHA") == 1


def heard_of_a_call_never_answered(settings, *, timeout_s: float) -> bytes | None:
    """What the server heard; None when not even the greeting was answered in time."""
    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []

    def serve() -> None:
        connection, _address = listener.accept()
        with connection:
            while chunk := connection.recv(65536):
                heard.append(chunk)
                # Answer the handshake, not the script.
                if b"EVALSHA" not in chunk:
                    connection.sendall(b"+OK\r\n" * chunk.count(b"\r\n$6\r\nCLIENT\r\n"))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    settings.REDIS_URL = f"redis://127.0.0.1:{listener.getsockname()[1]}/0?protocol=2"
    settings.REDIS_TIMEOUT_S = timeout_s
    try:
        with pytest.raises(store.OutcomeUnknown):
            seize()
    except store.StoreUnavailable:
        assert b"EVALSHA" not in b"".join(heard)
        return None
    finally:
        listener.close()
        store.client().close()
        thread.join(PATIENCE_S)
    return b"".join(heard)


def test_read_only_server_refuses_and_nothing_happened(own_valkey):
    load()
    client = store.client()
    before = client.hgetall(seize_keys(ACTIVITY).stock)
    client.replicaof("127.0.0.1", str(port_pick()))
    with pytest.raises(store.StoreUnavailable, match=r"(?i)read ?only"):
        seize()
    client.replicaof("NO", "ONE")
    assert client.hgetall(seize_keys(ACTIVITY).stock) == before


def test_all_connections_in_use_is_busy_and_nothing_happened(own_valkey, settings):
    settings.REDIS_POOL_SIZE = 1
    settings.REDIS_URL = own_valkey.url + "?client_name=small"
    load()
    store.client().connection_pool.timeout = 0.2
    held = store.client().connection_pool.get_connection()
    try:
        with pytest.raises(store.StoreBusy):
            seize()
    finally:
        store.client().connection_pool.release(held)
    assert seize().seq == 1


def test_p09_embedded_valkey_never_evicts_and_has_every_write_on_disk_before_it_answers(raw):
    settings_of_server = raw.config_get("appendonly", "appendfsync", "maxmemory-policy")
    assert settings_of_server == {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
