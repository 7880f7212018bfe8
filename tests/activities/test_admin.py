"""The back office: buttons that are legal, questions before changes, reasons when refused, a read-only ledger."""

import dataclasses
import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models import Q
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from activities import checkout, drafts, services
from activities.api_keys import api_key_verify
from activities.audit import Actor
from activities.changes import CHANGES
from activities.contention import ContentionLost
from activities.models import Activity, ApiKey, Coupon, Redemption
from activities.statuses import EffectiveStatus
from seize.queue import Entry
from seize.requests import SeizeRequest
from seize.services import coupon_seize
from sync.models import DeadLetter
from tests.factories import DraftFactory, approved, drain, issued, offer

pytestmark = pytest.mark.django_db(transaction=True)
LIST = reverse("admin:activities_activity_changelist")
PATHS = {
    "submit": "submit",
    "withdraw": "withdraw",
    "approve": "approve",
    "reject": "reject",
    "publish": "publish",
    "pause": "pause",
    "resume": "resume",
    "add_stock": "add-stock",
    "change_end": "change-end",
    "void": "void",
}


@pytest.fixture
def staff(client):
    client.force_login(get_user_model().objects.create_superuser("boss", password="x"))
    return client


def url_of(change: str, activity: Activity) -> str:
    return f"/admin/activities/activity/{activity.pk}/{PATHS[change]}/"


def form_of(activity: Activity, **changes: str) -> dict[str, str]:
    """What the browser would send for the draft's form."""
    local = timezone.localtime
    fields = {
        "name": activity.name,
        "rules_text": activity.rules_text,
        "opened_version": str(activity.version),
        "kind": activity.kind,
        "min_spend": str(activity.min_spend),
        "amount_off": str(activity.amount_off),
        "pay_percent": "",
        "max_off": "",
        "min_payable": str(activity.min_payable),
        "valid_days": str(activity.valid_days),
        "valid_until_0": "",
        "valid_until_1": "",
        "starts_at_0": local(activity.starts_at).strftime("%Y-%m-%d"),
        "starts_at_1": local(activity.starts_at).strftime("%H:%M:%S"),
        "ends_at_0": local(activity.ends_at).strftime("%Y-%m-%d"),
        "ends_at_1": local(activity.ends_at).strftime("%H:%M:%S"),
        "stock_total": str(activity.stock_total),
        "per_user_limit": str(activity.per_user_limit),
    }
    return {**fields, **changes}


def messages_of(response) -> list[str]:
    return [str(message) for message in response.context["messages"]]


@pytest.fixture
def approver():
    """Somebody else's browser."""
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("other", password="x"))
    return client


def test_marketer_creates_and_submits_a_draft_and_somebody_else_approves_it(staff, approver):
    blank = DraftFactory.build(name="Double Eleven")
    created = staff.post(reverse("admin:activities_activity_add"), form_of(blank), follow=True)
    assert created.status_code == 200
    draft = Activity.objects.get()
    assert (draft.name, draft.status, draft.issued) == ("Double Eleven", "DRAFT", 0)
    assert draft.author.username == "boss"
    assert "Double Eleven" in staff.get(url_of("submit", draft)).content.decode()
    assert "Done" in messages_of(staff.post(url_of("submit", draft), {}, follow=True))[0]
    refused = staff.post(url_of("approve", draft), {}, follow=True)
    assert "somebody else has to approve it" in messages_of(refused)[0]
    draft.refresh_from_db()
    assert draft.status == "SUBMITTED"
    approver.post(url_of("approve", draft), {})
    staff.post(url_of("publish", draft), {})
    draft.refresh_from_db()
    assert (draft.status, draft.approved_by.username, draft.approved_alone) == ("ACTIVE", "other", False)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"stock_total": "0"}, "stock_total"),
        ({"per_user_limit": "0"}, "per_user_limit"),
        ({"amount_off": ""}, "amount_off"),
        ({"amount_off": "-1"}, "amount_off"),
        ({"kind": "PERCENT"}, "pay_percent"),
        ({"pay_percent": "80"}, "pay_percent"),
        ({"ends_at_0": "2020-01-01"}, "ends_at"),
        ({"valid_days": ""}, "valid_days"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"stock_total": "99999999999"}, "stock_total"),
    ],
)
def test_l03_bad_form_says_which_field_is_wrong_and_stores_nothing(staff, changes, field):
    response = staff.post(reverse("admin:activities_activity_add"), form_of(DraftFactory.build(), **changes))
    assert response.status_code == 200
    assert field in response.context["adminform"].form.errors
    assert Activity.objects.count() == 0


