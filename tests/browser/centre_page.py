"""The coupon centre's page as the tests look at it: its cards, and pressing."""

from playwright.sync_api import Locator, Page, expect

from activities.models import Activity

SEIZE = "**/market/consumer/coupon/seize"
LIST = "**/market/consumer/activity/list"


def button(page: Page, activity: Activity) -> Locator:
    return page.locator(f"[data-card='{activity.pk}'] [data-press]")


def card(page: Page, activity: Activity) -> Locator:
    return page.locator(f"[data-card='{activity.pk}']")


def press(page: Page, activity: Activity) -> None:
    expect(button(page, activity)).to_have_attribute("aria-disabled", "false")
    button(page, activity).click()


def look(page: Page) -> None:
    """Let the page ask the list now, and wait for the answer."""
    with page.expect_response(LIST):
        page.evaluate("dispatchEvent(new Event('online'))")
