"""Who looks at the coupon centre, and by what: without a log-in, a script, a mouse, or much of a network."""

import re
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from services import wait_until

from activities.models import Coupon
from seize.outcomes import Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.browser.centre_page import (
    LIST,
    SEIZE,
    asked,
    button,
    card,
    come_before_start,
    hour_ahead,
    look,
    press,
)
from tests.browser.conftest import walk
from tests.factories import offer

pytestmark = pytest.mark.django_db(transaction=True)


def test_stranger_is_led_to_the_log_in_and_back_to_the_button(context_new, worker):
    activity = offer(name="双十二")
    page = context_new(view="phone").new_page()
    page.goto(f"/activity/{activity.pk}")
    expect(button(page, activity)).to_have_text("Log in to seize")
    press(page, activity)
    page.get_by_role("button", name="Enter as shopper 1001").click()
    page.wait_for_url(f"**/activity/{activity.pk}")
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    page.get_by_role("link", name="Account").click()
    expect(page.get_by_text("You are shopper 1001.")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("link", name="Log in")).to_be_visible()


def test_log_out_in_one_window_closes_the_others_at_once(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    one = shopper(7)
    press(one, activity)
    expect(card(one, activity).locator("[data-note]")).to_have_text("You have 1 of 3.")
    wallet = one.context.new_page()
    wallet.goto("/coupons")
    expect(wallet.locator("[data-coupon]")).to_have_count(1)
    other = one.context.new_page()
    other.goto("/account")
    sent: list[str] = []
    one.on("request", lambda request: sent.append(request.url) if "coupon/seize" in request.url else None)
    other.get_by_role("button", name="Log out").click()
    expect(button(one, activity)).to_have_text("Log in to seize")
    expect(card(one, activity).locator("[data-note]")).not_to_contain_text("You have")
    wallet.wait_for_url("**/login?next=%2Fcoupons")
    press(one, activity)
    one.wait_for_url("**/login?next=%2F")
    assert sent == []


def test_other_shopper_who_logs_in_in_another_window_is_the_one_who_presses_in_all(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    one = shopper(7)
    press(one, activity)
    expect(card(one, activity).locator("[data-note]")).to_have_text("You have 1 of 3.")
    other = one.context.new_page()
    other.goto("/login")
    other.get_by_role("button", name="Enter as shopper 1001").click()
    expect(button(other, activity)).to_have_text("Seize")
    expect(button(one, activity)).to_have_text("Seize")
    press(one, activity)
    expect(card(one, activity).locator("[data-note]")).to_have_text("You have 1 of 3.")
    one.goto("/coupons")
    expect(one.locator("[data-state=issued]")).to_have_count(1)
    wait_until(lambda: Coupon.objects.count() >= 2, what="both coupons in the ledger")
    assert sorted(Coupon.objects.values_list("user_id", flat=True)) == [7, 1001]


def test_press_that_waits_is_given_up_when_another_shopper_logs_in(shopper, worker):
    """Or 1001 would win by a press of 7."""
    activity = offer(name="双十二")
    one = shopper(7, stopped=True)
    sent = asked(one, "coupon/seize")
    busy = {"status": 503, "headers": {"Retry-After": "4"}, "body": '{"code": "BUSY", "title": "Too busy."}'}
    one.route(SEIZE, lambda route: route.fulfill(**busy))
    press(one, activity)
    expect(button(one, activity)).to_have_text(re.compile(r"Trying again in \d s"))
    one.unroute(SEIZE)
    other = one.context.new_page()
    other.goto("/login")
    other.get_by_role("button", name="Enter as shopper 1001").click()
    expect(button(other, activity)).to_have_text("Seize")
    one.clock.run_for(4_501)
    expect(button(one, activity)).to_have_text("Seize")
    expect(button(one, activity)).to_have_attribute("aria-disabled", "false")
    assert len(sent) == 1
    look(one, passing_ms=300)
    expect(card(one, activity).locator("[data-left-text]")).to_have_text(f"{activity.stock_total} left")


def test_wallet_whose_session_is_over_stops_asking_and_leads_to_the_log_in(shopper):
    """No worker: the coupon stays on its way."""
    activity = offer(name="双十二")
    assert isinstance(coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7), Won)
    page = shopper(7, "/coupons?status=unused")
    expect(page.locator("[data-state=pending]")).to_have_count(1)
    page.context.clear_cookies()
    page.wait_for_url("**/login?next=%2Fcoupons%3Fstatus%3Dunused")


def test_site_without_a_log_in_shows_what_is_on_offer_and_counts_down(context_new, settings, worker, seen):
    settings.JWT_SIGNING_KEY = ""
    activity, gone = offer(name="双十二", **hour_ahead()), offer(stock_total=1)
    assert isinstance(coupon_seize(wanted=SeizeRequest(activity_id=gone.pk, seq=1), user_id=7), Won)
    page = context_new(view="phone", stopped=True).new_page()
    faults: list[str] = []
    page.on("pageerror", lambda fault: faults.append(str(fault)))
    come_before_start(page, activity, ms=9_000)
    note = card(page, activity).locator("[data-note]")
    expect(note).to_have_text("Starts in 00:00:09")
    page.clock.run_for(10_001)
    expect(note).to_have_text("Ends in 00:59:59")
    expect(button(page, activity)).to_have_count(0)
    seen(page, "centre-without-log-in")
    page.unroute(LIST)
    page.goto("/")
    expect(card(page, gone).locator("[data-note]")).to_have_text("Sold out")
    expect(card(page, gone).locator("[data-left-text]")).to_have_text("0 left")
    assert faults == []


def test_chinese_from_the_browser_and_english_by_the_switch(shopper, worker, seen):
    activity = offer(name="双十二")
    page = shopper(7, language="zh-CN")
    expect(button(page, activity)).to_have_text("立即抢")
    page.get_by_role("link", name="English").click()
    expect(button(page, activity)).to_have_text("Seize")
    page.get_by_role("link", name="中文").click()
    press(page, activity)
    expect(button(page, activity)).to_have_text("已抢到")
    expect(page.locator("[data-said]")).to_have_text("抢到了：双十二")
    seen(page, "centre-chinese")


def test_list_and_wallet_are_readable_without_a_script(shopper, worker, seen):
    activity = offer(name="双十二")
    with_script = shopper(7)
    press(with_script, activity)
    expect(button(with_script, activity)).to_have_text("Yours")
    page = shopper(7, java_script_enabled=False)
    # An emulated browser without scripts leaves <noscript> closed; what is in it can be read here alone.
    assert '<noscript><p class="hint">Pressing the button needs JavaScript.' in page.request.get("/").text()
    expect(page.get_by_text("20.00 off orders from 100.00")).to_be_visible()
    seen(page, "centre-no-script")
    page.goto("/coupons")
    expect(page.locator("[data-coupon]")).to_have_count(1)


def test_keyboard_alone_wins_a_coupon_and_hears_of_it(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7)
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.keyboard.press("Enter")
    for _key in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.hasAttribute('data-press')"):
            break
    page.keyboard.press("Enter")
    expect(button(page, activity)).to_have_text("Yours")
    expect(page.locator("[data-said]")).to_have_text("You got it: 双十二")
    assert page.evaluate("document.activeElement.hasAttribute('data-press')"), "the focus stays where it was"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["phone", "desk"])
