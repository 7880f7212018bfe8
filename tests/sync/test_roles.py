"""Who may do what: every page and button of the back office, by each role and by nobody in particular."""

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.utils import timezone

from activities.api_keys import api_key_make
from activities.audit import SYSTEM, Action, Actor, event_record
from activities.models import Activity
from seize.queue import Entry
from sync.models import DeadLetter, Reconciliation
from sync.roles import ROLES, roles_create
from tests.factories import DraftFactory, approved, issued, offer

pytestmark = pytest.mark.django_db(transaction=True)
PEOPLE = (*ROLES, "nobody")

# Page → who may look at it. Whoever is not named is refused.
PAGES = {
    "activities/activity/": {"author", "approver", "operator", "support"},
    "activities/activity/{activity}/change/": {"author", "approver", "operator", "support"},
    "activities/activity/{activity}/live/": {"author", "approver", "operator", "support"},
    "activities/activity/{activity}/report/": {"author", "approver", "operator", "support"},
    "activities/activity/{draft}/preview/": {"author", "approver", "operator", "support"},
    "activities/activity/{activity}/access/": {"operator"},
    "activities/activity/{activity}/access/let-in/empty/": {"operator"},
    "activities/activity/{activity}/let-in/": {"operator"},
    "activities/activity/{activity}/kept-out/": {"operator"},
    "activities/activity/{draft}/access/": {"author"},
    "activities/activity/{approved}/access/": {"author"},
    "activities/activity/{approved}/access/kept-out/empty/": {"author"},
    "activities/activity/export/": {"author", "approver", "operator", "support"},
    "activities/activity/import/": {"author"},
    "activities/activity/{activity}/winners/": {"operator"},
    "activities/activity/{activity}/redemptions/": {"operator"},
    "activities/activity/add/": {"author"},
    "activities/activity/{draft}/delete/": {"author"},
    "activities/coupon/": {"operator", "support"},
    "activities/coupon/{coupon}/change/": {"operator", "support"},
    "activities/redemption/": {"operator", "support"},
    "activities/auditevent/": {"approver", "operator"},
    "activities/apikey/": set(),
    "activities/apikey/add/": set(),
    "sync/deadletter/": {"operator"},
    "sync/deadletter/{letter}/change/": {"operator"},
    "sync/reconciliation/": {"operator"},
    "sync/health/": {"operator"},
    "django_celery_beat/periodictask/": {"operator"},
    "auth/user/": set(),
    "auth/group/": set(),
}

# Button → on what, with what, who may press it, and the status afterwards.
BUTTONS = {
    "submit": ("draft", {}, {"author"}, "SUBMITTED"),
    "withdraw": ("submitted", {}, {"author"}, "DRAFT"),
    "approve": ("submitted", {}, {"approver"}, "APPROVED"),
    "reject": ("submitted", {"reason": "x"}, {"approver"}, "DRAFT"),
    "publish": ("approved", {}, {"operator"}, "ACTIVE"),
    "pause": ("activity", {}, {"operator"}, "PAUSED"),
    "resume": ("paused", {}, {"operator"}, "ACTIVE"),
    "void": ("activity", {"name": "Sale", "reason": "x"}, {"operator"}, "VOIDED"),
}


@pytest.fixture
def people(transactional_db) -> dict[str, Client]:
    """A browser for each role, and one of a member of the staff without any."""
    roles_create()
    clients = {}
    for name in PEOPLE:
        user = get_user_model().objects.create_user(name, password="x", is_staff=True)
        user.groups.set(Group.objects.filter(name=name))
        clients[name] = Client()
        clients[name].force_login(user)
    return clients


