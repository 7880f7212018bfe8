"""The fragment in front of Django: the view's own bytes, and only for those whom the view has let in."""

import re

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from couponsite import watching
from couponsite.asgi import front
from couponsite.watching import CHECKED_MAX, WatchShortcut, watcher_checked
from seize import counting
from tests.factories import offer
from tests.seize.servers import Counted, ask, raw_request, served
from tests.sync.stage import press

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_fragment_due")]

ID_OF_19_DIGITS = 2234567890123456789


@pytest.fixture
def watcher() -> Client:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("boss", password="x"))
    return client


def get(path: str, session: str, **headers: str) -> bytes:
    given = {"Host": "localhost", "Cookie": f"csrftoken=x; sessionid={session}", **headers}
    return raw_request("GET", path, headers=tuple((name.replace("_", "-"), value) for name, value in given.items()))


@pytest.mark.parametrize("kind", ["asgi", "protocol"])
def test_front_gives_the_bytes_of_the_view_to_whom_the_view_has_let_in(watcher, kind):
    activity = offer(id=ID_OF_19_DIGITS)
    path, session = f"/admin/activities/activity/{activity.pk}/live/fragment", watcher.session.session_key
    viewed = watcher.get(path)
    made = front()
    with served(Counted(made.shortcuts, made.django), kind=kind) as server:
        answer = ask(server.port, get(path, session), method="GET")
        assert (answer.status, answer.body, server.front.taken) == (200, viewed.content, 1)
        for name in ("ETag", "Content-Type", "X-Frame-Options", "Content-Language"):
            assert answer.headers[name.lower()] == viewed[name]
        assert set(re.split(", *", answer.headers["cache-control"])) == set(re.split(", *", viewed["Cache-Control"]))
        same = ask(server.port, get(path, session, If_None_Match=viewed["ETag"]), method="GET")
        assert (same.status, same.body, server.front.taken) == (304, b"", 2)
        for fragment in watching._fragments.values():
            fragment.until -= 3
        press(activity, 1)
        counting.flush()
        renewed = ask(server.port, get(path, session, If_None_Match=viewed["ETag"]), method="GET")
        assert (renewed.status, server.front.taken) == (200, 2)
        assert renewed.headers["etag"] != viewed["ETag"]
        stranger = ask(server.port, get(path, "somebody"), method="GET")
        assert (stranger.status, server.front.taken) == (302, 2)
        other = ask(server.port, get(path.replace("/live", "9/live"), session), method="GET")
        assert (other.status, server.front.taken) == (404, 2)


def take(path: str, session: str):
    headers = [(b"host", b"localhost"), (b"cookie", f"sessionid={session}".encode())]
    return WatchShortcut().take(path.encode(), b"", headers, secure=False)


def test_a_fragment_that_is_due_and_a_check_that_is_old_are_djangos(watcher):
    activity = offer()
    path, session = f"/admin/activities/activity/{activity.pk}/live/fragment", watcher.session.session_key
    assert take(path, session) is None
    watcher.get(path)
    assert take(path, session) is not None
    for made in watching._fragments.values():
        made.until -= 3
    assert take(path, session) is None
    assert take(path, session) is None  # asking changes nothing
    for lock in watching._making.values():
        with lock:
            assert take(path, session) is not None  # somebody makes it: the one before will do
            for made in watching._fragments.values():
                made.until -= 20
            assert take(path, session) is None  # too old for anybody
    press(activity, 1)
    counting.flush()
    watcher.get(path)
    assert take(path, session) is not None
    watching._checked.update(dict.fromkeys(watching._checked, 0.0))
    assert take(path, session) is None


def test_as_many_are_remembered_as_may_be():
    for number in range(CHECKED_MAX + 10):
        watcher_checked(session=str(number), activity_id=1)
    assert len(watching._checked) == CHECKED_MAX
    watching._checked["0", 1] = 0.0
    watcher_checked(session="late", activity_id=1)
    assert ("late", 1) in watching._checked
    assert len(watching._checked) == CHECKED_MAX
