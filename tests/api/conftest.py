"""A product with something of everything, served."""

from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from activities import ready, services
from couponsite.asgi import front
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.factories import drain, offer, percent_terms, shards_declare_loaded
from tests.seize.servers import Counted, served

USERNAME, PASSWORD = "shopper", "a-long-password"  # those of the document's example


@pytest.fixture
def shopper(transactional_db, settings):
    """A user who may log in; checking the password costs no tenth of a second here."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    return get_user_model().objects.create_user(USERNAME, password=PASSWORD)


@pytest.fixture
def on_offer(shopper):
    """Activities in every state, one a state, with the small ids that generated data likes; the shopper has coupons."""
    now = timezone.now()
    plenty = {"stock_total": 1_000_000, "per_user_limit": 100}
    running = [offer(id=12, name="满100减20", **plenty), offer(id=1, **plenty, **percent_terms())]
    offer(id=2, starts_at=now + timedelta(hours=1), ends_at=now + timedelta(hours=2))
    offer(id=3)
    services.activity_pause(activity_id=3, now=now)
    offer(id=4)
    services.activity_void(activity_id=4, reason="a mistake", now=now)
    offer(id=5, starts_at=now - timedelta(hours=2), ends_at=now - timedelta(hours=1))
    offer(id=6, stock_total=1)
    coupon_seize(wanted=SeizeRequest(activity_id=6, seq=1), user_id=shopper.pk + 1)
    for activity in running:
        coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=shopper.pk)
        drain(activity)
        coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=2), user_id=shopper.pk)
    shards_declare_loaded()
    return running


@pytest.fixture
def server(on_offer, settings, monkeypatch):
    """The product behind its own protocol, as production serves it."""
    settings.LIST_CACHE_S = 1.0
    monkeypatch.setattr(ready, "_cache", ready._Cache())
    made = front()
    with served(Counted(made.shortcuts, made.django), kind="protocol") as running:
        yield running
