"""The web server: uvicorn with uvloop, httptools and the shortcuts. ``python -m couponsite.serve --port 8000``.

Any ASGI server can run ``couponsite.asgi:application``; under this one the shortcuts cost half.
"""

import argparse

import uvicorn

from seize.protocol import ShortcutProtocol

BACKLOG = 4096  # a crowd connects in one second; the kernel caps it at net.core.somaxconn


def main() -> None:
    """Serve until SIGTERM or Ctrl-C; what was accepted is answered first."""
    parser = argparse.ArgumentParser(prog="python -m couponsite.serve", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    options = parser.parse_args()
    uvicorn.run(
        "couponsite.asgi:application",
        host=options.host,
        port=options.port,
        workers=options.workers,
        http=ShortcutProtocol,
        loop="uvloop",
        ws="none",
        interface="asgi3",
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=65,  # longer than the usual 60 s of a load balancer, which must be the one to hang up
        timeout_graceful_shutdown=10,
        # A process that hangs is replaced; on a machine that is merely busy a live one may be silent for seconds.
        timeout_worker_healthcheck=10,
        access_log=False,
        log_level="warning",
        # Whose X-Forwarded-Proto to trust is Django's setting BEHIND_PROXY.
        proxy_headers=False,
        server_header=False,
    )


if __name__ == "__main__":
    main()
