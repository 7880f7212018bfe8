"""A real browser on the product as production serves it; whatever it asks of another host fails the test."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from playwright.sync_api import BrowserContext, Page, Request, expect
from services import PATIENCE_S

from centre.sessions import SESSION
from couponsite.asgi import front
from seize.tokens import token_issue
from sync.comparison import ledger_compare
from sync.drain import queue_drain
from sync.rebuild import activity_rebuild
from sync.roles import roles_create
from tests.seize.servers import Counted, served

# Playwright's synchronous way keeps an event loop in this thread, in which Django would refuse to use the database.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"

ARGUMENTS = ("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync")  # fmt: skip
# After how many ms a page gives up each question. Here it never does: a server that is slow has not lost an answer.
PATIENT = """
    window.patience = [];
    AbortSignal.timeout = (ms) => { patience.push(ms); return new AbortController().signal; };
"""
VIEWS = {"phone": {"width": 390, "height": 844}, "desk": {"width": 1280, "height": 900}}

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, object]:
    """The Chromium that script/test found."""
    if "TEST_CHROMIUM" not in os.environ:
        pytest.fail("There is no browser: run the tests by script/test.")
    libraries = os.environ.get("TEST_CHROMIUM_LIBRARIES")
    env = {**os.environ, **({"LD_LIBRARY_PATH": libraries} if libraries else {})}
    return {
        "executable_path": os.environ["TEST_CHROMIUM"], "chromium_sandbox": False, "args": list(ARGUMENTS), "env": env,
        "timeout": PATIENCE_S * 1000,
    }  # fmt: skip


@pytest.fixture
def site(transactional_db, raw) -> Iterator[str]:
    """Where the product is served."""
    made = front()
    with served(Counted(made.shortcuts, made.django), kind="protocol") as running:
        yield f"http://127.0.0.1:{running.port}"


@pytest.fixture
def worker(transactional_db, raw) -> Iterator[None]:
    """What a worker does each second, more often: compare, rebuild, drain."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.2):
            ledger_compare(rebuild=lambda activity_id: activity_rebuild(activity_id=activity_id))
            for shard in range(10):
                queue_drain(shard=shard, batch_size=500, lease_ms=5000, budget_s=5)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.fixture
def foreign_requests() -> list[str]:
    """What the pages of this test asked of other hosts: filled by every context that is watched."""
    return []


@pytest.fixture(autouse=True)
def no_foreign_request(foreign_requests) -> Iterator[None]:
    """No page may ask anything of another host."""
    yield
    assert foreign_requests == []


@pytest.fixture
def context_new(browser, site, foreign_requests) -> Iterator[Callable[..., BrowserContext]]:
    """A new browser context on the site: a device of its own, whose requests are watched.

    With ``stopped`` its clock, wrong by ``ahead_h``, stands until the test lets time pass by ``page.clock``.
    """
    contexts: list[BrowserContext] = []

    def look(request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1":
            foreign_requests.append(request.url)

    def make(
        *, view: str = "desk", scheme: str = "light", language: str = "en", stopped: bool = False, ahead_h: int = 0,
        **options: Any,
    ) -> BrowserContext:  # fmt: skip
        context = browser.new_context(
            base_url=site, viewport=VIEWS[view], color_scheme=scheme, locale=language, timezone_id="Asia/Shanghai",
            **options,
        )  # fmt: skip
        context.set_default_timeout(PATIENCE_S * 1000)
        if stopped:
            at = time.time() + ahead_h * 3600
            context.clock.install(time=at - 3600)  # it stands from then on, however long this takes
            context.clock.pause_at(at)
        context.add_init_script(PATIENT)
        context.on("request", look)
        contexts.append(context)
        return context

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def staff(context_new, site) -> Callable[..., Page]:
    """A page of somebody who is logged in: ``staff("ann", "author")``; each person has a browser context."""
    roles_create()

    def log_in(name: str, *roles: str, **device: str) -> Page:
        user, _made = get_user_model().objects.get_or_create(username=name, defaults={"is_staff": True})
        if roles == ("boss",):
            get_user_model().objects.filter(pk=user.pk).update(is_superuser=True)
        else:
            user.groups.set(Group.objects.filter(name__in=roles))
        client = Client()
        client.force_login(user)
        context = context_new(**device)
        context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": site}])
        return context.new_page()

    return log_in


@pytest.fixture
def shopper(context_new, site):
    """A page of the coupon centre of somebody who has logged in: ``shopper(7)``, on a phone."""

    def come(user_id: int, path: str = "/", **device: object) -> Page:
        context = context_new(**{"view": "phone", **device})
        know(context, user_id, site)
        page = context.new_page()
        page.goto(path)
        return page

    return come


def know(context: BrowserContext, user_id: int, site: str) -> None:
    token = token_issue(kind=SESSION, user_id=user_id, lifetime_s=86_400)
    context.add_cookies([{"name": "shopper", "value": token, "url": site, "httpOnly": True, "sameSite": "Lax"}])


@pytest.fixture
def seen(request) -> Callable[[Page, str], None]:
    """Keep a picture of a page below var/, for whoever wants to look."""
    folder = Path(os.environ["TEST_FOLDER"]) / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)

    def picture(page: Page, name: str) -> None:
        page.screenshot(path=folder / f"{name}.png", full_page=True)

    return picture


def violations(page: Page) -> list[str]:
    """What axe-core calls serious or critical on a page, with the place."""
    found = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {node['target']} {node.get('failureSummary', '')[:200]}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def walk(page: Page, paths: dict[str, str], *, seen: Callable[[Page, str], None], device: str) -> dict[str, int]:
    """Look at each page by name: it fits, nobody is kept out, a picture is kept. Returns their statuses."""
    statuses: dict[str, int] = {}
    found: dict[str, list[str]] = {}
    for name, path in paths.items():
        response = page.goto(path)
        assert response is not None
        statuses[name] = response.status
        page.wait_for_load_state("networkidle")  # scripts have drawn what they were told
        seen(page, f"{name}-{device}")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, name
        if serious := violations(page):
            found[name] = serious
    assert found == {}
    return statuses