def test_l05_form_that_was_opened_before_publishing_changes_nothing(staff):
    """The stale form: issued, status and terms stay what services and the drain made them."""
    draft = approved()
    stale = form_of(draft, name="Stale", stock_total="1", amount_off="99.00")
    services.activity_publish(activity_id=draft.pk, now=timezone.now())
    Activity.objects.filter(pk=draft.pk).update(issued=4)
    before = Activity.objects.filter(pk=draft.pk).values().get()
    response = staff.post(reverse("admin:activities_activity_change", args=[draft.pk]), stale, follow=True)
    assert "no draft any more" in response.content.decode()
    assert Activity.objects.filter(pk=draft.pk).values().get() == before


def test_form_that_somebody_else_overtook_says_so_and_keeps_the_input(staff):
    draft = DraftFactory(name="First")
    stale = form_of(draft, name="Second")
    draft.name = "Overtaken"
    drafts.activity_draft_save(now=timezone.now(), activity=draft)
    response = staff.post(reverse("admin:activities_activity_change", args=[draft.pk]), stale)
    assert response.status_code == 200
    assert "Somebody else changed it" in response.content.decode()
    assert 'value="Second"' in response.content.decode()
    draft.refresh_from_db()
    assert draft.name == "Overtaken"


def test_draft_is_edited_by_its_form(staff):
    draft = DraftFactory(name="First")
    staff.post(reverse("admin:activities_activity_change", args=[draft.pk]), form_of(draft, name="Second"))
    draft.refresh_from_db()
    assert (draft.name, draft.version) == ("Second", 2)


@pytest.mark.parametrize(
    ("status", "legal"),
    [
        ("DRAFT", {"submit"}),
        ("SUBMITTED", {"withdraw", "approve", "reject"}),
        ("APPROVED", {"withdraw", "reject", "publish"}),
        ("ACTIVE", {"pause", "add_stock", "change_end", "void"}),
        ("PAUSED", {"resume", "add_stock", "change_end", "void"}),
        ("VOIDED", set()),
        ("ENDED", set()),
    ],
)
def test_only_legal_buttons_are_shown_and_others_refused_with_a_reason(staff, status, legal):
    activity = DraftFactory(status=status)
    page = staff.get(reverse("admin:activities_activity_change", args=[activity.pk])).content.decode()
    assert {change for change in PATHS if f'href="{url_of(change, activity)}"' in page} == legal
    assert ('name="_save"' in page) is (status == "DRAFT")
    for change in set(PATHS) - legal:
        data = {"amount": "5", "expected_total": "10", "request_id": change, "name": activity.name, "reason": "x"}
        data |= {"ends_at_0": "2099-01-01", "ends_at_1": "00:00"}
        refused = staff.post(url_of(change, activity), data, follow=True)
        assert "not possible" in messages_of(refused)[0]
    activity.refresh_from_db()
    assert (activity.status, activity.version, activity.stock_total) == (status, 1, 10)


