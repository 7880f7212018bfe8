"""The coupon centre as shoppers press it: by the server's clock, over networks that lose answers, in many windows."""

import re
import time
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import BrowserContext, Page, Route, expect

from activities import services
from activities.models import Activity, Coupon
from centre.sessions import SESSION
from seize.tokens import token_issue
from tests.browser.conftest import violations
from tests.factories import offer

pytestmark = pytest.mark.django_db(transaction=True)
SEIZE = "**/market/consumer/coupon/seize"


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
    token = token_issue(kind=SESSION, user_id=user_id, lifetime_s=3600)
    context.add_cookies([{"name": "shopper", "value": token, "url": site, "httpOnly": True, "sameSite": "Lax"}])


def button(page: Page, activity: Activity):
    return page.locator(f"[data-card='{activity.pk}'] [data-press]")


def card(page: Page, activity: Activity):
    return page.locator(f"[data-card='{activity.pk}']")


def press(page: Page, activity: Activity) -> None:
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    button(page, activity).click()


# -- The second of the start ----------------------------------------------------------------------------


@pytest.mark.parametrize("wrong_by_h", [-1, 0, 1])
def test_button_opens_by_the_servers_clock_and_the_win_is_in_my_coupons_at_once(shopper, worker, seen, wrong_by_h):
    start = timezone.now() + timedelta(seconds=9)
    activity = offer(name="双十二", starts_at=start, ends_at=start + timedelta(hours=1))
    page = shopper(7, "/login")
    page.add_init_script(f"""
        const True = Date, ahead = {wrong_by_h} * 3600_000;
        window.Date = class extends True {{
          constructor(...given) {{ super(...(given.length ? given : [True.now() + ahead])); }}
          static now() {{ return True.now() + ahead; }}
        }};
    """)
    page.goto("/?tab=upcoming")
    note = card(page, activity).locator("[data-note]")
    expect(note).to_have_text(re.compile(r"Starts in 00:00:0\d"))
    expect(button(page, activity)).to_have_text("Not started")
    assert timezone.now() < start
    seen(page, f"centre-countdown-{wrong_by_h}")
    button(page, activity).click(force=True)
    assert Coupon.objects.count() == 0
    expect(button(page, activity)).to_have_text("Seize", timeout=15_000)
    late_s = (timezone.now() - start).total_seconds()
    assert -0.1 < late_s < 1.5, f"opened {late_s} s after the start"
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    page.goto("/coupons")
    expect(page.locator("[data-coupon]")).to_have_count(1)
    expect(page.locator("[data-state=issued]")).to_have_count(1, timeout=8_000)
    assert Coupon.objects.get().user_id == 7


def test_paused_mid_sale_says_when_to_try_again_and_goes_on_after_resume(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7)
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    services.activity_pause(activity_id=activity.pk, now=timezone.now())
    press(page, activity)
    expect(card(page, activity).locator("[data-note]")).to_have_text("This activity is paused. Please try again later.")
    expect(button(page, activity)).to_have_text(re.compile(r"Again in \d+ s|Paused"))
    services.activity_resume(activity_id=activity.pk, now=timezone.now())
    expect(button(page, activity)).to_have_text("Seize", timeout=25_000)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")


# -- Who gets one ---------------------------------------------------------------------------------------


def test_sold_out_is_told_in_words_and_the_list_follows(shopper, worker, seen):
    activity = offer(name="双十二", stock_total=1)
    late = shopper(8)
    expect(button(late, activity)).to_have_attribute("aria-disabled", "false")
    first = shopper(7)
    press(first, activity)
    expect(button(first, activity)).to_have_text("Yours")
    press(late, activity)
    expect(button(late, activity)).to_have_text("Sold out")
    expect(card(late, activity).locator("[data-note]")).to_have_text("All coupons of this activity are gone.")
    expect(late.locator("[data-said]")).to_have_text(re.compile("All coupons of this activity are gone"))
    expect(card(first, activity).locator("[data-left-text]")).to_have_text("0 left", timeout=10_000)
    seen(late, "centre-sold-out")


def test_limit_of_three_gives_three_one_press_each(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    page = shopper(7)
    for held, words in ((1, "Seize another"), (2, "Seize another"), (3, "Yours")):
        press(page, activity)
        expect(card(page, activity).locator("[data-note]")).to_have_text(f"You have {held} of 3.")
        expect(button(page, activity)).to_have_text(words)
    page.reload()
    expect(button(page, activity)).to_have_text("Yours")
    page.goto("/coupons")
    expect(page.locator("[data-coupon]")).to_have_count(3)


def test_press_is_sent_once_however_often_it_is_pressed(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    page = shopper(7)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.post_data) if "coupon/seize" in request.url else None)
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    button(page, activity).evaluate("(button) => { for (let n = 0; n < 5; n += 1) button.click(); }")
    expect(card(page, activity).locator("[data-note]")).to_have_text("You have 1 of 3.")
    assert sent == [f'{{"id":"{activity.pk}","seq":1}}']


def test_two_windows_of_one_shopper_get_one_coupon(shopper, worker):
    activity = offer(name="双十二")
    one = shopper(7)
    two = one.context.new_page()
    two.goto("/")
    press(one, activity)
    press(two, activity)
    for page in (one, two):
        expect(button(page, activity)).to_have_text("Yours")
    one.goto("/coupons")
    expect(one.locator("[data-state=issued]")).to_have_count(1, timeout=8_000)
    assert Coupon.objects.count() == 1


