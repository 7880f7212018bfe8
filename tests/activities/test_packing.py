"""A gzip stream with a head of its own in front of a tail that was compressed before."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.packing import MIN_BYTES, packed, tail_pack, takes_gzip


@given(head=st.binary(max_size=100), tail=st.binary(min_size=MIN_BYTES, max_size=3 * MIN_BYTES))
def test_stream_is_one_and_gives_back_head_and_tail(head, tail):
    tail_packed = tail_pack(tail)
    assert tail_packed is not None
    assert gzip.decompress(packed(head=head, tail=tail, tail_packed=tail_packed)) == head + tail


def test_short_tail_stays_as_it_is():
    assert tail_pack(b"x" * (MIN_BYTES - 1)) is None
    assert tail_pack(b"x" * MIN_BYTES) is not None


@pytest.mark.parametrize(
    ("accept_encoding", "takes"),
    [
        ("gzip", True), ("br, gzip", True), ("GZip;q=0.1", True), ("gzip; q=1.0", True), ("gzip;q=0", False),
        ("gzip ; q = 0.000", False), ("x-gzip", False), ("gzipped", False), ("*", False), ("", False),
    ],
)  # fmt: skip
def test_gzip_is_for_those_who_name_it(accept_encoding, takes):
    assert takes_gzip(accept_encoding) is takes
