"""The coupon centre over networks that lose answers, and beside servers that are busy or hang."""

import re
import time
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Route, expect

from tests.browser.centre_page import LIST, SEIZE, button, card, look, press
from tests.factories import issued, offer

pytestmark = pytest.mark.django_db(transaction=True)


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
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "session/token" in request.url else None)
    page.route(SEIZE, lambda route: route.fulfill(**refusal), times=1)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    assert len(asked) == 1


def test_page_that_slept_asks_for_the_time_before_it_goes_on(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7)
    expect(button(page, activity)).to_have_text("Seize")
    with page.expect_response(LIST, timeout=10_000):
        pass  # the next one would come 4 s later at the earliest
    with page.expect_response(LIST, timeout=2_000) as response:
        # The steady counter of some devices stands still while they sleep; the other clock goes on.
        page.evaluate("() => { const now = Date.now; Date.now = () => now() + 90_000; }")
    assert b'"server_time"' in response.value.body(), "an answer without a body tells no time"
    expect(button(page, activity)).to_have_text("Seize")


def test_server_that_is_busy_for_long_is_not_called_unsure_and_says_when_to_press(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7)
    asked: list[str] = []

    def busy(route: Route) -> None:
        asked.append(route.request.url)
        route.fulfill(status=503, headers={"Retry-After": "120"}, body='{"code": "BUSY", "title": "Too busy."}')

    page.route(SEIZE, busy)
    press(page, activity)
    expect(card(page, activity).locator("[data-note]")).to_have_text(
        "Many press at once. Nothing is lost: please press again."
    )
    expect(button(page, activity)).to_have_text(re.compile(r"Again in (120|119|118) s"))
    expect(button(page, activity)).to_have_attribute("aria-disabled", "true")
    assert len(asked) == 1


def test_wait_counts_down_by_itself_and_is_announced_once_whatever_the_clock_says(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7)
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    page.evaluate("""() => {
        window.heard = [];
        const said = document.querySelector("[data-said]");
        new MutationObserver(() => heard.push(said.textContent)).observe(said, { childList: true });
    }""")
    busy = {"status": 503, "headers": {"Retry-After": "4"}, "body": '{"code": "BUSY", "title": "Too busy."}'}
    page.route(SEIZE, lambda route: route.fulfill(**busy), times=2)
    press(page, activity)
    expect(button(page, activity)).to_have_text(re.compile(r"Trying again in [3-5] s"))
    later = (timezone.now() + timedelta(seconds=60)).isoformat()
    listed = page.request.get("/market/consumer/activity/list").json()
    page.route(LIST, lambda route: route.fulfill(json={**listed, "server_time": later}))
    look(page)
    page.evaluate("document.querySelector('[data-press]').textContent = ''")
    expect(button(page, activity)).to_have_text(re.compile(r"Trying again in [1-4] s"), timeout=1_900)
    expect(button(page, activity)).to_have_text("Yours", timeout=20_000)
    assert page.evaluate("heard") == [
        "Many press at once. Nothing is lost; asking again for you.", "You got it: 双十二"
    ]  # fmt: skip


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_nothing_moves_while_an_answer_is_awaited(shopper, worker, language):
    activity, below = offer(name="双十二"), offer(name="满减")
    page = shopper(7, language=language)

    def places() -> list[float]:
        return [
            locator.bounding_box()["y"] for one in (activity, below) for locator in (card(page, one), button(page, one))
        ]

    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    before = places()
    note = card(page, activity).locator("[data-note]")
    page.route(SEIZE, lambda route: route.fulfill(status=503, headers={"Retry-After": "2"}, body="{}"), times=1)
    press(page, activity)
    expect(note).to_contain_text(re.compile("asking again for you|正在为您重试"))
    assert places() == before
    page.route(SEIZE, lambda route: route.fulfill(status=503, headers={"Retry-After": "200"}, body="{}"))
    expect(note).to_contain_text(re.compile("please press again|请再按一次"), timeout=10_000)
    assert places() == before
    for words in page.evaluate("Object.values(JSON.parse(document.getElementById('words').textContent))"):
        note.evaluate("(note, words) => { note.textContent = words; }", words)
        assert places() == before, words


# -- The token and the wallet ---------------------------------------------------------------------------


def test_server_that_gives_no_token_is_busy_and_asked_again_when_it_says(shopper, worker):
    """Nothing was pressed yet, so nothing is unsure."""
    activity = offer(name="双十二", per_user_limit=3)
    page = shopper(7, "/login")
    asked: list[float] = []

    def busy(route: Route) -> None:
        asked.append(time.monotonic())
        route.fulfill(status=503, headers={"Retry-After": "3", "Content-Type": "application/problem+json"}, body="{}")

    page.route("**/session/token", busy)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "coupon/seize" in request.url else None)
    page.goto("/")
    press(page, activity)
    note = card(page, activity).locator("[data-note]")
    expect(note).to_have_text("Many press at once. Nothing is lost; asking again for you.")
    expect(button(page, activity)).to_have_text(re.compile(r"Trying again in [1-4] s"))
    assert sent == []
    del asked[:-1]
    page.wait_for_timeout(2_000)
    assert len(asked) == 1, "the server said 3 s"
    page.unroute("**/session/token")
    expect(note).to_have_text("You have 1 of 3.", timeout=10_000)
    assert len(sent) == 1


def test_wallet_that_did_not_answer_is_asked_again_until_it_has(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    issued(activity, seq=1)
    page = shopper(7, "/login")
    page.route(
        "**/coupon/my",
        lambda route: route.fulfill(status=503, headers={"Retry-After": "2"}, body='{"code": "LEDGER_UNAVAILABLE"}'),
        times=1,
    )
    page.goto("/")
    expect(card(page, activity).locator("[data-note]")).to_have_text("You have 1 of 3.", timeout=20_000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "coupon/my" in request.url else None)
    with page.expect_response("**/activity/list"):
        pass
    with page.expect_response("**/activity/list"):
        pass
    assert asked == [], "what is known is not asked for again"