def test_ids_of_nineteen_digits_stay_whole(shopper, worker):
    activity = offer(name="双十二", id=1234567890123456789)
    page = shopper(9223372036854775807)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    page.goto("/coupons")
    expect(page.locator("[data-state=issued]")).to_have_count(1, timeout=8_000)
    coupon = Coupon.objects.get()
    assert (coupon.user_id, coupon.activity_id) == (9223372036854775807, 1234567890123456789)


def test_twenty_browsers_press_for_five_coupons_and_exactly_five_get_one(shopper, worker):
    activity = offer(name="双十二", stock_total=5)
    pages = [shopper(user_id) for user_id in range(1, 21)]
    for page in pages:
        expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    instant = time.time() * 1000 + 1500
    for page in pages:  # they press in the same moment, each by itself
        page.evaluate(
            "([id, at]) => { setTimeout(() => document.querySelector(`[data-card='${id}'] [data-press]`).click(),"
            " at - Date.now()); }",
            [str(activity.pk), instant],
        )
    for page in pages:
        expect(button(page, activity)).to_have_text(re.compile("^(Yours|Sold out)$"), timeout=20_000)
    said = [button(page, activity).inner_text() for page in pages]
    assert (said.count("Yours"), said.count("Sold out")) == (5, 15)
    winners = {number for number, words in enumerate(said, start=1) if words == "Yours"}
    expect(pages[0].locator("[data-left-text]")).to_have_text("0 left", timeout=10_000)
    deadline = time.monotonic() + 10
    while Coupon.objects.count() < 5 and time.monotonic() < deadline:
        pages[0].wait_for_timeout(100)
    assert set(Coupon.objects.values_list("user_id", flat=True)) == winners


# -- Networks -------------------------------------------------------------------------------------------


def test_network_cut_after_sending_asks_again_and_shows_what_was_won(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    page = shopper(7)
    answers: list[int] = []

    def lose(route: Route) -> None:
        answers.append(route.fetch().status)
        route.abort("connectionreset")

    page.route(SEIZE, lose, times=2)
    press(page, activity)
    expect(card(page, activity).locator("[data-note]")).to_have_text("No answer came. Asking whether it is yours…")
    expect(card(page, activity).locator("[data-note]")).to_have_text("You have 1 of 3.", timeout=15_000)
    assert answers == [201, 200]
    page.goto("/coupons")
    expect(page.locator("[data-state=issued]")).to_have_count(1, timeout=8_000)


def test_slow_network_says_that_it_is_under_way_and_sends_one_press(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    page = shopper(7)
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    slow = {"offline": False, "latency": 2_500, "downloadThroughput": 6_000, "uploadThroughput": 6_000}
    session.send("Network.emulateNetworkConditions", slow)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "coupon/seize" in request.url else None)
    button(page, activity).click()
    expect(button(page, activity)).to_have_text("Seizing…")
    button(page, activity).click(force=True)
    expect(card(page, activity).locator("[data-note]")).to_have_text("You have 1 of 3.", timeout=20_000)
    assert len(sent) == 1


def test_winner_who_never_got_an_answer_may_ask_when_the_list_says_sold_out(shopper, worker):
    activity = offer(name="双十二", stock_total=1)
    page = shopper(7)
    # A page that loses patience at once, instead of after 90 s.
    page.add_init_script("""
        const real = performance.now.bind(performance);
        window.skip = 0;
        performance.now = () => real() + window.skip;
    """)
    page.reload()
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")

    def lose(route: Route) -> None:
        assert route.fetch().status in (200, 201)
        page.evaluate("window.skip += 200_000")
        route.abort("connectionreset")

    page.route(SEIZE, lose, times=1)
    press(page, activity)
    note = card(page, activity).locator("[data-note]")
    expect(note).to_have_text(re.compile("^The answer never came. Press again"))
    expect(card(page, activity).locator("[data-left-text]")).to_have_text("0 left", timeout=15_000)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")


def test_busy_server_is_asked_again_when_it_says_and_not_before(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7)
    asked: list[float] = []

    def busy(route: Route) -> None:
        asked.append(time.monotonic())
        route.fulfill(
            status=503, headers={"Retry-After": "2", "Content-Type": "application/problem+json"},
            body='{"code": "BUSY", "title": "Too busy."}',
        )  # fmt: skip

    page.route(SEIZE, busy, times=2)
    press(page, activity)
    expect(button(page, activity)).to_have_text(re.compile(r"Trying again in \d s"))
    expect(button(page, activity)).to_have_text("Yours", timeout=15_000)
    assert len(asked) == 2
    assert 2 <= asked[1] - asked[0] < 4


def test_token_that_ran_out_is_renewed_without_a_word(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7)
    refusal = {"status": 401, "content_type": "application/problem+json", "body": '{"code": "UNAUTHENTICATED"}'}
    page.route(SEIZE, lambda route: route.fulfill(**refusal), times=1)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")


def test_page_that_slept_asks_for_the_time_before_it_goes_on(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7)
    expect(button(page, activity)).to_have_text("Seize")
    with page.expect_response("**/activity/list"):
        # The steady counter of some devices stands still while they sleep; the other clock goes on.
        page.evaluate("() => { const now = Date.now; Date.now = () => now() + 90_000; }")
    expect(button(page, activity)).to_have_text("Seize")


# -- Who looks ------------------------------------------------------------------------------------------


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
