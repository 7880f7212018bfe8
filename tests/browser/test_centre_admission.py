"""What an activity asks of a shopper's device, and to whom it is open, as the page shows it."""

import base64
import json
import re

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from activities.access import activity_access_change, activity_listed_replace
from activities.models import Listed
from tests.browser.centre_page import (
    LIST,
    SEIZE,
    begin,
    button,
    card,
    come_before_start,
    hour_ahead,
    look,
    press,
)
from tests.factories import offer

pytestmark = pytest.mark.django_db(transaction=True)
CHALLENGE = "**/market/consumer/activity/*/challenge"


def access(activity, **values):
    activity_access_change(activity_id=activity.pk, values=values, now=timezone.now())


def watched(page) -> list[dict]:
    """The bodies of the presses from now on."""
    sent: list[dict] = []
    page.on("request", lambda asked: sent.append(asked.post_data_json) if "coupon/seize" in asked.url else None)
    return sent


def test_challenge_is_solved_while_the_countdown_runs_and_one_press_is_enough(shopper, worker, seen):
    activity = offer(name="双十二", **hour_ahead())
    access(activity, challenge="ALWAYS", challenge_effort=5000)
    page = shopper(7, "/login", stopped=True)
    sent = watched(page)
    come_before_start(page, activity, ms=120_000)
    with page.expect_response(CHALLENGE) as got:
        page.clock.fast_forward(112_000)
    assert got.value.status == 200
    expect(button(page, activity)).to_have_text("Not started")
    page.route(CHALLENGE, lambda route: route.abort())  # it needs no other
    page.clock.run_for(8_001)
    expect(button(page, activity)).to_have_text("Seize")
    begin(activity)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    assert len(sent) == 1
    solution = json.loads(base64.b64decode(sent[0]["altcha"]))
    assert solution["challenge"] == got.value.json()["challenge"]
    seen(page, "centre-challenge")


def test_challenge_that_begins_in_a_sale_is_solved_at_the_press_and_each_coupon_takes_one(shopper, worker):
    activity = offer(name="双十二", per_user_limit=2)
    page = shopper(7)
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    page.route("**/market/consumer/activity/list", lambda route: route.abort())
    access(activity, challenge="ALWAYS", challenge_effort=2000)
    sent = watched(page)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Seize another")
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    solved = [body.get("altcha") for body in sent]
    assert [body["seq"] for body in sent] == [1, 1, 2, 2]
    assert [bool(text) for text in solved] == [False, True, False, True]
    assert len(set(solved)) == 3


def test_device_that_cannot_do_the_work_is_told_so_and_presses_no_more_than_a_few_times(shopper, worker):
    activity = offer(name="双十二")
    access(activity, challenge="ALWAYS", challenge_effort=2000)
    page = shopper(7, "/login")
    page.route("**/solver*.js", lambda route: route.abort())
    page.goto("/")
    sent = watched(page)
    press(page, activity)
    expect(card(page, activity).locator("[data-note]")).to_contain_text("Solve a challenge first")
    assert 1 <= len(sent) <= 2, "it is known by then that the device cannot"


def test_lost_answer_to_a_solved_challenge_is_asked_again_and_found(shopper, worker):
    activity = offer(name="双十二")
    access(activity, challenge="ALWAYS", challenge_effort=2000)
    page = shopper(7)
    lost = []

    def lose_first(route):
        if lost:
            route.continue_()
            return
        lost.append(route.request.post_data_json)
        route.fetch()  # it arrives, and its answer does not
        route.abort("connectionreset")

    page.route(SEIZE, lose_first)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    assert lost[0]["altcha"]


def test_coming_soon_stays_closed_to_those_who_are_not_let_in_and_opens_to_those_who_are(shopper, worker, seen):
    activity = offer(name="双十二")
    access(activity, gray_percent=0, coming_soon=True)
    activity_listed_replace(activity_id=activity.pk, verdict=Listed.Verdict.ALLOW, user_ids=[7], now=timezone.now())
    outside = shopper(8, "/?tab=upcoming")
    expect(button(outside, activity)).to_have_text("Coming soon")
    expect(button(outside, activity)).to_have_attribute("aria-disabled", "true")
    seen(outside, "centre-coming-soon")
    inside = shopper(7)
    with inside.expect_response("**/market/consumer/activity/list"):
        inside.evaluate("dispatchEvent(new Event('online'))")
    press(inside, activity)
    expect(button(inside, activity)).to_have_text("Yours")