def test_changes_with_parameters_check_them_first(staff):
    activity = offer(name="Sale", stock_total=10)
    for change, data, error in [
        ("add_stock", {"amount": "0"}, "amount"),
        ("add_stock", {"amount": "many"}, "amount"),
        ("change_end", {"ends_at_0": "tomorrow", "ends_at_1": ""}, "ends_at"),
        ("void", {"name": "Other", "reason": "x"}, "name"),
        ("void", {"name": "Sale", "reason": ""}, "reason"),
    ]:
        response = staff.post(url_of(change, activity), data)
        assert error in response.context["form"].errors
    activity.refresh_from_db()
    assert (activity.status, activity.stock_total, activity.version) == ("ACTIVE", 10, 2)


def test_stock_end_pause_resume_and_void_by_button(staff):
    activity = offer(name="Sale", stock_total=10)
    asked = staff.get(url_of("add_stock", activity)).context["form"]
    form = {"amount": "5", **{name: asked[name].value() for name in ("expected_total", "request_id")}}
    for _click in range(2):
        staff.post(url_of("add_stock", activity), form)
    staff.post(url_of("pause", activity), {})
    activity.refresh_from_db()
    assert (activity.stock_total, activity.status) == (15, "PAUSED")
    staff.post(url_of("resume", activity), {})
    end = timezone.localtime(timezone.now() + timedelta(days=2)).replace(microsecond=0)
    when = {"ends_at_0": end.strftime("%Y-%m-%d"), "ends_at_1": end.strftime("%H:%M:%S")}
    staff.post(url_of("change_end", activity), when)
    activity.refresh_from_db()
    assert (activity.status, activity.ends_at) == ("ACTIVE", end)
    staff.post(url_of("void", activity), {"name": "Sale", "reason": "wrong price"})
    activity.refresh_from_db()
    assert (activity.status, activity.void_reason) == ("VOIDED", "wrong price")


def test_get_asks_and_changes_nothing(staff):
    activity = offer()
    for change in ("pause", "add_stock", "change_end", "void"):
        assert staff.get(url_of(change, activity)).status_code == 200
    activity.refresh_from_db()
    assert activity.version == 2


def test_list_shows_effective_status_live_stock_and_issued_with_few_queries(staff, django_assert_max_num_queries):
    activity = offer(name="Live one", stock_total=10)
    for user_id in (1, 2, 3):
        coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=user_id)
    drain(activity)
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=4)
    for _ in range(5):
        DraftFactory()
    with django_assert_max_num_queries(12):
        response = staff.get(LIST)
    rows = {row.name: row for row in response.context["cl"].result_list}
    assert (rows["Live one"].stock_left, rows["Live one"].issued) == (6, 3)
    assert "Ongoing" in response.content.decode()


def test_l15_filter_uses_the_clock_and_search_finds_names(staff):
    now = timezone.now()
    DraftFactory(name="over", status="ACTIVE", starts_at=now - timedelta(hours=2), ends_at=now)
    DraftFactory(name="on", status="PENDING")
    found = {
        value: [row.name for row in staff.get(LIST, {"effective": value}).context["cl"].result_list]
        for value in ("ended", "ongoing", "upcoming")
    }
    assert found == {"ended": ["over"], "ongoing": ["on"], "upcoming": []}
    assert [row.name for row in staff.get(LIST, {"q": "ove"}).context["cl"].result_list] == ["over"]


