"""The coupon centre's page as the tests look at it: its cards, pressing, and the time that passes on it."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db.models import F
from django.utils import timezone
from playwright.sync_api import Locator, Page, Route, expect
from services import wait_until

from activities.admission import activity_preheat, unix_ms
from activities.models import Activity

SEIZE = "**/market/consumer/coupon/seize"
LIST = "**/market/consumer/activity/list"
MINE = "**/market/consumer/coupon/my"


def button(page: Page, activity: Activity) -> Locator:
    return page.locator(f"[data-card='{activity.pk}'] [data-press]")


def card(page: Page, activity: Activity) -> Locator:
    return page.locator(f"[data-card='{activity.pk}']")


def press(page: Page, activity: Activity) -> None:
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    button(page, activity).click()


def look(page: Page, *, at: str = LIST, passing_ms: int = 0) -> None:
    """Let the page ask the list now, and wait for the answer; where its clock stands, for 300 ms at most."""
    with page.expect_response(at):
        page.evaluate("dispatchEvent(new Event('online'))")
        if passing_ms:
            page.clock.run_for(passing_ms)


def asked(page: Page, part: str) -> list[str]:
    """The requests from now on whose address has this in it."""
    found: list[str] = []
    page.on("request", lambda request: found.append(request.url) if part in request.url else None)
    return found


def hold(page: Page, pattern: str) -> list[Route]:
    """The requests from now on that match; none goes on before the test lets it."""
    held: list[Route] = []

    def keep(route: Route) -> None:
        held.append(route)

    page.route(pattern, keep)
    return held


def until(page: Page, condition: Callable[[], object], *, what: str) -> None:
    """Wait for something here while the page goes on."""
    wait_until(lambda: condition() or page.wait_for_timeout(20), what=what)


# -- Pages whose clock stands: ``shopper(7, stopped=True)`` ---------------------------------------------


def pass_until(page: Page, locator: Locator, text: str) -> None:
    """Let the page's time pass, second by second, until it says so."""
    until(page, lambda: page.clock.run_for(1_000) or locator.inner_text() == text, what=text)


def hour_ahead() -> dict[str, datetime]:
    """The window of an activity that begins when a page's clock has gone on, and not before."""
    start = timezone.now().replace(microsecond=0) + timedelta(hours=1)  # the page counts down on the second
    return {"starts_at": start, "ends_at": start + timedelta(hours=1)}


def come_before_start(page: Page, activity: Activity, *, ms: int) -> None:
    """Open what is coming up, and let time pass until so long before the start by the product's clock.

    It told the time once, and tells it no more: the page has to go by that.
    """
    page.route(MINE, lambda route: route.abort())  # what a shopper has tells the time of another moment
    with page.expect_response(LIST) as listed:
        page.goto("/?tab=upcoming")
    told = datetime.fromisoformat(listed.value.json()["server_time"])
    expect(card(page, activity).locator("[data-note]")).to_have_text(re.compile("^Starts in "))
    page.route(LIST, lambda route: route.abort())
    page.clock.fast_forward(unix_ms(activity.starts_at) - unix_ms(told) - ms)


def begin(activity: Activity) -> None:
    """Let the start have come by Redis' clock as well."""
    begun = timezone.now() - timedelta(minutes=1)
    Activity.objects.filter(pk=activity.pk).update(starts_at=begun, version=F("version") + 1)
    assert activity_preheat(Activity.objects.get(pk=activity.pk)) in ("applied", "current")  # a worker may be first
