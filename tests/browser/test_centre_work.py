"""The work that an activity asks of a device: when it is done, how often it is tried, and for whom."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Route, expect
from services import PATIENCE_S

from activities.access import activity_access_change
from activities.models import Activity, Coupon
from tests.browser.centre_page import asked, button, card, come_before_start, hold, hour_ahead, press, until
from tests.factories import offer

pytestmark = pytest.mark.django_db(transaction=True)
CHALLENGE = "**/market/consumer/activity/*/challenge"
SOLVER = "**/solver*.js"
TOKEN = "**/session/token"
WORKING = "Your device solves a small puzzle first. Please wait a moment."


def challenged(*, effort: int = 2000, **fields: object) -> Activity:
    """An activity that asks for work, on now for a long time unless it is told otherwise."""
    activity = offer(**{"name": "双十二", "starts_at": timezone.now() - timedelta(minutes=10), **fields})
    activity_access_change(
        activity_id=activity.pk, values={"challenge": "ALWAYS", "challenge_effort": effort}, now=timezone.now()
    )
    return activity


def changed(route: Route, before: str) -> None:
    """A script with something before it."""
    code = route.fetch().text()
    headers = {"Cache-Control": "no-store"}
    route.fulfill(content_type="text/javascript", headers=headers, body=f"{before}\n{code}")


def without_crypto(route: Route) -> None:
    """The worker as it is without TLS."""
    changed(route, "Object.defineProperty(crypto, 'subtle', { value: undefined });")


# -- How often it is tried ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "answer", "counted", "most"),
    [
        (SOLVER, without_crypto, "/challenge", 2),
        (SOLVER, lambda route: route.abort(), "/challenge", 2),
        (CHALLENGE, lambda route: route.fulfill(status=404, json={"code": "NOT_FOUND"}), "/challenge", 4),
        (CHALLENGE, lambda route: route.fulfill(status=503, json={"code": "BUSY"}), "/challenge", 5),
        # The coupons that this shopper has are asked for with it as well.
        (TOKEN, lambda route: route.fulfill(status=503, json={}), "/session/token", 7),
    ],
    ids=["no crypto", "no worker", "no challenge", "busy", "no token"],
)
def test_work_that_comes_to_nothing_is_tried_ever_more_rarely(shopper, worker, pattern, answer, counted, most):
    activity = challenged(**hour_ahead())
    page = shopper(7, "/login", stopped=True)
    page.route(pattern, answer)
    come_before_start(page, activity, ms=120_000)
    found = asked(page, counted)
    page.clock.fast_forward(101_000)  # by then every device has begun
    expect(button(page, activity)).to_have_text("Not started")
    until(page, lambda: found, what=counted)
    for _second in range(10):
        page.wait_for_timeout(100)  # for what was begun to come to nothing
        page.clock.run_for(1_000)
    assert 1 <= len(found) <= most, found


def test_page_whose_device_cannot_do_the_work_gives_it_up_for_good(shopper, worker):
    activity, other = challenged(), challenged(name="双十一")
    page = shopper(7, "/login")
    page.route(SOLVER, without_crypto)
    page.goto("/")
    found = asked(page, "/challenge")
    for one in (activity, other):
        press(page, one)
        expect(card(page, one).locator("[data-note]")).to_contain_text("Solve a challenge first")
    assert len(found) == 2
    for one in (activity, other):
        card(page, one).locator("h2").hover()
        button(page, one).hover()
    page.wait_for_timeout(3_000)
    assert len(found) == 2


# -- When it is done ------------------------------------------------------------------------------------


def test_idle_page_asks_for_no_challenge_and_one_that_is_approached_for_one(shopper, worker):
    activity = challenged()
    page = shopper(7, "/login", view="desk", stopped=True)
    found = asked(page, "/challenge")
    page.goto("/")
    expect(button(page, activity)).to_have_text("Seize")
    page.clock.run_for(2_500)
    page.wait_for_timeout(200)
    assert found == []
    with page.expect_response(CHALLENGE):
        button(page, activity).hover()
    page.clock.fast_forward(200_000)  # what was done is too old by now
    page.clock.run_for(2_500)
    page.wait_for_timeout(200)
    assert len(found) == 1, "nobody pressed"
    card(page, activity).locator("h2").hover()
    with page.expect_response(CHALLENGE):
        button(page, activity).focus()
    with page.expect_request("**/coupon/seize") as sent:
        page.keyboard.press("Enter")
    assert sent.value.post_data_json["altcha"]
    expect(button(page, activity)).to_have_text("Yours")
    assert len(found) == 2


def test_page_that_nobody_sees_does_no_work(shopper, worker):
    activity = challenged(**hour_ahead())
    page = shopper(7, "/login", stopped=True)
    page.add_init_script("""
        window.isAway = false;
        Object.defineProperty(document, "hidden", { get: () => window.isAway });
    """)
    found = asked(page, "/challenge")
    come_before_start(page, activity, ms=120_000)
    page.evaluate("window.isAway = true; document.dispatchEvent(new Event('visibilitychange'))")
    page.clock.fast_forward(105_000)
    button(page, activity).focus()
    page.clock.run_for(2_500)
    page.wait_for_timeout(200)
    assert found == []
    with page.expect_response(CHALLENGE):
        page.evaluate("window.isAway = false; document.dispatchEvent(new Event('visibilitychange'))")
        page.clock.run_for(300)


def test_press_while_the_work_is_under_way_takes_what_is_coming_and_says_why_it_waits(shopper, worker):
    activity = challenged()
    page = shopper(7)
    held = hold(page, CHALLENGE)
    found, sent = asked(page, "/challenge"), asked(page, "/coupon/seize")
    button(page, activity).hover()
    press(page, activity)
    note = card(page, activity).locator("[data-note]")
    expect(note).to_have_text(WORKING)
    expect(page.locator("[data-said]")).to_have_text(WORKING)
    until(page, lambda: held, what="the challenge to be asked for")
    held[0].continue_()
    expect(button(page, activity)).to_have_text("Yours")
    expect(note).to_have_text("You have 1 of 1.")
    assert (len(found), len(sent)) == (1, 1)


# -- For whom -------------------------------------------------------------------------------------------


def test_press_that_still_works_is_given_up_when_another_shopper_logs_in(shopper, worker):
    activity = challenged()
    page = shopper(7)
    page.route(CHALLENGE, lambda _route: None)  # it is not answered
    sent = asked(page, "/coupon/seize")
    press(page, activity)
    expect(card(page, activity).locator("[data-note]")).to_have_text(WORKING)
    other = page.context.new_page()
    other.goto("/login")
    other.get_by_role("button", name="Enter as shopper 1001").click()
    expect(button(other, activity)).to_have_text("Seize")
    # At once, not when the answer has come.
    expect(button(page, activity)).to_have_text("Seize")
    expect(card(page, activity).locator("[data-note]")).not_to_have_text(WORKING)
    page.unroute(CHALLENGE)
    page.wait_for_timeout(1_500)
    assert (sent, Coupon.objects.count()) == ([], 0)
    card(page, activity).locator("h2").hover()
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    page.goto("/coupons")
    expect(page.locator("[data-state=issued]")).to_have_count(1)
    assert Coupon.objects.get().user_id == 1001


def test_token_that_was_on_its_way_when_another_shopper_logged_in_is_nobodys(shopper, worker):
    """Or this page would press as 7 for 1001, or send the press of 7 in the name of 1001."""
    activity = offer(name="双十二")
    page = shopper(7, "/login")
    held: list[Route] = []
    is_over = False
    page.route(TOKEN, lambda route: route.continue_() if is_over else held.append(route))
    page.goto("/")
    press(page, activity)
    expect(button(page, activity)).to_have_text("Seizing…")
    until(page, lambda: held, what="the token to be asked for")
    is_over = True
    old = [route.fetch() for route in held]
    sent = asked(page, "/coupon/seize")
    other = page.context.new_page()
    other.goto("/login")
    other.get_by_role("button", name="Enter as shopper 1001").click()
    expect(button(other, activity)).to_have_text("Seize")
    for route, answer in zip(held, old, strict=True):
        route.fulfill(response=answer)
    expect(button(page, activity)).to_have_text("Seize")
    page.wait_for_timeout(1_000)
    assert sent == []
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    page.goto("/coupons")
    expect(page.locator("[data-state=issued]")).to_have_count(1)
    assert Coupon.objects.get().user_id == 1001


# -- The worker -----------------------------------------------------------------------------------------

# What it is told while it works at the first thing it is told before anything is done, however slow this page is.
GATED = """
    const gate = new BroadcastChannel("gate"), digest = crypto.subtle.digest.bind(crypto.subtle);
    let open;
    const opened = new Promise((resolve) => { open = resolve; });
    gate.onmessage = () => open();
    crypto.subtle.digest = (...given) => {
      gate.postMessage("begun");
      crypto.subtle.digest = (...more) => opened.then(() => digest(...more));
      return crypto.subtle.digest(...given);
    };
