"""The API for services as its document says it is: thousands of requests made up from the document, good and bad.

A module of its own, so that it runs beside the shopper's.
"""

import pytest

from activities.models import Redemption
from couponsite.schema import Generator
from tests.api.trying import api_try, document_operations

pytestmark = pytest.mark.django_db(transaction=True)


def test_service_gets_what_the_document_says_whatever_is_asked(server, service_key, redeemable):
    paths = "^/market/inner/"
    tried = api_try(
        name="service", authorization=f"Api-Key {service_key}", paths=paths, port=server.port, max_examples=300
    )
    assert tried.exit_code == 0, tried.output
    assert tried.cases >= 2000
    operations = document_operations(Generator().get_schema(public=True), paths)
    assert [name for name in operations if not tried.succeeded(name)] == []
    entries = list(Redemption.objects.values_list("coupon_id", "turn", "entry"))
    assert len(entries) == len(set(entries)) > 0
