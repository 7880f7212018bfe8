"""The back office as people use it: in a browser, by their roles."""

import re
import threading
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone
from playwright.sync_api import expect
from services import PATIENCE_S, wait_until

from activities import access
from activities.models import Activity, Coupon, Listed
from seize import counting
from seize.outcomes import Refusal, Won
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from tests.browser.conftest import violations, walk
from tests.factories import DraftFactory, issued, offer

pytestmark = pytest.mark.django_db(transaction=True)


def press(activity: Activity, user_id: int):
    return coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=user_id)


def follow(page, name: str) -> None:
    """Press a button of the page's head, and see where it leads."""
    with page.expect_navigation():
        page.get_by_role("link", name=name, exact=True).first.click()


def confirm(page) -> None:
    """Send the page's form; it is done when this returns."""
    with page.expect_navigation():
        page.locator("form button[type=submit]").last.click()


def button(page, name: str) -> None:
    """Press a button of the page's head, and confirm."""
    follow(page, name)
    confirm(page)


def test_author_makes_previews_and_submits_approver_approves_operator_runs_watches_and_voids_a_sale(
    staff, worker, seen
):
    author, approver, operator = staff("ann", "author"), staff("bob", "approver"), staff("eve", "operator")
    start = timezone.localtime(timezone.now() - timedelta(minutes=5))
    end = start + timedelta(days=1)

    author.goto("/admin/activities/activity/add/")
    author.fill("[name=name]", "Double Twelve")
    for name, moment in (("starts_at", start), ("ends_at", end)):
        author.fill(f"[name={name}_0]", moment.strftime("%Y-%m-%d"))
        author.fill(f"[name={name}_1]", moment.strftime("%H:%M:%S"))
    for name, value in {"min_spend": "100.00", "amount_off": "20.00", "stock_total": "3", "valid_days": "7"}.items():
        author.fill(f"[name={name}]", value)
    with author.expect_navigation():
        author.locator("[name=_continue]").click()
    activity = Activity.objects.get()
    assert (activity.status, activity.author.username) == ("DRAFT", "ann")
    seen(author, "draft")
    page_of_draft = author.url
    follow(author, "Preview")
    for text in ("20.00 off", "满100减20"):
        assert author.get_by_text(text).count() >= 1, text
    seen(author, "preview")
    author.goto(page_of_draft)
    button(author, "Submit")
    activity.refresh_from_db()
    assert activity.status == "SUBMITTED"
    assert author.get_by_role("link", name="Approve", exact=True).count() == 0

    approver.goto(f"/admin/activities/activity/{activity.pk}/change/")
    button(approver, "Approve")
    activity.refresh_from_db()
    assert (activity.status, activity.approved_by.username) == ("APPROVED", "bob")

    page = f"/admin/activities/activity/{activity.pk}/change/"
    operator.goto(page)
    button(operator, "Publish")
    wait_until(lambda: isinstance(press(activity, 1), Won), what="the sale to be open")

    watched = staff("una", "operator", view="phone", scheme="dark")
    live = f"/admin/activities/activity/{activity.pk}/live/"
    watched.goto(live)
    tile = watched.locator(".sale-card", has=watched.get_by_text("Won", exact=True)).locator(".sale-value").first
    expect(tile).to_have_text(re.compile(r"^\D*1$"))  # a coupon on its way to the ledger counts twice for a moment

    operator.goto(page)
    button(operator, "Pause")
    assert press(activity, 2).refusal is Refusal.PAUSED
    button(operator, "Resume")
    assert isinstance(press(activity, 2), Won)
    counting.flush()  # as each process does every second
    watched.wait_for_function("() => /\\D*2$/.test(document.querySelectorAll('.sale-value')[2].textContent)")
    refused = watched.locator(".sale-table", has=watched.get_by_text("PAUSED"))
    refused.wait_for()  # the page moves by itself
    seen(watched, "live")
    follow(operator, "Add stock")
    operator.fill("[name=amount]", "5")
    confirm(operator)
    activity.refresh_from_db()
    assert activity.stock_total == 8
    follow(operator, "Void")
    operator.fill("[name=name]", "Double Twelve")
    operator.fill("[name=reason]", "wrong price")
    confirm(operator)
    assert press(activity, 3).refusal is Refusal.VOIDED
    activity.refresh_from_db()
    assert (activity.status, activity.void_reason) == ("VOIDED", "wrong price")
    seen(operator, "voided")
    wait_until(lambda: Coupon.objects.count() == 2, what="both coupons in the ledger")
    operator.goto(f"/admin/activities/activity/{activity.pk}/report/")
    facts = {
        row.split("\t")[0]: row.split("\t")[1]
        for row in operator.locator(".sale-table tr").all_inner_texts()
        if "\t" in row
    }
    assert (facts["Voided"], facts["Redeemed"], facts["Unused"]) == ("2", "0", "0")
    seen(operator, "report")


