"""Who looks at the coupon centre, and by what: without a log-in, a script, a mouse, or much of a network."""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from tests.browser.centre_page import button, press
from tests.browser.conftest import violations
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
    found: dict[str, list[str]] = {}
    for name, path in {
        "centre": "/", "upcoming": "/?tab=upcoming", "one": f"/activity/{activity.pk}", "wallet": "/coupons",
        "log-in": "/login", "account": "/account", "missing": "/activity/0",
    }.items():  # fmt: skip
        page.goto(path)
        page.wait_for_load_state("networkidle")
        seen(page, f"centre-{name}-{view}-{scheme}")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, name
        if serious := violations(page):
            found[name] = serious
    assert found == {}


def test_first_page_is_light_and_nothing_on_it_moves(shopper, worker):
    for number in range(10):
        offer(name=f"Activity {number}", stock_total=1000)
    page = shopper(7, "/login")
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