def test_pages_have_no_serious_violation_and_fit(shopper, worker, seen, view, scheme):
    start = timezone.now() + timedelta(hours=30)
    activity = offer(name="双十二 满100减20", rules_text="One for each household.", stock_total=100)
    offer(name="A name that is a good deal longer than any that a marketer would write, and wraps", stock_total=1)
    offer(name="明日开抢", starts_at=start, ends_at=start + timedelta(hours=1), kind="PERCENT", amount_off=None,
          pay_percent=85)  # fmt: skip
    page = shopper(7, view=view, scheme=scheme)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    paths = {
        "centre-centre": "/", "centre-upcoming": "/?tab=upcoming", "centre-one": f"/activity/{activity.pk}",
        "centre-wallet": "/coupons", "centre-log-in": "/login", "centre-account": "/account",
    }  # fmt: skip
    assert walk(page, paths, seen=seen, device=f"{view}-{scheme}") == dict.fromkeys(paths, 200)
    missing = {"centre-missing": "/activity/0"}
    assert walk(page, missing, seen=seen, device=f"{view}-{scheme}") == {"centre-missing": 404}


def test_first_page_is_light_and_nothing_on_it_moves(shopper, worker):
    for number in range(10):
        offer(name=f"Activity {number}", stock_total=1000)
    page = shopper(7, "/login", stopped=True)
    page.context.clear_cookies()
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[int] = []
    urls: list[str] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    session.on("Network.responseReceived", lambda event: urls.append(event["response"]["url"]))
    page.add_init_script("""
        window.shifts = [];
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries()) {
            const moved = entry.sources.map(({ node }) => node?.outerHTML ?? node?.textContent);
            window.shifts.push([entry.value, moved]);
          }
        }).observe({ type: "layout-shift", buffered: true });
    """)
    page.goto("/")
    expect(page.locator("[data-press]").first).to_have_text("Log in to seize")
    page.wait_for_load_state("networkidle")
    assert sum(sizes) <= 60_000, dict(zip(urls, sizes, strict=False))
    assert len(urls) <= 12, urls
    shifts = page.evaluate("window.shifts")
    assert sum(value for value, _moved in shifts) < 0.01, shifts