"""
LINE = """
    async ([steps, patience]) => {
      const hash = async (text) => Array.from(
        new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))),
        (byte) => byte.toString(16).padStart(2, "0"),
      ).join("");
      const job = async (id, number, maxnumber) => ({ id, salt: id, challenge: await hash(id + number), maxnumber });
      const jobs = {
        slow: await job("slow", 40_000, 50_000), quick: await job("quick", 3_000, 50_000),
        endless: await job("endless", -1, 1e9), none: await job("none", -1, 600),
      };
      const gate = new BroadcastChannel("gate"), worker = new Worker(document.body.dataset.solver), told = [];
      const begun = new Promise((resolve) => { gate.onmessage = resolve; });
      const wanted = steps.at(-1).length;
      const all = new Promise((resolve) => {
        worker.onmessage = ({ data }) => { if (told.push([data.id, data.number]) >= wanted) resolve(); };
      });
      for (const step of steps) {
        worker.postMessage(step.map((name) => jobs[name]));
        await begun;
      }
      gate.postMessage("open");
      await Promise.race([all, new Promise((resolve) => setTimeout(resolve, patience))]);
      worker.terminate();
      return told;
    }
"""


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([["slow", "quick"]], [["slow", 40_000], ["quick", 3_000]]),
        ([["slow"], ["quick", "slow"]], [["quick", 3_000], ["slow", 40_000]]),
        ([["endless", "slow"], ["quick"]], [["quick", 3_000]]),
        ([["none", "quick"]], [["none", None], ["quick", 3_000]]),
    ],
    ids=["in turn", "pressed first", "dropped", "without a number"],
)
def test_worker_works_at_one_challenge_at_a_time(shopper, steps, told):
    page = shopper(7)
    page.route(SOLVER, lambda route: changed(route, GATED))
    assert page.evaluate(LINE, [steps, PATIENCE_S * 1000]) == told


def test_pressed_card_comes_before_what_is_prepared(shopper, worker):
    """The other one's would take this device for ever: no time passes in which it would be given up."""
    slow, activity = challenged(name="双十一"), challenged()
    page = shopper(7, stopped=True)
    page.route(
        f"**/activity/{slow.pk}/challenge",
        lambda route: route.fulfill(json={
            "algorithm": "SHA-256", "challenge": "00" * 32, "maxnumber": 10**9, "salt": "salt", "signature": "none",
        }),
    )  # fmt: skip
    with page.expect_response(CHALLENGE):
        button(page, slow).hover()
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")


def test_worker_that_tells_nothing_is_replaced(shopper, worker):
    activity = challenged()
    page = shopper(7, "/login")
    page.add_init_script("""
        const set = window.setTimeout;
        let watches = 0; // only the first worker tells nothing
        window.setTimeout = (then, ms, ...rest) => set(then, ms === 30_000 && !watches++ ? 1_000 : ms, ...rest);
    """)
    dead = {"content_type": "text/javascript", "headers": {"Cache-Control": "no-store"}, "body": ""}
    page.route(SOLVER, lambda route: route.fulfill(**dead), times=1)
    page.goto("/")
    press(page, activity)
    expect(card(page, activity).locator("[data-note]")).to_have_text(re.compile(WORKING))
    expect(button(page, activity)).to_have_text("Yours")