def test_pause_stops_a_sale_under_load_at_once_and_resume_goes_on(staff, worker):
    activity = offer(name="Crowd", stock_total=1_000_000)
    over, is_paused = threading.Event(), threading.Event()
    won, told = [], []  # told: answers to those who pressed after the operator was told that it is paused

    def crowd() -> None:
        user_id = 0
        while not over.is_set():
            user_id += 1
            is_late = is_paused.is_set()
            answer = press(activity, user_id)
            if isinstance(answer, Won):
                won.append(user_id)
            if is_late:
                told.append(answer)

    thread = threading.Thread(target=crowd)
    thread.start()
    try:
        watched = staff("una", "support")
        watched.goto(f"/admin/activities/activity/{activity.pk}/live/")
        counting.counter.every_s = 1.0  # as in production, so that the page moves by itself
        shown = watched.locator(".sale-card", has=watched.get_by_text("Won", exact=True)).locator(".sale-value").first

        def number() -> int:
            return int(re.sub(r"\D", "", shown.inner_text()))

        for _look in range(3):
            before = number()
            wait_until(lambda before=before: number() > before, what="more on the page")
        wait_until(lambda: len(won) > 100, what="a crowd")
        operator = staff("eve", "operator")
        operator.goto(f"/admin/activities/activity/{activity.pk}/change/")
        button(operator, "Pause")
        is_paused.set()
        wait_until(lambda: len(told) > 100, what="a crowd before a sale that is paused")
        assert {getattr(answer, "refusal", "won") for answer in tuple(told)} == {Refusal.PAUSED}
        all_won = len(won)
        button(operator, "Resume")
        wait_until(lambda: len(won) > all_won, what="the sale to go on")
    finally:
        over.set()
        thread.join(PATIENCE_S)
        counting.counter.every_s = 0
    wait_until(lambda: Coupon.objects.count() == len(won), what="every win in the ledger")
    assert Activity.objects.get().issued == len(won)
    counting.flush()
    watched.wait_for_function(
        "(all) => document.querySelectorAll('.sale-value')[2].textContent.replace(/\\D/g, '') === all",
        arg=str(len(won)),
    )


def test_request_to_another_host_is_seen(context_new, site, foreign_requests):
    page = context_new().new_page()
    page.goto("/livez")
    with page.expect_event("request"):
        page.evaluate("void fetch('http://127.0.0.2:1/font.woff2').catch(() => null)")
    assert foreign_requests == ["http://127.0.0.2:1/font.woff2"]
    foreign_requests.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["phone", "desk"])
