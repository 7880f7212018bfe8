"""The coupon centre over networks that lose answers, and beside servers that are busy or hang."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Route, expect

from tests.browser.centre_page import LIST, SEIZE, asked, button, card, hold, look, pass_until, press, until
from tests.factories import issued, offer

pytestmark = pytest.mark.django_db(transaction=True)
TOKEN = "**/session/token"


def test_network_cut_after_sending_asks_again_and_shows_what_was_won(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    page = shopper(7, stopped=True)
    answers: list[int] = []

    def lose(route: Route) -> None:
        answers.append(route.fetch().status)
        route.abort("connectionreset")

    page.route(SEIZE, lose, times=2)
    press(page, activity)
    expect(card(page, activity).locator("[data-note]")).to_have_text("No answer came. Asking whether it is yours…")
    expect(button(page, activity)).to_have_text("Trying again in 1 s")
    page.clock.run_for(1_001)
    expect(button(page, activity)).to_have_text("Trying again in 2 s")
    page.clock.run_for(2_001)
    expect(card(page, activity).locator("[data-note]")).to_have_text("You have 1 of 3.")
    assert answers == [201, 200]
    page.clock.resume()
    page.goto("/coupons")
    expect(page.locator("[data-state=issued]")).to_have_count(1)


def test_slow_network_says_that_it_is_under_way_and_sends_one_press(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    page = shopper(7)
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    held = hold(page, SEIZE)
    sent = asked(page, "coupon/seize")
    button(page, activity).click()
    expect(button(page, activity)).to_have_text("Seizing…")
    button(page, activity).click(force=True)
    until(page, lambda: held, what="the press to be sent")
    assert min(page.evaluate("patience")) >= 8_000, "a network of 2.5 s each way is not given up"
    expect(button(page, activity)).to_have_text("Seizing…")
    held[0].continue_()
    expect(card(page, activity).locator("[data-note]")).to_have_text("You have 1 of 3.")
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
    expect(card(page, activity).locator("[data-left-text]")).to_have_text("0 left")
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")


def test_busy_server_is_asked_again_when_it_says_and_not_before(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7, stopped=True)
    busy = {"status": 503, "headers": {"Retry-After": "2"}, "body": '{"code": "BUSY", "title": "Too busy."}'}
    page.route(SEIZE, lambda route: route.fulfill(content_type="application/problem+json", **busy), times=2)
    sent = asked(page, "coupon/seize")
    press(page, activity)
    for already in (1, 2):
        expect(button(page, activity)).to_have_text(re.compile(r"Trying again in [23] s"))
        page.clock.run_for(1_999)
        expect(button(page, activity)).to_have_text(re.compile(r"Trying again in [12] s"))
        assert len(sent) == already
        page.clock.run_for(502)  # a crowd does not come back as one
        until(page, lambda already=already: len(sent) == already + 1, what="the press to be sent again")
    expect(button(page, activity)).to_have_text("Yours")
    assert len(sent) == 3


def test_token_that_ran_out_is_renewed_without_a_word(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7)
    refusal = {"status": 401, "content_type": "application/problem+json", "body": '{"code": "UNAUTHENTICATED"}'}
    renewed = asked(page, "session/token")
    page.route(SEIZE, lambda route: route.fulfill(**refusal), times=1)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    assert len(renewed) == 1


def test_page_that_slept_asks_for_the_time_before_it_goes_on(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7, stopped=True)
    expect(button(page, activity)).to_have_text("Seize")
    # The steady counter of some devices stands still while they sleep; the other clock goes on.
    page.evaluate("() => { const now = Date.now; Date.now = () => now() + 90_000; }")
    with page.expect_response(LIST) as response:
        page.clock.run_for(1_001)  # the next one would come 4 s later at the earliest
    assert b'"server_time"' in response.value.body(), "an answer without a body tells no time"
    expect(button(page, activity)).to_have_text("Seize")


def test_server_that_is_busy_for_long_is_not_called_unsure_and_says_when_to_press(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7, stopped=True)
    busy = {"status": 503, "headers": {"Retry-After": "120"}, "body": '{"code": "BUSY", "title": "Too busy."}'}
    page.route(SEIZE, lambda route: route.fulfill(**busy))
    sent = asked(page, "coupon/seize")
    press(page, activity)
    expect(card(page, activity).locator("[data-note]")).to_have_text(
        "Many press at once. Nothing is lost: please press again."
    )
    expect(button(page, activity)).to_have_text(re.compile(r"Again in 12[01] s"))
    expect(button(page, activity)).to_have_attribute("aria-disabled", "true")
    assert len(sent) == 1


def test_wait_counts_down_by_itself_and_is_announced_once_whatever_the_clock_says(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7, stopped=True)
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    page.evaluate("""() => {
        window.heard = [];
        const said = document.querySelector("[data-said]");
        new MutationObserver(() => heard.push(said.textContent)).observe(said, { childList: true });
    }""")
    busy = {"status": 503, "headers": {"Retry-After": "4"}, "body": '{"code": "BUSY", "title": "Too busy."}'}
    page.route(SEIZE, lambda route: route.fulfill(**busy), times=2)
    press(page, activity)
    expect(button(page, activity)).to_have_text(re.compile(r"Trying again in [45] s"))
    later = (timezone.now() + timedelta(seconds=60)).isoformat()
    listed = page.request.get("/market/consumer/activity/list").json()
    page.route(LIST, lambda route: route.fulfill(json={**listed, "server_time": later}))
    look(page, passing_ms=300)
    page.evaluate("document.querySelector('[data-press]').textContent = ''")
    page.clock.run_for(1_000)
    expect(button(page, activity)).to_have_text(re.compile(r"Trying again in [34] s"))
    page.clock.run_for(3_201)
    expect(button(page, activity)).to_have_text(re.compile(r"Trying again in [45] s"))
    page.clock.run_for(4_501)
    expect(button(page, activity)).to_have_text("Yours")
    assert page.evaluate("heard") == [
        "Many press at once. Nothing is lost; asking again for you.", "You got it: 双十二"
    ]  # fmt: skip


@pytest.mark.parametrize("language", ["en", "zh-CN"])
def test_nothing_moves_while_an_answer_is_awaited(shopper, worker, language):
    activity, below = offer(name="双十二"), offer(name="满减")
    page = shopper(7, language=language, stopped=True)

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
    page.clock.run_for(2_501)
    expect(note).to_contain_text(re.compile("please press again|请再按一次"))
    assert places() == before
    for words in page.evaluate("Object.values(JSON.parse(document.getElementById('words').textContent))"):
        note.evaluate("(note, words) => { note.textContent = words; }", words)
        assert places() == before, words


# -- The token and the wallet ---------------------------------------------------------------------------


def test_server_that_gives_no_token_is_busy_and_asked_again_when_it_says(shopper, worker):
    """Nothing was pressed yet, so nothing is unsure."""
    activity = offer(name="双十二", per_user_limit=3)
    page = shopper(7, "/login", stopped=True)
    busy = {"status": 503, "headers": {"Retry-After": "3"}, "body": "{}"}
    page.route(TOKEN, lambda route: route.fulfill(content_type="application/problem+json", **busy))
    sent = asked(page, "coupon/seize")
    page.goto("/")
    press(page, activity)
    note = card(page, activity).locator("[data-note]")
    expect(note).to_have_text("Many press at once. Nothing is lost; asking again for you.")
    expect(button(page, activity)).to_have_text(re.compile(r"Trying again in [34] s"))
    again = asked(page, "session/token")
    page.clock.run_for(2_999)
    expect(button(page, activity)).to_have_text(re.compile(r"Trying again in [12] s"))
    assert (sent, again) == ([], []), "the server said 3 s"
    page.unroute(TOKEN)
    page.clock.run_for(502)
    expect(note).to_have_text("You have 1 of 3.")
    assert len(sent) == 1


def test_wallet_that_did_not_answer_is_asked_again_until_it_has(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    issued(activity, seq=1)
    page = shopper(7, "/login", stopped=True)
    page.route(
        "**/coupon/my",
        lambda route: route.fulfill(status=503, headers={"Retry-After": "2"}, body='{"code": "LEDGER_UNAVAILABLE"}'),
        times=1,
    )
    page.goto("/")
    pass_until(page, card(page, activity).locator("[data-note]"), "You have 1 of 3.")
    again = asked(page, "coupon/my")
    for _look in range(2):
        look(page, passing_ms=300)
    assert again == [], "what is known is not asked for again"
