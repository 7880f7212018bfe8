"""The coupon centre as shoppers press it: by the server's clock, over networks that lose answers, in many windows."""

import re
import time
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect
from services import wait_until

from activities import services
from activities.models import Coupon
from seize.outcomes import Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.browser.centre_page import (
    LIST,
    MINE,
    asked,
    begin,
    button,
    card,
    come_before_start,
    hour_ahead,
    look,
    pass_until,
    press,
)
from tests.factories import offer

pytestmark = pytest.mark.django_db(transaction=True)


# -- The second of the start ----------------------------------------------------------------------------


@pytest.mark.parametrize("wrong_by_h", [-1, 0, 1])
def test_button_opens_by_the_servers_clock_and_the_win_is_in_my_coupons_at_once(shopper, worker, seen, wrong_by_h):
    activity = offer(name="双十二", **hour_ahead())
    page = shopper(7, "/login", stopped=True, ahead_h=wrong_by_h)
    sent = asked(page, "coupon/seize")
    come_before_start(page, activity, ms=9_000)
    note = card(page, activity).locator("[data-note]")
    expect(note).to_have_text("Starts in 00:00:09")
    expect(button(page, activity)).to_have_text("Not started")
    seen(page, f"centre-countdown-{wrong_by_h}")
    button(page, activity).click(force=True)
    page.clock.run_for(8_999)
    expect(note).to_have_text("Starts in 00:00:01")
    expect(button(page, activity)).to_have_text("Not started")
    button(page, activity).click(force=True)
    page.clock.run_for(2)
    expect(button(page, activity)).to_have_text("Seize")
    assert sent == [], "pressed too early, and sent all the same"
    begin(activity)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    page.clock.resume()
    page.goto("/coupons")
    expect(page.locator("[data-coupon]")).to_have_count(1)
    expect(page.locator("[data-state=issued]")).to_have_count(1)
    assert Coupon.objects.get().user_id == 7


def test_paused_mid_sale_says_when_to_try_again_and_goes_on_after_resume(shopper, worker):
    activity = offer(name="双十二")
    page = shopper(7, stopped=True)
    note = card(page, activity).locator("[data-note]")
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    page.route(LIST, lambda route: route.abort())  # the list must not tell it first
    services.activity_pause(activity_id=activity.pk, now=timezone.now())
    press(page, activity)
    expect(note).to_have_text("This activity is paused. Please try again later.")
    expect(button(page, activity)).to_have_text(re.compile(r"Again in \d+ s"))
    page.unroute(LIST)
    look(page, passing_ms=300)
    expect(button(page, activity)).to_have_text("Paused")
    expect(note).to_have_text("This activity is paused. Please try again later.")
    services.activity_resume(activity_id=activity.pk, now=timezone.now())
    pass_until(page, button(page, activity), "Seize")
    expect(note).not_to_contain_text("paused")
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")


# -- Who gets one ---------------------------------------------------------------------------------------


def test_sold_out_is_told_in_words_and_the_list_follows(shopper, worker, seen):
    activity = offer(name="双十二", stock_total=1)
    late = shopper(8)
    expect(button(late, activity)).to_have_attribute("aria-disabled", "false")
    late.route(LIST, lambda route: route.abort())  # the list must not tell it first
    first = shopper(7)
    press(first, activity)
    expect(button(first, activity)).to_have_text("Yours")
    press(late, activity)
    expect(button(late, activity)).to_have_text("Sold out")
    expect(card(late, activity).locator("[data-note]")).to_have_text("All coupons of this activity are gone.")
    expect(late.locator("[data-said]")).to_have_text(re.compile("All coupons of this activity are gone"))
    expect(card(first, activity).locator("[data-left-text]")).to_have_text("0 left")
    seen(late, "centre-sold-out")