def test_activity_that_is_hidden_is_not_on_the_page_and_its_address_leads_nowhere(shopper, worker):
    activity, other = offer(name="双十二"), offer(name="双十一")
    access(activity, gray_percent=0)
    page = shopper(7)
    expect(card(page, other)).to_be_visible()
    expect(card(page, activity)).to_have_count(0)
    assert page.goto(f"/activity/{activity.pk}").status == 404


def test_who_is_kept_out_while_the_page_is_open_is_told_at_the_press(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7)
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    page.route("**/market/consumer/activity/list", lambda route: route.abort())
    access(activity, gray_percent=0)
    press(page, activity)
    expect(card(page, activity).locator("[data-note]")).to_contain_text("not to you")
    expect(button(page, activity)).to_have_text("Not open to you")
    expect(button(page, activity)).to_have_attribute("aria-disabled", "true")
    page.unroute(LIST)
    look(page)  # which has it no more
    expect(button(page, activity)).to_have_text("Not open to you")
    activity_listed_replace(activity_id=activity.pk, verdict=Listed.Verdict.ALLOW, user_ids=[7], now=timezone.now())
    expect(button(page, activity)).to_have_text("Seize")
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")


# -- A release that begins while pages are open ---------------------------------------------------------


def released(activity, *, to: int) -> None:
    access(activity, gray_percent=0)
    activity_listed_replace(activity_id=activity.pk, verdict=Listed.Verdict.ALLOW, user_ids=[to], now=timezone.now())


def texts_of(page, activity) -> None:
    """Keep all that the button says from now on."""
    button(page, activity).evaluate("""(button) => {
      window.texts = [];
      new MutationObserver(() => texts.push(button.textContent)).observe(button, { childList: true });
    }""")


def test_list_that_is_not_everybodys_is_asked_for_as_the_shopper_before_any_card_is_told(shopper, worker):
    activity = offer(name="双十二")
    page, stranger = shopper(7), shopper(8)
    for one in (page, stranger):
        expect(button(one, activity)).to_have_text("Seize")
        texts_of(one, activity)
    released(activity, to=7)
    expect(button(stranger, activity)).to_have_text("Ended")
    page.wait_for_timeout(1_000)
    look(page)
    look(page)
    assert page.evaluate("texts") == []
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")


def test_page_of_an_activity_that_is_not_everybodys_any_more_stays_open_to_whom_it_is_open(shopper, worker):
    activity = offer(name="双十二")
    page, stranger = shopper(7, f"/activity/{activity.pk}"), shopper(8, f"/activity/{activity.pk}")
    for one in (page, stranger):
        expect(button(one, activity)).to_have_text("Seize")
    texts_of(page, activity)
    released(activity, to=7)
    expect(button(stranger, activity)).to_have_text("Ended")
    for _look in range(2):
        look(page, at=f"**/market/consumer/activity/{activity.pk}")
    page.wait_for_timeout(1_000)
    assert page.evaluate("texts") == []
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")


def test_who_asks_too_often_is_told_so_and_who_meets_a_crowd_that(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7, stopped=True)
    note = card(page, activity).locator("[data-note]")

    def refused(policy: str, after: int) -> None:
        page.route(SEIZE, lambda route: route.fulfill(
            status=429, headers={"Retry-After": str(after), "RateLimit": f'"{policy}";r=0;t={after}'},
            json={"code": "TOO_MANY_REQUESTS", "title": "Too many requests. Please slow down."},
        ), times=1)  # fmt: skip

    refused("activity", 2)
    press(page, activity)
    expect(note).to_have_text("Many press at once. Nothing is lost; asking again for you.")
    refused("shopper", 200)
    page.clock.run_for(2_501)
    expect(note).to_have_text("You asked very often. Please wait a moment.")
    expect(button(page, activity)).to_have_text(re.compile(r"Again in \d+ s"))
