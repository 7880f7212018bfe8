"""The sale of the HTTP measurements: loaded into Redis without a database, its shoppers' tokens, and what it sold.

Plain redis-py and the product's Lua files, no Django: what is measured are other processes.
"""

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import redis

from bench.stage import FOLDER, ROOT
from seize.keys import marker_key, seize_keys, shard_of

SEIZE_LUA = ROOT / "seize" / "lua" / "seize.lua"
SECRET = "benchmark-only-secret-0123456789-abcdefghijklmnopqrstuvwxyz"
ACTIVITY_ID = 700_001  # alone in its shard: the activities of the read mixes lie in others
FIRST_USER = 10_000_000  # as many digits for every shopper, so that all tokens are equally long
STOCK = 50_000_000


class Sold(NamedTuple):
    """What a sale has given out, by each of the three places that know."""

    taken: int
    holders: int
    queued: int


class Sale:
    """One activity in one Redis."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self.keys = seize_keys(ACTIVITY_ID)
        self.stock = 0

    def open(self, *, stock: int, access: str = "") -> None:
        """Begin anew: nobody holds anything, ``stock`` coupons are there. ``access``: JSON, as the rules have it."""
        keys = self.keys
        self.stock = stock
        self.client.delete(*keys)
        now_ms = int(time.time() * 1000)
        rules = ("bench", 1, 1, "open", now_ms - 60_000, now_ms + 7_200_000, 1, stock, access)
        self._script("rebuild_begin", [keys.rules], ["token", 60_000])
        self._script("rebuild_holders", [keys.rules, keys.holders], ["token", 60_000, 1])
        done = self._script("rebuild_finish", [keys.rules, keys.stock, keys.holders], ["token", ACTIVITY_ID, *rules, 0])
        assert done, "the sale could not be opened"
        marker = marker_key(shard_of(ACTIVITY_ID))
        self.client.hset(marker, "token", "bench")
        assert self._script("shard_loaded", [marker], ["bench"]), "the shard could not be declared loaded"
        self._shorten_log()

    def close(self) -> None:
        """Leave nothing sold behind; the queue of a run is some tens of megabytes."""
        self.client.delete(self.keys.holders, self.keys.queue)

    def hand_out(self, users: int) -> None:
        """Let the first shoppers win, without HTTP."""
        script = self.client.register_script(SEIZE_LUA.read_text())
        for first in range(0, users, 250):
            triples = [(FIRST_USER + number, 1, 0) for number in range(first, min(first + 250, users))]
            words = (word for triple in triples for word in triple)
            script(keys=self.keys, args=[ACTIVITY_ID, 0, *words])
        assert self.sold().holders == users

    def sold(self) -> Sold:
        """What is sold now."""
        left = self.client.hget(self.keys.stock, str(ACTIVITY_ID))
        holders, queued = self.client.hlen(self.keys.holders), self.client.hlen(self.keys.queue)
        return Sold(self.stock - int(left or 0), holders - 1, queued)  # one field is the epoch

    def settled(self) -> Sold:
        """What is sold once the calls that were under way have ended.

        :raises AssertionError: when it goes on for five seconds.
        """
        before, deadline = self.sold(), time.monotonic() + 5
        while time.monotonic() < deadline:
            time.sleep(0.1)
            if (now := self.sold()) == before:
                return now
            before = now
        raise AssertionError("coupons are being sold although nobody asks")

    def _script(self, name: str, keys: list[str], arguments: list[Any]) -> Any:
        script = self.client.register_script((ROOT / "seize" / "lua" / f"{name}.lua").read_text())
        return script(keys=keys, args=arguments)

    def _shorten_log(self) -> None:
        """Rewrite the append-only file between runs: Redis does not do so by itself here, amid a measurement."""
        deadline = time.monotonic() + 30
        self.client.bgrewriteaof()
        while self.client.info("persistence")["aof_rewrite_in_progress"]:
            assert time.monotonic() < deadline, "rewriting the append-only file takes too long"
            time.sleep(0.02)


# -- Tokens -------------------------------------------------------------------------------------------


def token_sign(user_id: int, *, expires_s: int, token_type: str = "access", secret: str = SECRET) -> str:
    """An HS256 token as our log-in issues it."""
    claims = {"token_type": token_type, "user_id": str(user_id), "iat": expires_s - 86_400, "exp": expires_s}
    head, payload = (
        _base64url(json.dumps(part, separators=(",", ":")).encode())
        for part in ({"alg": "HS256", "typ": "JWT"}, claims)
    )
    signed = head + b"." + payload
    return (signed + b"." + _base64url(hmac.digest(secret.encode(), signed, "sha256"))).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class Tokens:
    """A file of equally long tokens without separators: shopper ``FIRST_USER + n`` is the n-th record."""

    def __init__(self, count: int, *, path: Path | None = None) -> None:
        """Write the file anew, valid for a day."""
        self.path = path or FOLDER / "tokens"
        self.count = count
        expires_s = int(time.time()) + 86_400
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.width = len(token_sign(FIRST_USER, expires_s=expires_s))
        with self.path.open("w") as file:
            for user_id in range(FIRST_USER, FIRST_USER + count):
                file.write(token_sign(user_id, expires_s=expires_s))
        assert self.path.stat().st_size == count * self.width


def script_sha() -> str:
    """The name that Redis gives ``seize.lua``."""
    return hashlib.sha1(SEIZE_LUA.read_bytes()).hexdigest()