def test_main_pages_have_no_serious_violation_and_fit(staff, seen, view, scheme):
    boss = staff("boss", "boss", view=view, scheme=scheme)
    activity = offer(name="双十二 满100减20")
    issued(activity)
    draft = DraftFactory(name="Draft")
    access.activity_listed_replace(
        activity_id=activity.pk, verdict=Listed.Verdict.ALLOW, user_ids=range(1, 1235), now=timezone.now()
    )
    pages = {
        "activities": "/admin/activities/activity/",
        "activity": f"/admin/activities/activity/{activity.pk}/change/",
        "draft": f"/admin/activities/activity/{draft.pk}/change/",
        "coupons": "/admin/activities/coupon/",
        "audit": "/admin/activities/auditevent/",
        "keys": "/admin/activities/apikey/",
        "health": "/admin/sync/health/",
        "first page": "/admin/",
        "live": f"/admin/activities/activity/{activity.pk}/live/",
        "report": f"/admin/activities/activity/{activity.pk}/report/",
        "preview": f"/admin/activities/activity/{draft.pk}/preview/",
        "import": "/admin/activities/activity/import/",
        "access": f"/admin/activities/activity/{activity.pk}/access/",
        "access question": f"/admin/activities/activity/{activity.pk}/access/let-in/empty/",
    }
    assert walk(boss, pages, seen=seen, device=f"{view}-{scheme}") == dict.fromkeys(pages, 200)
    for name, content in {
        "access preview": b"user_id\n8888\n9223372036854775807\n",
        "access mistakes": b"seven\n8\n8\n",
    }.items():
        boss.goto(pages["access"])
        boss.set_input_files("#kept-out [name=file]", {"name": "list.csv", "mimeType": "text/csv", "buffer": content})
        boss.locator("#kept-out button[type=submit]").click()
        boss.get_by_text("In the file").wait_for()
        seen(boss, f"{name}-{view}-{scheme}")
        assert violations(boss) == [], name


def test_operator_narrows_a_sale_and_lets_shoppers_in_by_a_file(staff, worker, seen):
    activity = offer(name="Preview sale")
    operator = staff("eve", "operator")
    operator.goto(f"/admin/activities/activity/{activity.pk}/change/")
    operator.get_by_role("link", name="Access", exact=True).first.click()
    operator.fill("[name=gray_percent]", "0")
    operator.get_by_role("button", name="Save", exact=True).click()
    operator.get_by_text("Done: Access").first.wait_for()
    assert press(activity, 7).refusal is Refusal.NOT_ELIGIBLE
    file = {"name": "friends.csv", "mimeType": "text/csv", "buffer": "\ufeff用户 id\r\n7\r\n8\r\n".encode()}
    operator.set_input_files("#let-in [name=file]", file)
    operator.locator("#let-in button[type=submit]").click()
    operator.get_by_role("button", name="Replace the list").click()
    operator.get_by_text("Shoppers: 2", exact=True).wait_for()
    assert isinstance(press(activity, 7), Won)
    assert press(activity, 9).refusal is Refusal.NOT_ELIGIBLE
    with operator.expect_download() as download:
        operator.locator("#let-in").get_by_role("link", name="Download (CSV)").click()
    assert download.value.path().read_text(encoding="utf-8-sig").split() == ["user_id", "7", "8"]
    operator.goto(f"/admin/activities/activity/{activity.pk}/access/")
    operator.fill("[name=gray_percent]", "101")
    operator.get_by_role("button", name="Save", exact=True).click()
    operator.get_by_text("less than or equal to 100").wait_for()
    seen(operator, "access refused")


def test_log_in_without_a_page_in_mind_leads_to_the_first_page(context_new, site):
    user = get_user_model()(username="ann", is_staff=True)
    user.set_password("a long word of hers")
    user.save()
    page = context_new().new_page()
    page.goto("/admin/login/")
    page.fill("[name=username]", "ann")
    page.fill("[name=password]", "a long word of hers")
    page.locator("button[type=submit]").click()
    page.wait_for_url(f"{site}/admin/")


def test_back_office_speaks_chinese(staff, seen):
    boss = staff("boss", "boss", language="zh-CN")
    activity = offer(name="双十二")
    boss.goto(f"/admin/activities/activity/{activity.pk}/change/")
    for text in ("暂停", "追加库存", "作废", "复制"):
        assert boss.get_by_role("link", name=re.compile(text)).count() >= 1, text
    seen(boss, "activity-chinese")
    boss.goto(f"/admin/activities/activity/{activity.pk}/access/")
    for text in ("准入", "白名单", "黑名单", "灰度发布"):
        assert boss.get_by_text(re.compile(text)).count() >= 1, text
    seen(boss, "access-chinese")