def test_list_of_a_thousand_activities_takes_as_few_queries_on_every_page(staff, django_assert_max_num_queries):
    now, hour = timezone.now(), timedelta(hours=1)
    stored = [status for status, _label in Activity.Status.choices]
    blank = DraftFactory.build()
    fields = {name: getattr(blank, name) for name in drafts.DRAFT_FIELDS}
    author = get_user_model().objects.get()
    Activity.objects.bulk_create(
        Activity(
            **{
                **fields,
                "name": f"Sale {number:04}",
                "status": stored[number % 8],
                "starts_at": now + (2 * (number // 8 % 3) - 2.5) * hour,  # over, ongoing, upcoming
                "ends_at": now + (2 * (number // 8 % 3) - 0.5) * hour,
                "author": author,
            }
        )
        for number in range(1000)
    )
    wanted = Activity.objects.get(name="Sale 0500")
    pages = [
        ({}, 1000),
        ({"p": "20"}, 1000),
        ({"o": "1"}, 1000),
        *[
            ({"effective": status}, sum(row.effective_status(now=now) == status for row in Activity.objects.all()))
            for status in EffectiveStatus.values
        ],
        ({"q": "sale 0500"}, 1),
        ({"q": str(wanted.pk)}, Activity.objects.filter(Q(pk=wanted.pk) | Q(name__contains=str(wanted.pk))).count()),
        ({"q": "no such"}, 0),
        ({"q": "x" * 300}, 0),
        ({"q": "9" * 30}, 0),
    ]
    for asking, found in pages:
        with django_assert_max_num_queries(12):
            page = staff.get(LIST, asking)
        rows = page.context["cl"].result_list
        assert (page.status_code, page.context["cl"].result_count, len(rows)) == (200, found, min(found, 50)), asking
        if "effective" in asking:
            assert {row.effective_status(now=now) for row in rows} == {asking["effective"]}
    assert wanted in staff.get(LIST, {"q": str(wanted.pk)}).context["cl"].result_list


def test_list_is_readable_while_redis_is_down(staff, settings):
    DraftFactory(name="Sale", status="ACTIVE")
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    response = staff.get(LIST)
    assert response.status_code == 200
    assert "Sale" in response.content.decode()


def test_published_activities_cannot_be_deleted_and_drafts_can(staff):
    published, draft = offer(), DraftFactory()
    assert staff.post(f"/admin/activities/activity/{published.pk}/delete/", {"post": "yes"}).status_code == 403
    assert staff.post(f"/admin/activities/activity/{draft.pk}/delete/", {"post": "yes"}).status_code == 302
    assert list(Activity.objects.all()) == [published]


def test_coupons_and_dead_letters_are_read_only(staff):
    activity = offer()
    coupon_seize(wanted=SeizeRequest(activity_id=activity.pk, seq=1), user_id=7)
    drain(activity)
    coupon = Coupon.objects.get()
    DeadLetter.of(Entry("garbage", "x"), reason="MALFORMED").save()
    letter = DeadLetter.objects.get()
    for name, row in (("activities/coupon", coupon), ("sync/deadletter", letter)):
        assert staff.get(f"/admin/{name}/").status_code == 200
        assert staff.get(f"/admin/{name}/{row.pk}/change/").status_code == 200
        assert staff.post(f"/admin/{name}/{row.pk}/change/", {"status": "REDEEMED"}).status_code == 403
        assert staff.post(f"/admin/{name}/{row.pk}/delete/", {"post": "yes"}).status_code == 403
        assert staff.get(f"/admin/{name}/add/").status_code == 403


def test_people_without_permission_get_no_buttons_and_no_changes(client):
    user = get_user_model().objects.create_user("viewer", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_activity"))
    client.force_login(user)
    activity = offer()
    page = client.get(reverse("admin:activities_activity_change", args=[activity.pk])).content.decode()
    assert url_of("pause", activity) not in page
    assert client.post(url_of("pause", activity), {}).status_code == 403
    activity.refresh_from_db()
    assert activity.status == "ACTIVE"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "activities/activity/",
        "activities/activity/add/",
        "activities/coupon/",
        "sync/deadletter/",
        "sync/reconciliation/",
        "sync/health/",
        "auth/user/",
        "auth/group/",
        "django_celery_beat/periodictask/",
        "django_celery_beat/periodictask/add/",
        "django_celery_beat/intervalschedule/",
        "django_celery_beat/crontabschedule/add/",
    ],
)
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_every_page_opens_in_both_languages(staff, path, language):
    response = staff.get(f"/admin/{path}", HTTP_ACCEPT_LANGUAGE=language)
    assert response.status_code == 200
    assert response["Content-Language"] == language


def test_locked_row_is_a_message_not_an_error_page(staff, monkeypatch):
    activity = offer()

    def locked(**_arguments: object) -> None:
        raise ContentionLost

    monkeypatch.setitem(CHANGES, "pause", dataclasses.replace(CHANGES["pause"], service=locked))
    response = staff.post(url_of("pause", activity), {}, follow=True)
    assert "try again" in messages_of(response)[0]


def test_ended_activity_is_not_reopened_by_a_slow_web_clock(staff, monkeypatch):
    """Redis' clock decides whether the end can still be moved, not that of the web host."""
    now = timezone.now()
    over = DraftFactory(status="ACTIVE", starts_at=now - timedelta(hours=1), ends_at=now - timedelta(seconds=10))
    monkeypatch.setattr(timezone, "now", lambda: now - timedelta(seconds=30))
    end = timezone.localtime(now + timedelta(days=2))
    when = {"ends_at_0": end.strftime("%Y-%m-%d"), "ends_at_1": end.strftime("%H:%M:%S")}
    refused = staff.post(url_of("change_end", over), when, follow=True)
    assert "not possible" in messages_of(refused)[0]
    over.refresh_from_db()
    assert over.ends_at == now - timedelta(seconds=10)


def test_l15_coupons_are_filtered_by_the_status_that_is_shown(staff):
    now, on = timezone.now(), DraftFactory(status="ACTIVE")
    void = DraftFactory(status="VOIDED")
    for number, (activity, status, expires_at) in enumerate(
        [
            (on, "UNUSED", now + timedelta(days=1)),
            (on, "UNUSED", now - timedelta(days=1)),
            (on, "EXPIRED", now - timedelta(days=1)),
            (on, "REDEEMED", now - timedelta(days=1)),
            (void, "UNUSED", now - timedelta(days=1)),
            (void, "VOIDED", now + timedelta(days=1)),
        ],
        start=1,
    ):
        redeemed = {"order_id": "A", "redeemed_at": now, "uses": 1} if status == "REDEEMED" else {}
        issued(activity, user_id=number, seized_at=now, expires_at=expires_at, status=status, **redeemed)
    for value, users in {"UNUSED": {1}, "EXPIRED": {2, 3}, "REDEEMED": {4}, "VOIDED": {5, 6}}.items():
        found = staff.get("/admin/activities/coupon/", {"effective": value}).context["cl"].result_list
        assert {coupon.user_id for coupon in found} == users
        assert {coupon.effective_status(now=now) for coupon in found} == {value}


@pytest.mark.parametrize(("button", "state"), [("replay", "REPLAYED"), ("discard", "DISCARDED")])
def test_dead_letter_is_decided_by_button_with_a_reason_and_by_whom(staff, button, state):
    activity = offer()
    DeadLetter.of(Entry(f"{activity.pk}:7:1", f"1700000000000:{activity.uid}"), reason="NO_ROOM").save()
    letter = DeadLetter.objects.get()
    url = f"/admin/sync/deadletter/{letter.pk}/{button}/"
    assert f'href="{url}"' in staff.get(f"/admin/sync/deadletter/{letter.pk}/change/").content.decode()
    assert "reason" in staff.post(url, {"reason": ""}).context["form"].errors
    staff.post(url, {"reason": "shopper called"})
    letter.refresh_from_db()
    assert (letter.state, letter.decided_by, letter.decision_reason) == (state, "boss", "shopper called")
    assert letter.decided_at is not None
    assert f'href="{url}"' not in staff.get(f"/admin/sync/deadletter/{letter.pk}/change/").content.decode()
    again = staff.post(url, {"reason": "again"}, follow=True)
    assert "decided already" in messages_of(again)[0]


def test_dead_letter_is_not_decided_without_the_permission(client):
    user = get_user_model().objects.create_user("viewer", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_deadletter"))
    client.force_login(user)
    DeadLetter.of(Entry("garbage", "x"), reason="MALFORMED").save()
    letter = DeadLetter.objects.get()
    assert client.post(f"/admin/sync/deadletter/{letter.pk}/discard/", {"reason": "x"}).status_code == 403
    letter.refresh_from_db()
    assert letter.state == "WAITING"


# -- Redemptions and keys ----------------------------------------------------------------------------------


def redeemed_coupon() -> Coupon:
    coupon = issued(DraftFactory(status="ACTIVE"))
    checkout.coupon_redeem(
        coupon_id=coupon.pk, user_id=7, order_id="A", order_amount=Decimal(199), by=Actor("x"), now=timezone.now()
    )
    return coupon


def test_p13_operator_gives_a_coupon_back_with_a_reason_and_the_ledger_says_who(staff):
    coupon = redeemed_coupon()
    page, url = f"/admin/activities/coupon/{coupon.pk}/change/", f"/admin/activities/coupon/{coupon.pk}/roll-back/"
    assert f'href="{url}"' in staff.get(page).content.decode()
    assert "reason" in staff.post(url, {"reason": " "}).context["form"].errors
    assert Coupon.objects.get().status == "REDEEMED"
    staff.post(url, {"reason": "shopper called", "order_id": "A"})
    coupon.refresh_from_db()
    entry = Redemption.objects.get(entry="ROLL_BACK")
    assert (coupon.status, entry.made_by, entry.reason, entry.order_id) == ("UNUSED", "boss", "shopper called", "A")
    assert f'href="{url}"' not in staff.get(page).content.decode()


def test_roll_back_of_a_page_opened_before_another_order_does_not_take_its_coupon(staff):
    """The page names the order that it is about."""
    coupon = redeemed_coupon()
    url = f"/admin/activities/coupon/{coupon.pk}/roll-back/"
    asked = staff.get(url)
    assert 'name="order_id" value="A"' in asked.content.decode()
    now = timezone.now()
    checkout.coupon_roll_back(coupon_id=coupon.pk, order_id="A", reason="x", by=Actor("x"), now=now)
    checkout.coupon_redeem(
        coupon_id=coupon.pk, user_id=7, order_id="B", order_amount=Decimal(199), by=Actor("x"), now=now
    )
    staff.post(url, {"reason": "shopper called", "order_id": "A"})
    coupon.refresh_from_db()
    assert (coupon.status, coupon.order_id, Redemption.objects.count()) == ("REDEEMED", "B", 3)


def test_roll_back_needs_its_permission(client):
    coupon = redeemed_coupon()
    user = get_user_model().objects.create_user("viewer", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_coupon"))
    client.force_login(user)
    url = f"/admin/activities/coupon/{coupon.pk}/roll-back/"
    assert f'href="{url}"' not in client.get(f"/admin/activities/coupon/{coupon.pk}/change/").content.decode()
    assert client.post(url, {"reason": "x"}).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="roll_back_coupon"))
    assert client.post(url, {"reason": "x", "order_id": "A"}).status_code == 302
    assert Coupon.objects.get().status == "UNUSED"


def test_ledger_of_redemptions_is_looked_up_and_edited_by_nobody(staff):
    redeemed_coupon()
    entry = Redemption.objects.get()
    for query in ("订单", "é A", "\\u8ba2", "0", "9" * 30):
        assert list(staff.get("/admin/activities/redemption/", {"q": query}).context["cl"].result_list) == []
    for query in ("A", "7", str(entry.coupon_id)):
        found = staff.get("/admin/activities/redemption/", {"q": query}).context["cl"].result_list
        assert [row.pk for row in found] == [entry.pk]
    page = f"/admin/activities/redemption/{entry.pk}/"
    assert staff.get(f"{page}change/").status_code == 200
    assert staff.post(f"{page}change/", {"discount": "1.00"}).status_code == 403
    assert staff.post(f"{page}delete/", {"post": "yes"}).status_code == 403
    assert staff.get("/admin/activities/redemption/add/").status_code == 403
    assert Redemption.objects.get().discount == Decimal("20.00")


class TestApiKeys:
    def make(self, staff, **fields: object):
        return staff.post("/admin/activities/apikey/add/", {"name": "checkout", "scopes": ["read"], **fields})

    def test_key_is_shown_once_and_opens_its_routes(self, staff):
        made = self.make(staff, scopes=["read", "redeem"])
        [text] = re.findall(r"csk_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", made.content.decode())
        assert "no-store" in made["Cache-Control"]
        key = api_key_verify(text=text, now=timezone.now())
        assert (key.name, key.scopes, key.created_by) == ("checkout", ["read", "redeem"], "boss")
        secret = text.split("_", 2)[2]
        for page in ("/admin/activities/apikey/", f"/admin/activities/apikey/{key.pk}/change/", "/admin/"):
            shown = staff.get(page).content.decode()
            assert secret not in shown
            assert key.hashed not in shown
        assert not LogEntry.objects.filter(change_message__contains=secret).exists()
        assert LogEntry.objects.filter(object_repr="checkout").count() == 1

    @pytest.mark.parametrize("fields", [{"name": ""}, {"scopes": []}, {"scopes": ["all"]}, {"name": "taken"}])
    def test_key_that_cannot_be_made_says_why(self, staff, fields):
        self.make(staff, name="taken")
        response = self.make(staff, **fields)
        assert response.context["form"].errors
        assert "csk_" not in response.content.decode()
        assert ApiKey.objects.count() == 1

    def test_key_is_revoked_by_a_button_that_asks(self, staff):
        self.make(staff)
        key = ApiKey.objects.get()
        url = f"/admin/activities/apikey/{key.pk}/revoke/"
        assert f'href="{url}"' in staff.get(f"/admin/activities/apikey/{key.pk}/change/").content.decode()
        assert staff.get(url).status_code == 200
        key.refresh_from_db()
        assert key.revoked_at is None
        staff.post(url)
        key.refresh_from_db()
        assert (key.revoked_by, key.revoked_at is not None) == ("boss", True)
        again = staff.post(url, follow=True)
        assert "revoked already" in messages_of(again)[-1]

    def test_key_is_neither_edited_nor_deleted(self, staff):
        self.make(staff)
        key = ApiKey.objects.get()
        staff.post(f"/admin/activities/apikey/{key.pk}/change/", {"name": "other", "scopes": ["redeem"]})
        assert staff.post(f"/admin/activities/apikey/{key.pk}/delete/", {"post": "yes"}).status_code == 403
        assert ApiKey.objects.filter(pk=key.pk).values("name", "scopes").get() == {
            "name": "checkout", "scopes": ["read"],
        }  # fmt: skip

    def test_form_that_was_opened_before_a_revoke_does_not_undo_it(self, staff):
        self.make(staff)
        key = ApiKey.objects.get()
        staff.post(f"/admin/activities/apikey/{key.pk}/revoke/")
        assert staff.post(f"/admin/activities/apikey/{key.pk}/change/", {}).status_code == 403
        assert ApiKey.objects.filter(revoked_at=None).count() == 0

    def test_viewer_may_neither_make_nor_revoke(self, client, staff):
        self.make(staff)
        key = ApiKey.objects.get()
        user = get_user_model().objects.create_user("viewer", password="x", is_staff=True)
        user.user_permissions.add(Permission.objects.get(codename="view_apikey"))
        client.force_login(user)
        assert self.make(client, name="mine").status_code == 403
        assert client.post(f"/admin/activities/apikey/{key.pk}/revoke/").status_code == 403
        assert ApiKey.objects.filter(revoked_at=None).count() == 1
