"""Limits that a process keeps by itself, and whose address is whose."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from couponsite.asgi import front
from seize import limits
from seize.addresses import address_of, network_of
from seize.limits import Limit, Quota, log_in_failed, log_in_pace, press_pace, visit_pace
from seize.outcomes import Pace
from tests.seize.servers import Counted, ask, served
from tests.seize.stage import load
from tests.seize.test_contract import get, press

CLIENT = "198.51.100.7"


class Clock:
    """A clock that goes when it is told to, µs."""

    now_us = 1_000_000

    def __call__(self) -> int:
        return self.now_us


@given(
    st.integers(1, 40),
    st.integers(1, 20),
    st.lists(st.integers(0, 3_000_000), min_size=1, max_size=300),
)
def test_never_more_than_the_quota_in_any_window_however_one_asks(number, window_s, gaps_us):
    clock = Clock()
    limit = Limit("x", Quota(number, window_s), now_us=clock)
    let_through = []
    for gap_us in gaps_us:
        clock.now_us += gap_us
        if limit.pace("a") is None:
            let_through.append(clock.now_us)
    for first in let_through:
        assert sum(first <= moment < first + window_s * 1_000_000 for moment in let_through) <= number


@given(st.integers(1, 40), st.integers(1, 20), st.lists(st.integers(0, 2_000_000), min_size=1, max_size=100))
def test_whoever_waits_as_long_as_told_is_let_through(number, window_s, gaps_us):
    clock = Clock()
    limit = Limit("x", Quota(number, window_s), now_us=clock)
    for gap_us in gaps_us:
        clock.now_us += gap_us
        if (pace := limit.pace("a")) is not None:
            assert (pace.name, pace.quota, pace.window_ms) == ("x", number, window_s * 1000)
            clock.now_us += pace.wait_ms * 1000
            assert limit.pace("a") is None


def test_one_key_never_costs_another_and_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(limits, "KEYS_MAX", 50)
    limit = Limit("x", Quota(1, 3600), now_us=Clock())
    for key in range(1000):
        assert limit.pace(key) is None
    assert len(limit._due_us) + len(limit._due_before_us) <= 101
    assert limit.pace(999) is not None
    assert limit.pace(0) is None  # forgotten: it has its quota anew


def test_shopper_address_and_site_each_have_a_limit_of_their_own(settings):
    settings.LIMIT_SHOPPER, settings.LIMIT_ADDRESS, settings.LIMIT_SITE = "2/3600", "8/3600", "100/3600"
    settings.WEB_WORKERS = 5
    assert press_pace(user_id=7, address=CLIENT) is None
    assert press_pace(user_id=7, address=CLIENT).name == "shopper"
    assert [press_pace(user_id=user, address=CLIENT) for user in (8, 9, 10)] == [None] * 3
    assert press_pace(user_id=11, address=CLIENT).name == "address"
    assert visit_pace(address=CLIENT).name == "address"
    others = [visit_pace(address=f"203.0.113.{number}") for number in range(1, 20)]
    assert others[:6] == [None] * 6  # a process has a fifth of 100, half at once: 4 are used
    assert others[6] == Pace("site", 20, 3_600_000, others[6].wait_ms)


def test_no_limit_where_none_is_wanted(settings):
    settings.LIMIT_SHOPPER = settings.LIMIT_ADDRESS = settings.LIMIT_SITE = settings.LIMIT_LOG_IN = ""
    assert {press_pace(user_id=7, address=CLIENT) for _ask in range(2000)} == {None}
    assert {log_in_pace(address=CLIENT) for _ask in range(2000)} == {None}


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("198.51.100.7:4711", "198.51.100.7"),
        ("[2001:db8:1:2::9]:443", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]", "2001:db8:1:2::/64"),
        ("127.0.0.1", None),
        ("::1", None),
        ("", None),
        ("unknown", None),
    ],
)
def test_client_is_an_ipv4_address_or_the_64_of_an_ipv6_one(address, network):
    assert network_of(address) == network


PROXIES = ["10.0.0.0/8", "2001:db8::/32"]


@pytest.mark.parametrize(
    ("behind", "proxies", "peer", "forwarded", "address"),
    [
        (False, [], "192.0.2.1", CLIENT, "192.0.2.1"),  # nobody is believed
        (True, [], "192.0.2.1", f"1.1.1.1, {CLIENT}", CLIENT),  # one proxy, whoever it is
        (True, [], "192.0.2.1", "", "192.0.2.1"),
        (False, PROXIES, "10.0.0.1", CLIENT, CLIENT),
        (True, PROXIES, "10.0.0.1", f"1.1.1.1, {CLIENT}, 10.9.9.9", CLIENT),  # two proxies of ours
        (True, PROXIES, "192.0.2.1", CLIENT, "192.0.2.1"),  # who came past the proxies
        (True, PROXIES, "", f"{CLIENT},2001:db8::1", CLIENT),  # a proxy on this host, by a Unix socket
        (True, PROXIES, "10.0.0.1", "10.0.0.2, 10.0.0.3", "10.0.0.1"),  # nobody but proxies
        (True, PROXIES, "::ffff:10.0.0.1", CLIENT, CLIENT),
        (True, PROXIES, "10.0.0.1", f"{CLIENT}, rubbish", "rubbish"),  # our proxy saw this; it is nobody's quota
        (True, PROXIES, "10.0.0.1", ", ,", "10.0.0.1"),
    ],
)
def test_address_is_the_first_that_no_proxy_of_ours_is(settings, behind, proxies, peer, forwarded, address):
    settings.BEHIND_PROXY, settings.TRUSTED_PROXIES = behind, proxies
    assert address_of(peer=peer, forwarded=forwarded) == address


# -- By HTTP ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["asgi", "protocol"])
def site(request, settings, db):
    settings.BEHIND_PROXY = True
    settings.LIMIT_ADDRESS, settings.LIMIT_SHOPPER = "4/3600", "2/3600"
    made = front()
    with served(Counted(made.shortcuts, made.django), kind=request.param) as server:
        yield server


def code(reply) -> str:
    return json.loads(reply.body)["code"]


def test_every_route_in_front_of_django_and_behind_shares_the_clients_limit(site):
    load()
    told = [
        ask(site.port, get(path, X_Forwarded_For=f"6.6.6.6, {CLIENT}"), method="GET")
        for path in ("/market/consumer/activity/list", "/account", "/market/consumer/activity/list", "/account")
    ]
    assert [reply.status for reply in told[2:]] == [429, 429]
    for reply in told[2:]:
        assert code(reply) == "TOO_MANY_REQUESTS"
        assert reply.headers["ratelimit-policy"] == '"address";q=4;w=3600'
        assert reply.headers["ratelimit"].startswith('"address";r=0;t=')
        assert int(reply.headers["retry-after"]) >= int(reply.headers["ratelimit"].rpartition("=")[2])
    assert ask(site.port, get("/account", X_Forwarded_For="198.51.100.8"), method="GET").status == 302
    for probe in ("/livez", "/readyz"):  # whoever watches over the process must see it
        assert ask(site.port, get(probe, X_Forwarded_For=CLIENT), method="GET").status in (200, 503)


def test_winner_beyond_every_limit_is_told_of_the_win(site):
    load()
    assert ask(site.port, press(X_Forwarded_For=CLIENT)).status == 201
    assert [ask(site.port, press(X_Forwarded_For=CLIENT)).status for _ask in range(20)] == [200] * 20
    cookie = {"Cookie": "django_language=en"}  # such a press is Django's
    assert [ask(site.port, press(X_Forwarded_For=CLIENT, **cookie)).status for _ask in range(5)] == [200] * 5
    refused = ask(site.port, press(b'{"id":"11"}', X_Forwarded_For=CLIENT))
    assert (refused.status, code(refused)) == (429, "TOO_MANY_REQUESTS")
    assert refused.headers["ratelimit-policy"] == '"shopper";q=2;w=3600'


@pytest.mark.parametrize("cookie", [{}, {"Cookie": "django_language=en"}], ids=["the gate's", "Django's"])
def test_press_with_no_good_token_or_body_counts_as_a_visit(site, cookie):
    load()
    told = [
        ask(site.port, press(Authorization="Bearer x", X_Forwarded_For=CLIENT, **cookie)).status for _ask in range(4)
    ]
    assert told == [401, 401, 429, 429]
    bad = [ask(site.port, press(b"{}", X_Forwarded_For="198.51.100.9", **cookie)).status for _ask in range(4)]
    assert bad == [400, 400, 429, 429]


def test_right_passwords_are_not_counted_and_wrong_ones_are(settings):
    settings.LIMIT_LOG_IN = "4/3600"
    assert {log_in_pace(address=CLIENT) for _ask in range(100)} == {None}
    for _try in range(2):
        assert log_in_pace(address=CLIENT) is None
        log_in_failed(address=CLIENT)
    assert log_in_pace(address=CLIENT).name == "log-in"


def test_request_that_one_limit_refuses_costs_nothing_of_the_others(settings):
    settings.LIMIT_SHOPPER, settings.LIMIT_ADDRESS, settings.LIMIT_SITE, settings.WEB_WORKERS = (
        "2/3600",
        "4/3600",
        "",
        1,
    )
    assert press_pace(user_id=7, address=CLIENT) is None
    assert [press_pace(user_id=7, address=CLIENT).name for _ask in range(5)] == ["shopper"] * 5
    assert press_pace(user_id=8, address=CLIENT) is None  # the address has one left
    assert press_pace(user_id=9, address=CLIENT).name == "address"
    assert press_pace(user_id=9, address="198.51.100.8") is None  # and the shopper, too
