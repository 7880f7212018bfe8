"""The load of the section ``checkout`` and what it makes of its samples."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench import report
from bench.checkout import MIXES, Request, load, percentile, summary, wire
from bench.contract import AnswersWrongly

ROW = {"rps": 400.0, "p50_ms": 10.0, "p99_ms": 30.0, "web_cpu_us": 3000.0, "database_cpu_us": 600.0}


@contextmanager
def served(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers every request of a connection so, a byte at a time; its port, and what it was asked."""
    asked: list[bytes] = []

    def serve(one: socket.socket) -> None:
        with one:
            while data := one.recv(65536):
                asked.append(data)
                for byte in answer:
                    one.send(bytes([byte]))
                if not answer:
                    return

    def accept() -> None:
        while True:
            try:
                one, _address = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(one,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], asked
        listener.shutdown(socket.SHUT_RDWR)


def test_request_is_what_a_server_expects():
    assert wire("GET", "/my?status=unused", "Bearer x") == (
        b"GET /my?status=unused HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer x\r\n\r\n"
    )
    assert wire("POST", "/redeem", "Api-Key k", {"order_id": "1-2"}) == (
        b"POST /redeem HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Api-Key k\r\nContent-Type: application/json\r\n"
        b'Content-Length: 19\r\n\r\n{"order_id": "1-2"}'
    )


def test_every_request_is_sent_once_and_timed_over_all_connections():
    requests = [Request(wire("GET", f"/{number}", "x"), 201) for number in range(40)]
    with served(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}") as (port, asked):
        latencies_s = load(requests, port=port, connections=4)
    assert sorted(asked) == sorted(request.wire for request in requests)
    assert len(latencies_s) == 40
    assert min(latencies_s) > 0


def test_answer_that_is_another_one_ends_the_load_and_is_told():
    requests = [Request(wire("GET", f"/{number}", "x"), 201) for number in range(40)]
    with (
        served(b"HTTP/1.1 409 Conflict\r\ncontent-length: 11\r\n\r\nORDER_TAKEN") as (port, asked),
        pytest.raises(AnswersWrongly, match=r"GET /\d+: 409 instead of 201: b'ORDER_TAKEN'"),
    ):
        load(requests, port=port, connections=2)
    assert len(asked) <= 4


def test_answer_that_never_comes_is_told():
    with served(b"") as (port, _asked), pytest.raises(AnswersWrongly, match="the server hung up"):
        load([Request(wire("GET", "/", "x"), 200)], port=port, connections=1)


@pytest.mark.parametrize(("percent", "expected"), [(1, 1), (50, 50), (99, 99), (100, 100)])
def test_percentile_is_what_so_many_do_not_exceed(percent, expected):
    assert percentile(list(range(100, 0, -1)), percent) == expected
    assert percentile([7.0], percent) == 7.0


def test_summary_has_medians_and_the_ratios_of_the_large_ledger_to_the_small_one():
    small = [{**ROW, "p50_ms": value} for value in (10.0, 90.0, 11.0)]
    big = [{**ROW, "p50_ms": value, "rps": 300.0} for value in (22.0, 1.0, 33.0)]
    assert summary({"my": {1_000_000: big, 10_000: small}}) == {
        "my": {"10,000": {**ROW, "p50_ms": 11.0}, "1,000,000": {**ROW, "p50_ms": 22.0, "rps": 300.0}},
        "ratio": {
            "my": {
                "rps_ratio": 0.75,
                "p50_ms_ratio": 2.0,
                "p99_ms_ratio": 1.0,
                "web_cpu_us_ratio": 1.0,
                "database_cpu_us_ratio": 1.0,
            }
        },
    }


def test_figure_of_nothing_has_no_ratio():
    row = {**ROW, "database_cpu_us": 0.0}
    assert "database_cpu_us_ratio" not in summary({"my": {10: [row], 20: [ROW]}})["ratio"]["my"]


def test_report_has_a_table_for_each_mix_and_one_of_the_ratios():
    figures = summary({mix: {10_000: [ROW], 1_000_000: [{**ROW, "rps": 380.0}]} for mix in MIXES})
    lines = list(report.section_lines("checkout", figures))
    assert lines[0].startswith("\ncheckout: wallet and checkout over HTTP")
    assert [line for line in lines if line.startswith("\n[")] == [f"\n[{name}]" for name in (*MIXES, "ratio")]
    head, small, big = lines[lines.index("\n[redeem]") + 1 :][:3]
    assert [column in head for column in ("requests/s", "p50 ms", "p99 ms", "MariaDB CPU µs")] == [True] * 4
    assert small.split() == ["10,000", "400", "1.00", "10.0", "30.0", "3,000", "600"]
    assert big.split() == ["1,000,000", "380", "0.95", "10.0", "30.0", "3,000", "600"]
    assert lines[lines.index("\n[ratio]") + 2].split()[:2] == ["my", "0.95"]
