"""The API as its document says it is: thousands of requests made up from the document, good ones and bad ones.

They cover its examples, the edges of its schemas, chance, and walks along its links. Every answer must be one that the
document describes, with its headers; good data must be accepted, bad data refused, and nothing may be a 5xx.
"""

import pytest

from couponsite.schema import Generator
from seize.tokens import access_token_issue
from tests.api.trying import api_try, document_operations

pytestmark = pytest.mark.django_db(transaction=True)


def test_shopper_gets_what_the_document_says_whatever_is_asked(server, shopper):
    paths = "^/market/(consumer|auth)/"
    tried = api_try(
        name="shopper",
        authorization=f"Bearer {access_token_issue(user_id=shopper.pk, lifetime_s=86_400)}",
        paths=paths,
        port=server.port,
        max_examples=700,
    )
    assert tried.exit_code == 0, tried.output
    assert tried.cases >= 5000
    operations = document_operations(Generator().get_schema(public=True), paths)
    assert [name for name in operations if not tried.succeeded(name)] == []
