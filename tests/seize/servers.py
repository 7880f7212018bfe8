"""The three ways in which a request may be answered, each a real server in a thread of the test's process."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from services import PATIENCE_S, port_pick
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from seize.fronts import Front
from seize.protocol import ShortcutProtocol

FRONTS = ("view", "asgi", "protocol")


class Counted(Front):
    """A front that counts what its shortcuts took."""

    taken = 0

    def take(self, *args, **kwargs):
        ticket = super().take(*args, **kwargs)
        self.taken += ticket is not None
        return ticket


@dataclass
class Server:
    """A running server: where it listens, and the front it serves."""

    port: int
    front: Counted
    uvicorn: uvicorn.Server

    def stop(self) -> None:
        """As SIGTERM does."""
        self.uvicorn.should_exit = True


@contextmanager
def served(front: Counted, *, kind: str, **options: object) -> Iterator[Server]:
    """Serve until the end of the block, then stop gracefully."""
    protocol = ShortcutProtocol if kind == "protocol" else HttpToolsProtocol
    config = uvicorn.Config(
        front, host="127.0.0.1", port=port_pick(), http=protocol, loop="uvloop", ws="none", interface="asgi3",
        lifespan="off", access_log=False, log_level="warning", proxy_headers=False, server_header=False,
        **{"timeout_graceful_shutdown": PATIENCE_S, "timeout_keep_alive": PATIENCE_S, **options},
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=_run, args=(server, config, front), daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.01)
        assert thread.is_alive(), "the server never started"
    try:
        yield Server(config.port, front, server)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server never stopped"


def _run(server: uvicorn.Server, config: uvicorn.Config, front: Counted) -> None:
    async def main() -> None:
        await server.serve()
        front.close()
        await asyncio.sleep(0.01)  # for the connections to notice

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(main())


@dataclass(frozen=True)
class Reply:
    """A response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


def raw_request(
    method: str = "POST",
    path: str = "/market/consumer/coupon/seize",
    *,
    body: bytes = b"",
    version: str = "1.1",
    headers: tuple[tuple[str, str], ...] = (),
) -> bytes:
    """A request, header by header, nothing added."""
    lines = [f"{method} {path} HTTP/{version}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def read_reply(connection: socket.socket, method: str = "POST") -> Reply:
    """One response from an open connection."""
    response = http.client.HTTPResponse(connection, method=method)
    response.begin()
    body = response.read()
    return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def ask(port: int, request: bytes, *, method: str = "POST") -> Reply:
    """One request on a connection of its own."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        return read_reply(connection, method)
