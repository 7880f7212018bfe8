"""One gzip stream of two parts: a head that differs in each answer, and a tail that is compressed once for many.

Streams behind one another would be valid gzip as well, but browsers stop at the end of the first.
"""

import functools
import re
import struct
import zlib

MIN_BYTES = 1_000  # what fits into a packet as it is gains nothing
_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no name, no time, unknown system
_LEVEL = 6
_REFUSED = re.compile(r";\s*q\s*=\s*0(\.0*)?\s*$")


def tail_pack(tail: bytes) -> bytes | None:
    """The tail as deflate blocks that refer to nothing before them; None where it is too short to gain by it."""
    if len(tail) < MIN_BYTES:
        return None
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflate.compress(tail) + deflate.flush()


def packed(*, head: bytes, tail: bytes, tail_packed: bytes) -> bytes:
    """Head and tail as one gzip stream: the head, of less than 64 KiB, stored as it is, the tail as it was packed."""
    stored = struct.pack("<BHH", 0, len(head), len(head) ^ 0xFFFF)
    checked = struct.pack("<II", zlib.crc32(tail, zlib.crc32(head)), (len(head) + len(tail)) & 0xFFFFFFFF)
    return b"".join((_HEADER, stored, head, tail_packed, checked))


@functools.lru_cache(maxsize=256)
def takes_gzip(accept_encoding: str) -> bool:
    """Whether a request's ``Accept-Encoding`` names gzip and does not refuse it (RFC 9110, 12.5.3)."""
    for part in accept_encoding.lower().split(","):
        if part.partition(";")[0].strip() == "gzip":
            return _REFUSED.search(part) is None
    return False