def test_list_from_before_it_was_sold_out_does_not_open_it_again(shopper, worker):
    activity = offer(name="双十二", stock_total=1)
    page = shopper(8, "/login", stopped=True)
    with page.expect_response(LIST) as first:
        page.goto("/")
    old = first.value.body()
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    page.route(LIST, lambda route: route.fulfill(status=200, content_type="application/json", body=old))
    assert isinstance(coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7), Won)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Sold out")
    look(page, passing_ms=300)
    expect(button(page, activity)).to_have_text("Sold out")
    expect(card(page, activity).locator("[data-left-text]")).to_have_text("0 left")
    # A list that was asked for two seconds later may know of coupons that staff have added.
    pass_until(page, button(page, activity), "Seize")


def test_win_that_is_told_again_is_not_announced_as_a_new_one(shopper, worker):
    activity = offer(name="双十二", per_user_limit=3)
    assert isinstance(coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7), Won)
    page = shopper(7, "/login")
    page.route("**/coupon/my", lambda route: route.abort())
    page.goto("/")
    press(page, activity)
    expect(card(page, activity).locator("[data-note]")).to_have_text("You have 1 of 3.")
    expect(page.locator("[data-said]")).to_have_text("You have 1 of 3.")


def test_two_sales_that_begin_together_are_both_announced(shopper, worker):
    window = hour_ahead()
    for name in ("双十二", "满减"):
        activity = offer(name=name, **window)
    page = shopper(7, "/login", stopped=True)
    come_before_start(page, activity, ms=9_000)
    page.clock.run_for(9_001)
    expect(page.locator("[data-said]")).to_have_text("Open now: 双十二 Open now: 满减")


def test_page_follows_what_staff_change(shopper, worker):
    start = timezone.now() + timedelta(days=1)
    activity = offer(name="双十二")
    coming = offer(name="明日开抢", starts_at=start, ends_at=start + timedelta(hours=1))
    page = shopper(7)
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    when = card(page, activity).locator("[data-when]")
    shown = f"Until {timezone.localtime(activity.ends_at):%Y-%m-%d %H:%M}"
    expect(when).to_have_text(shown)
    ends_at = activity.ends_at + timedelta(days=2)
    services.activity_change_end(activity_id=activity.pk, ends_at=ends_at, now=timezone.now())
    services.activity_void(activity_id=coming.pk, reason="a mistake", now=timezone.now())
    expect(when).to_have_text(f"Until {timezone.localtime(ends_at):%Y-%m-%d %H:%M}")
    expect(page.locator("[data-number=upcoming]")).to_have_text("0")
    more = page.get_by_role("link", name="More has come up: show it")
    expect(more).to_be_hidden()
    newcomer = offer(name="加场")
    more.click()
    expect(button(page, newcomer)).to_have_text("Seize")
    expect(page.locator("[data-number=ongoing]")).to_have_text("2")
    expect(more).to_be_hidden()


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
    with two.expect_response(MINE):  # what it shows is from before
        two.goto("/")
    press(one, activity)
    press(two, activity)
    for page in (one, two):
        expect(button(page, activity)).to_have_text("Yours")
    one.goto("/coupons")
    expect(one.locator("[data-state=issued]")).to_have_count(1)
    assert Coupon.objects.count() == 1


def test_ids_of_nineteen_digits_stay_whole(shopper, worker):
    activity = offer(name="双十二", id=1234567890123456789)
    page = shopper(9223372036854775807)
    press(page, activity)
    expect(button(page, activity)).to_have_text("Yours")
    page.goto("/coupons")
    expect(page.locator("[data-state=issued]")).to_have_count(1)
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
        expect(button(page, activity)).to_have_text(re.compile("^(Yours|Sold out)$"))
    said = [button(page, activity).inner_text() for page in pages]
    assert (said.count("Yours"), said.count("Sold out")) == (5, 15)
    winners = {number for number, words in enumerate(said, start=1) if words == "Yours"}
    expect(pages[0].locator("[data-left-text]")).to_have_text("0 left")
    wait_until(lambda: Coupon.objects.count() >= 5, what="five coupons in the ledger")
    assert set(Coupon.objects.values_list("user_id", flat=True)) == winners