@pytest.fixture
def things() -> dict[str, object]:
    activity = offer(name="Sale")
    paused = DraftFactory(name="Sale", status="PAUSED")
    DeadLetter.of(Entry("garbage", "x"), reason="MALFORMED").save()
    Reconciliation.objects.create(activity=activity, state="AGREES", checked_at=timezone.now())
    key, _text = api_key_make(name="checkout", scopes=("read",), by=SYSTEM, now=timezone.now())
    event_record(action=Action.PAUSE, subject=activity, by=SYSTEM, now=timezone.now())
    return {
        "activity": activity.pk, "paused": paused.pk, "draft": DraftFactory(name="Sale").pk,
        "submitted": DraftFactory(name="Sale", status="SUBMITTED").pk, "approved": approved(name="Sale").pk,
        "coupon": issued(activity, user_id=987654321).pk, "letter": DeadLetter.objects.get().pk, "key": key.pk,
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_page_is_seen_by_those_roles_and_by_no_other(people, things, page):
    url = "/admin/" + page.format(**things)
    seen = {name for name, client in people.items() if client.get(url).status_code == 200}
    assert seen == PAGES[page]


@pytest.mark.parametrize("button", BUTTONS)
def test_button_is_shown_to_and_obeys_those_roles_and_no_other(people, things, button):
    what, data, who, afterwards = BUTTONS[button]
    activity = Activity.objects.get(pk=things[what])
    page, url = (f"/admin/activities/activity/{activity.pk}/{end}/" for end in ("change", button))
    for name, client in people.items():
        shown = f'href="{url}"' in client.get(page).content.decode()
        assert shown is (name in who), name
        if name not in who:  # by form, and by the bare address
            assert client.get(url).status_code == 403, name
            assert client.post(url, data).status_code == 403, name
    activity.refresh_from_db()
    assert activity.status == Activity.objects.get(pk=things[what]).status != afterwards
    for name in who:
        assert people[name].post(url, data).status_code == 302
    activity.refresh_from_db()
    assert activity.status == afterwards


def test_author_cannot_approve_own_work_by_form_address_or_action_whatever_the_role(people, things):
    """The author is an approver as well."""
    user = get_user_model().objects.get(username="author")
    user.groups.add(Group.objects.get(name="approver"))
    client = people["author"]
    client.post("/admin/activities/activity/{draft}/submit/".format(**things), {})
    url = "/admin/activities/activity/{draft}/approve/".format(**things)
    assert client.get(url).status_code == 200
    client.post(url, {})
    assert Activity.objects.get(pk=things["draft"]).status == "SUBMITTED"
    acted = client.post("/admin/activities/activity/", {"action": "approve", "_selected_action": [things["draft"]]})
    assert acted.status_code in (200, 302)
    assert Activity.objects.get(pk=things["draft"]).status == "SUBMITTED"
    assert people["approver"].post(url, {}).status_code == 302
    assert Activity.objects.get(pk=things["draft"]).status == "APPROVED"


def test_support_finds_a_shoppers_coupons_by_id_and_sees_ids_of_others_masked(people, things):
    support, operator = people["support"], people["operator"]
    listed = support.get("/admin/activities/coupon/").content.decode()
    assert "987654321" not in listed
    assert "•••21" in listed
    found = support.get("/admin/activities/coupon/", {"q": "987654321"}).context["cl"].result_list
    assert [coupon.pk for coupon in found] == [things["coupon"]]
    page = "/admin/activities/coupon/{coupon}/change/".format(**things)
    assert "987654321" not in support.get(page).content.decode()
    assert "987654321" in operator.get(page).content.decode()
    assert "987654321" in operator.get("/admin/activities/coupon/").content.decode()


def test_roles_are_made_once_and_what_a_site_added_stays(transactional_db):
    first = roles_create()
    group = Group.objects.get(name="support")
    extra = Permission.objects.get(codename="roll_back_coupon")
    group.permissions.add(extra)
    assert roles_create() == first == {"author": 4, "approver": 3, "operator": 12, "support": 3}
    assert extra in group.permissions.all()
    assert Group.objects.count() == 4


def test_letter_is_decided_by_the_operator_alone(people, things):
    url = "/admin/sync/deadletter/{letter}/discard/".format(**things)
    refused = {name: client.post(url, {"reason": "x"}).status_code for name, client in people.items()}
    assert refused == {"author": 403, "approver": 403, "operator": 302, "support": 403, "nobody": 403}
    assert DeadLetter.objects.get().decided_by == "operator"


def test_actor_without_a_person_is_named(things):
    event = event_record(action=Action.VOID, subject=Activity.objects.first(), by=Actor("x" * 200), now=timezone.now())
    assert (event.actor, len(event.actor_name)) == (None, 150)
