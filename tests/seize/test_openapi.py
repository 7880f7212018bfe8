"""The words in which operations describe themselves."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seize.openapi import ID, ID_GIVEN, MOMENT, operation, plain, problem_answers, problem_headers
from seize.problems import CONTENT_TYPE
from seize.requests import ID_MAX, id_parse


@given(st.one_of(st.integers(0, 2**64).map(str), st.integers(ID_MAX - 10**6, ID_MAX + 10**6).map(str), st.text("0129")))
def test_pattern_of_an_id_takes_exactly_what_the_parser_takes(text):
    pattern = ID_GIVEN["oneOf"][0]["pattern"]
    assert (re.search(pattern, text) is not None) is (id_parse(text) is not None)


def test_codes_of_one_status_are_one_response_with_the_members_that_they_have():
    problems = {"SOLD_OUT": {"activity_id": ID}, "NOT_STARTED": {"activity_id": ID, "starts_at": MOMENT}, "ENDED": {}}
    answers = problem_answers(problems)
    assert list(answers) == [(409, CONTENT_TYPE), (410, CONTENT_TYPE)]
    own = answers[409, CONTENT_TYPE].response["allOf"][1]
    assert own["properties"]["code"]["enum"] == ["SOLD_OUT", "NOT_STARTED"]
    assert own["required"] == ["activity_id"]
    assert own["properties"]["starts_at"]["description"] == "With `NOT_STARTED` only."
    examples = [example.value for example in answers[409, CONTENT_TYPE].examples]
    assert [example["code"] for example in examples] == ["SOLD_OUT", "NOT_STARTED"]
    assert examples[0]["title"] == "All coupons of this activity are gone."


def test_member_that_is_there_at_times_is_described_and_not_required():
    [answer] = problem_answers({"NOT_READY": {"activity_id?": ID}}).values()
    own = answer.response["allOf"][1]
    assert own["properties"]["activity_id"] == ID
    assert "required" not in own


def test_retry_after_is_required_where_every_code_has_it():
    headers = problem_headers(plain("SOLD_OUT", "PAUSED", "BUSY", "NOT_READY", "ENDED"))
    assert headers["409"]["Retry-After"]["required"] is False
    assert headers["409"]["Retry-After"]["description"].endswith("With `PAUSED` only.")
    assert headers["503"]["Retry-After"] == {"$ref": "#/components/headers/RetryAfter"}
    assert "Retry-After" not in headers["410"]


def test_code_that_is_not_in_the_catalogue_is_found_when_the_view_is_imported():
    with pytest.raises(KeyError, match="SOLDOUT"):
        operation("x", tag="shopper", summary="X", description="X.", answers={}, problems=plain("SOLDOUT"))
