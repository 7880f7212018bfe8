"""Headers in which Django would lose its footing before anything of ours runs are only headers here."""

import json

import pytest

from tests.seize.servers import ask, raw_request

LIST = "/market/consumer/activity/list?tab=nonsense"


@pytest.mark.parametrize("kind", ["view", "asgi", "protocol"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain; charset=hex"}, 400),
        ({"Content-Type": "text/plain; charset=idna"}, 400),
        ({"Content-Type": "text/plain; charset=utf-16"}, 400),
        ({"Content-Type": "text/plain; charset*=hex''%41"}, 400),
        ({"Content-Type": "text/plain; charset*=nonsense''%41"}, 400),
        ({"Content-Type": "text/plain;?;0*0;0*"}, 400),
        ({"Accept": "text/html; charset*=hex''%41"}, 406),
        ({"Accept": "text/html; x*=nonsense''%41, */*"}, 400),
        ({"Accept": "application/json;?;0*0;0*"}, 400),
    ],
    ids=str,
)
def test_charset_that_nobody_can_read_is_no_500(fronts, kind, headers, status):
    request = raw_request("GET", LIST, headers=(("Host", "localhost"), *headers.items()))
    reply = ask(fronts[kind].port, request, method="GET")
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")
    assert json.loads(reply.body)["instance"] == reply.headers["x-request-id"]
