"""A product with something of everything, served."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone
from services import PATIENCE_S

from activities import ready, services
from activities.api_keys import api_key_make
from activities.audit import Actor
from activities.checkout import coupon_redeem, coupon_roll_back
from activities.models import Activity
from couponsite.asgi import front
from couponsite.schema import document
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.factories import drain, issued, offer, percent_terms, shards_declare_loaded
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
    plenty = {
        "stock_total": 1_000_000,
        "per_user_limit": 100,
        "asks_max": None,
        "ends_at": now + timedelta(days=1),  # later than the longest run ends
    }
    challenged = {"challenge": "PRESSURE", "pressure_min": 100_000}  # gives challenges out, and never needs one
    running = [offer(id=12, name="满100减20", **plenty, **challenged), offer(id=1, **plenty, **percent_terms())]
    offer(id=2, starts_at=now + timedelta(days=1), ends_at=now + timedelta(days=2), asks_max=None)
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
    issued(running[0], user_id=shopper.pk, seq=100, id=12)  # the id of the document's examples
    shards_declare_loaded()
    return running


@pytest.fixture
def server(on_offer, settings, monkeypatch):
    """The product behind its own protocol, as production serves it."""
    settings.LIST_CACHE_S = 1.0
    settings.LIMIT_SHOPPER = ""  # one shopper asks thousands of times
    settings.WEB_BODY_TIMEOUT_S = float(PATIENCE_S)
    document(format="json")  # made once a process: whoever asks for it is given up on after ten seconds
    monkeypatch.setattr(ready, "_cache", ready._Cache())
    made = front()
    # A connection may lie idle for as long as the next data takes to be made up.
    with served(Counted(made.shortcuts, made.django), kind="protocol", timeout_keep_alive=PATIENCE_S) as running:
        yield running


@pytest.fixture
def redeemable(on_offer):
    """Coupons of shopper 1001, those of the document's examples among them, that an order can use."""
    activity = on_offer[0]
    Activity.objects.filter(pk=activity.pk).update(min_spend=0)
    activity.refresh_from_db()
    coupons = [issued(activity, user_id=1001, seq=seq, id=840 + seq - 1) for seq in range(1, 11)]
    coupon_redeem(
        coupon_id=840,
        user_id=1001,
        order_id="2026-000122",
        order_amount=Decimal(199),
        by=Actor("test"),
        now=timezone.now(),
    )
    coupon_roll_back(coupon_id=840, order_id="2026-000122", reason="test", by=Actor("test"), now=timezone.now())
    return coupons


@pytest.fixture
def service_key(transactional_db) -> str:
    """A key that may do everything."""
    return api_key_make(name="checkout", scopes=("read", "redeem"), by=Actor("test"), now=timezone.now())[1]
