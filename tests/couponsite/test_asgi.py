"""Django's threads behind the gate: whoever waits for the ledger takes none from what needs no ledger."""

import socket
import threading
from collections.abc import Iterator

import pytest
from django.db import OperationalError
from services import PATIENCE_S, wait_until

from centre.sessions import SESSION
from couponsite import asgi
from seize.tokens import access_token_issue, token_issue
from tests.factories import offer
from tests.seize.servers import Counted, ask, raw_request, read_reply, served

pytestmark = pytest.mark.django_db(transaction=True)
MY = "/market/consumer/coupon/my"
WITHOUT_LEDGER = [
    ("GET", "/"), ("GET", "/activity/{id}"), ("GET", "/activity/0"), ("POST", "/session/token"), ("GET", "/account"),
    ("GET", "/language/en"), ("GET", "/static/favicon.svg"), ("GET", "/static/gone"), ("POST", "/logout"),
    ("GET", "/market/consumer/activity/list?tab=gone"), ("HEAD", "/market/consumer/activity/list"),
    ("HEAD", "/market/consumer/activity/{id}"), ("GET", "/market/consumer/activity/{id}/challenge"),
    ("PUT", "/market/consumer/coupon/seize"),
]  # fmt: skip


@pytest.fixture
def opened() -> Iterator[threading.Event]:
    """What hangs goes on once this is set: at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("asked", [2, 3])  # every thread, and one who waits for them
def test_ledger_that_hangs_stops_nothing_that_needs_none(settings, monkeypatch, opened, asked):
    settings.WEB_THREADS, settings.WEB_WAITING_MAX = 2, 1
    activity = offer()

    def hangs(**_given):
        assert opened.wait(PATIENCE_S)
        raise OperationalError(2013, "Lost connection to server during query")

    monkeypatch.setattr("activities.views.wallet_page", hangs)
    made = asgi.front()
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server:
        mine = (("Host", "localhost"), ("Authorization", f"Bearer {access_token_issue(user_id=7, lifetime_s=86_400)}"))
        connections = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) for _ in range(asked)]
        for connection in connections:
            connection.sendall(raw_request("GET", MY, headers=mine))
        wait_until(lambda: made.django.ledger.running == asked, what="every thread waits for MySQL")
        cookie = f"shopper={token_issue(kind=SESSION, user_id=7, lifetime_s=86_400)}"
        known = (("Host", "localhost"), ("Cookie", cookie), ("Content-Length", "0"))
        statuses = {
            (method, path): ask(
                server.port, raw_request(method, path.format(id=activity.pk), headers=known), method=method
            ).status
            for method, path in WITHOUT_LEDGER
        }
        assert made.django.ledger.running == asked, "all this was answered while they hang"
        assert sorted(set(statuses.values())) == [200, 302, 400, 401, 403, 404], statuses
        assert statuses["GET", "/"] == statuses["POST", "/session/token"] == 200
        opened.set()
        assert [read_reply(connection, "GET").status for connection in connections] == [503] * asked
        for connection in connections:
            connection.close()


def test_back_office_that_hangs_leaves_half_of_the_threads_to_claims_and_checkout(settings, monkeypatch, opened):
    settings.WEB_THREADS, settings.WEB_WAITING_MAX = 2, 8
    activity = offer()

    def hangs(*_args, **_given):
        assert opened.wait(PATIENCE_S)
        raise OperationalError(2013, "Lost connection to server during query")

    monkeypatch.setattr("django.contrib.admin.sites.AdminSite.has_permission", hangs)
    made = asgi.front()
    with served(Counted(made.shortcuts, made.django), kind="protocol") as server:
        office = (("Host", "localhost"), ("Accept-Language", "en"))
        connections = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) for _ in range(4)]
        for connection in connections:
            connection.sendall(raw_request("GET", "/admin/", headers=office))
        wait_until(lambda: made.django.office.running == 4, what="the back office is at work")
        mine = (("Host", "localhost"), ("Authorization", f"Bearer {access_token_issue(user_id=7, lifetime_s=86_400)}"))
        claim = f"/market/consumer/activity/{activity.pk}/claim"
        answers = [ask(server.port, raw_request("GET", path, headers=mine), method="GET") for path in (claim, MY) * 3]
        assert [answer.status for answer in answers] == [200] * 6
        assert made.django.office.running == 4, "all this was answered while they hang"
        opened.set()
        assert [read_reply(connection, "GET").status for connection in connections] == [500] * 4
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(("method", "path"), WITHOUT_LEDGER)
def test_what_has_threads_of_its_own_costs_no_query(client, django_assert_num_queries, method, path):
    activity = offer()
    client.cookies["shopper"] = token_issue(kind=SESSION, user_id=7, lifetime_s=86_400)
    client.cookies["sessionid"] = "x" * 32  # of somebody in the back office as well
    path = path.format(id=activity.pk)
    assert asgi._WITHOUT_LEDGER.fullmatch(path.partition("?")[0])
    with django_assert_num_queries(0):
        client.generic(method, path).close()


def test_press_by_the_view_costs_no_query(client, django_assert_num_queries):
    activity = offer()
    pressed = {"id": str(activity.pk), "seq": 1}
    token = access_token_issue(user_id=7, lifetime_s=86_400)
    with django_assert_num_queries(0):
        answer = client.post(
            "/market/consumer/coupon/seize",
            pressed,
            content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {token}",
        )
    assert answer.status_code == 201


@pytest.mark.parametrize(
    "path", ["/login", "/coupons", "/admin/", MY, "/market/consumer/coupon/1", "/market/inner/coupon/redeem",
             "/market/consumer/activity/1/claim", "/market/auth/token"],
)  # fmt: skip
def test_what_may_wait_for_the_ledger_takes_no_thread_from_what_does_not(path):
    assert not asgi._WITHOUT_LEDGER.fullmatch(path)