# -- How little goes over the wire ----------------------------------------------------------------------


class Wire:
    """What a page takes from the network, by path: statuses and bytes as they were transferred."""

    def __init__(self, page: Page) -> None:
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        self.answers: dict[str, dict[str, object]] = {}
        session.on("Network.responseReceived", self._answered)
        session.on("Network.loadingFinished", self._finished)

    def _answered(self, event) -> None:
        response = event["response"]
        self.answers[event["requestId"]] = {
            "path": urlsplit(response["url"]).path, "status": response["status"], "bytes": None
        }  # fmt: skip

    def _finished(self, event) -> None:
        if event["requestId"] in self.answers:
            self.answers[event["requestId"]]["bytes"] = event["encodedDataLength"]

    def taken(self, part: str = "") -> list[tuple[int, int]]:
        """Status and bytes of each finished answer whose path has this in it."""
        return [
            (answer["status"], answer["bytes"])
            for answer in self.answers.values()
            if part in answer["path"] and answer["bytes"] is not None
        ]


def test_page_of_two_hundred_activities_is_light_and_looks_again_for_little(shopper, worker):
    activities = [offer(name=f"双十二 {number}", stock_total=1000) for number in range(200)]
    page = shopper(7, "/login", stopped=True)
    wire = Wire(page)
    page.goto("/")
    expect(page.locator("[data-press]").first).to_have_text("Seize")
    page.wait_for_load_state("networkidle")
    assert len(page.locator("[data-card]").all()) == 50
    assert sum(size for _status, size in wire.taken()) <= 60_000, wire.answers
    [(status, size)] = wire.taken("activity/list")
    assert (status, size < 15_000) == (200, True), size
    statuses: list[int] = []
    page.on("response", lambda response: statuses.append(response.status) if "/list" in response.url else None)
    look(page, passing_ms=300)
    look(page, passing_ms=300)
    assert set(statuses) == {304}, "nothing has changed: an answer without a body"
    expect(button(page, activities[0])).to_have_text("Seize")
    assert isinstance(coupon_seize(wanted=SeizeRequest(activity_id=activities[0].pk, seq=1), user_id=8), Won)
    look(page, passing_ms=300)
    expect(card(page, activities[0]).locator("[data-left-text]")).to_have_text("999 left")
    assert statuses[-1] == 200


def test_page_of_one_activity_asks_for_that_one_alone(shopper, worker):
    activity = offer(name="双十二", rules_text="One for each household.", stock_total=1000)
    for number in range(20):
        offer(name=f"Another {number}")
    page = shopper(7, "/login")
    wire = Wire(page)
    with page.expect_response(f"**/market/consumer/activity/{activity.pk}"):
        page.goto(f"/activity/{activity.pk}")
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    expect(card(page, activity).locator("[data-left-text]")).to_have_text("999 left")
    assert wire.taken("activity/list") == []
    assert all(size < 1_500 for _status, size in wire.taken("consumer/activity/")), wire.answers
