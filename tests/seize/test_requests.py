import pytest
from django.http import QueryDict

from seize.requests import (
    RequestInvalid,
    RequestTooLarge,
    SeizeRequest,
    id_parse,
    query_parse,
    seize_request_parse,
)


@pytest.mark.parametrize(
    ("body", "activity_id", "seq"),
    [
        (b'{"id": "12"}', 12, 0),
        (b'{"id": 12}', 12, 0),
        (b'{"id": "12", "seq": 1}', 12, 1),
        (b' {"seq":3,"id":"12"}\n', 12, 3),
        (b'{"id": "9223372036854775807"}', 2**63 - 1, 0),
        (b'{"id": 9223372036854775807}', 2**63 - 1, 0),
        (b'{"id": 1, "seq": 1000000}', 1, 1_000_000),
    ],
)
def test_valid_bodies(body, activity_id, seq):
    assert seize_request_parse(body) == SeizeRequest(activity_id=activity_id, seq=seq)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"12",
        b"null",
        b"[]",
        b'"12"',
        b"{",
        b"{}",
        b'{"seq": 1}',
        b'{"id": null}',
        b'{"id": true}',
        b'{"id": 1.0}',
        b'{"id": 1e3}',
        b'{"id": "1.0"}',
        b'{"id": 0}',
        b'{"id": -1}',
        b'{"id": "0"}',
        b'{"id": "-1"}',
        b'{"id": "+1"}',
        b'{"id": "012"}',
        b'{"id": " 12"}',
        b'{"id": "12 "}',
        b'{"id": ""}',
        b'{"id": "abc"}',
        '{"id": "１２"}'.encode(),
        '{"id": "١٢"}'.encode(),
        b'{"id": "9223372036854775808"}',
        b'{"id": 9223372036854775808}',
        b'{"id": 1000000000000000000000000000000}',
        b'{"id": "12345678901234567890"}',
        b'{"id": [12]}',
        b'{"id": {"id": 12}}',
        b'{"id": "12", "seq": 0}',
        b'{"id": "12", "seq": -1}',
        b'{"id": "12", "seq": "1"}',
        b'{"id": "12", "seq": 1.0}',
        b'{"id": "12", "seq": true}',
        b'{"id": "12", "seq": null}',
        b'{"id": "12", "seq": 1000001}',
        b'{"id": "12", "user_id": 7}',
        b'{"id": "12", "userId": 7}',
        b'{"id": "12", "extra": null}',
        b'\xff{"id": "12"}',
        b'{"id": "12"} {"id": "13"}',
        b'{"id": NaN}',
    ],
)
def test_everything_else_is_refused_with_a_sentence(body):
    with pytest.raises(RequestInvalid) as refused:
        seize_request_parse(body)
    assert str(refused.value).endswith(".")
    assert len(str(refused.value)) > 20


def test_body_above_one_kilobyte_is_too_large_even_when_valid():
    padding = b" " * 1024
    with pytest.raises(RequestTooLarge):
        seize_request_parse(b'{"id": "12"}' + padding)


def test_p17_body_that_names_a_user_says_which_field_is_wrong():
    with pytest.raises(RequestInvalid, match="user_id"):
        seize_request_parse(b'{"id": "12", "user_id": 7}')


@pytest.mark.parametrize("value", [True, 7.0, None, b"7", "", "07", "7\n", 0, -7, 2**63, [7]])
def test_id_parse_takes_canonical_ids_only(value):
    assert id_parse(value) is None


@pytest.mark.parametrize(
    ("query", "parsed"),
    [("", {}), ("tab=a", {"tab": "a"}), ("tab=", {"tab": ""}), ("cursor=b&tab=a", {"tab": "a", "cursor": "b"})],
)
def test_known_parameters_are_taken_once_each(query, parsed):
    assert query_parse(QueryDict(query), allowed=("tab", "cursor")) == parsed


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("tabb=a", "Unknown parameter 'tabb': only 'tab', 'cursor' can be given here."),
        ("tab=a&x=", "Unknown parameter 'x'"),
        ("tab=a&tab=a", "'tab' must be given once."),
        ("Tab=a", "Unknown parameter 'Tab'"),
        ("tab%00=a", r"Unknown parameter 'tab\\x00'"),
        ("a" * 100 + "=1", "Unknown parameter '" + "a" * 40 + "'"),
    ],
)
def test_unknown_or_repeated_parameter_is_refused_by_name(query, named):
    with pytest.raises(RequestInvalid, match=named):
        query_parse(QueryDict(query), allowed=("tab", "cursor"))


def test_route_without_parameters_says_that_there_are_none():
    with pytest.raises(RequestInvalid, match="Unknown parameter 'a': none can be given here"):
        query_parse(QueryDict("a=b"))
