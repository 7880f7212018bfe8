"""The audit: one event a change, in its transaction, with before and after, and edited by nobody."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.db import transaction
from django.db.models import ProtectedError
from django.utils import timezone

from activities import access, drafts, services
from activities.audit import SYSTEM, Action, Actor, event_record
from activities.models import Activity, AuditEvent, Listed
from activities.workflow import ActivityRefused
from seize.addresses import client_address
from seize.queue import Entry
from sync.letters import letter_discard
from sync.models import DeadLetter
from tests.factories import DraftFactory, offer

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/admin/activities/auditevent/"


@pytest.fixture
def boss(client):
    client.force_login(get_user_model().objects.create_superuser("boss", password="x"))
    return client


def told(*actions: str) -> list[tuple]:
    events = AuditEvent.objects.order_by("id")
    if actions:
        events = events.filter(action__in=actions)
    return [(event.action, event.actor_name, event.before, event.after, event.reason) for event in events]


def test_every_transition_is_told_once_with_what_it_changed():
    make = get_user_model().objects.create_user
    author, approver = (Actor(name, user_id=make(name).pk, address="10.1.2.3") for name in ("ann", "bob"))
    now = timezone.now()
    activity = drafts.activity_draft_save(activity=DraftFactory.build(name="Sale"), now=now, by=author)
    named = {"activity_id": activity.pk, "now": now}
    drafts.activity_submit(**named, by=author)
    drafts.activity_reject(**named, by=approver, reason="typo")
    activity.refresh_from_db()
    activity.name = "Better sale"
    drafts.activity_draft_save(activity=activity, now=now, by=author)
    drafts.activity_submit(**named, by=author)
    drafts.activity_approve(**named, by=approver)
    services.activity_publish(**named, by=author)
    services.activity_pause(**named, by=author)
    services.activity_resume(**named, by=author)
    services.activity_add_stock(**named, by=author, amount=5)
    end = activity.ends_at + timedelta(hours=1)
    services.activity_change_end(**named, by=author, ends_at=end)
    services.activity_void(**named, by=author, reason="wrong price")
    assert [action for action, *_rest in told()] == [
        "draft_create", "submit", "reject", "draft_edit", "submit", "approve", "publish", "pause", "resume",
        "add_stock", "change_end", "void",
    ]  # fmt: skip
    [[_action, name, before, after, reason]] = told("draft_edit")
    assert (name, before, after, reason) == ("ann", {"name": "Sale"}, {"name": "Better sale"}, "")
    [[_action, _name, before, after, _reason]] = told("add_stock")
    assert (before, after) == ({"stock_total": 10}, {"stock_total": 15})
    [[_action, _name, before, after, _reason]] = told("change_end")
    assert after == {"ends_at": end.isoformat()}
    [[_action, name, before, after, reason]] = told("void")
    assert (name, before["status"], after["status"], reason) == ("ann", "ACTIVE", "VOIDED", "wrong price")
    [[_action, name, _before, _after, reason]] = told("reject")
    assert (name, reason) == ("bob", "typo")
    assert set(AuditEvent.objects.values_list("address", "subject_type", "subject_id")) == {
        ("10.1.2.3", "activity", str(activity.pk))
    }


def test_refused_change_is_told_by_nobody():
    draft = DraftFactory()
    with pytest.raises(ActivityRefused):
        services.activity_pause(activity_id=draft.pk, now=timezone.now())
    assert told() == []


def test_event_goes_with_its_transaction():
    activity = offer()
    before = AuditEvent.objects.count()
    with pytest.raises(RuntimeError), transaction.atomic():  # noqa: PT012 - what happens inside is the test
        services.activity_pause(activity_id=activity.pk, now=timezone.now())
        raise RuntimeError
    assert AuditEvent.objects.count() == before


def test_deleted_draft_is_still_told_of():
    draft = DraftFactory(name="Gone")
    drafts.activity_draft_delete(activity_id=draft.pk, now=timezone.now(), by=SYSTEM)
    [[action, _name, before, _after, _reason]] = told()
    assert (action, before["name"], Activity.objects.count()) == ("draft_delete", "Gone", 0)


def test_events_are_changed_and_deleted_by_nobody(boss):
    event = event_record(action=Action.PAUSE, subject=DraftFactory(), by=SYSTEM, now=timezone.now())
    for change in (
        lambda: AuditEvent.objects.update(reason="x"),
        lambda: AuditEvent.objects.all().delete(),
        event.delete,
        event.save,
    ):
        with pytest.raises(TypeError, match="neither changed nor deleted"):
            change()
    page = f"{LIST}{event.pk}/"
    assert boss.get(f"{page}change/").status_code == 200
    assert boss.post(f"{page}change/", {"reason": "x"}).status_code == 403
    assert boss.post(f"{page}delete/", {"post": "yes"}).status_code == 403
    assert boss.get(f"{LIST}add/").status_code == 403
    assert AuditEvent.objects.get().reason == ""


def test_person_who_acted_is_not_deleted_but_can_be_deactivated():
    user = get_user_model().objects.create_user("ann")
    drafts.activity_draft_save(activity=DraftFactory.build(), now=timezone.now(), by=Actor("ann", user_id=user.pk))
    with pytest.raises(ProtectedError):
        user.delete()


def test_events_are_found_by_person_subject_and_action(boss):
    ann, now = Actor("ann"), timezone.now()
    first, second = DraftFactory(name="First"), DraftFactory(name="Second")
    event_record(action=Action.PAUSE, subject=first, by=ann, now=now)
    event_record(action=Action.VOID, subject=second, by=Actor("bob"), now=now, reason="x")

    def found(**query: str) -> list[str]:
        return [event.subject_name for event in boss.get(LIST, query).context["cl"].result_list]

    assert found() == ["Second", "First"]
    assert found(q="ann") == ["First"]
    assert found(q=str(second.pk)) == ["Second"]
    assert found(action__exact="void") == ["Second"]


class TestBackOffice:
    """What pages do is told with the person and the address."""

    def test_button_is_told_with_person_and_address(self, boss):
        activity = offer()
        boss.post(f"/admin/activities/activity/{activity.pk}/pause/", {}, REMOTE_ADDR="192.0.2.7")
        event = AuditEvent.objects.get(action="pause")
        assert (event.actor_name, event.actor.username, event.address) == ("boss", "boss", "192.0.2.7")

    def test_form_of_a_draft_is_told(self, boss):
        from tests.activities.test_admin import form_of

        boss.post("/admin/activities/activity/add/", form_of(DraftFactory.build(name="Mine")))
        draft = Activity.objects.get()
        boss.post(f"/admin/activities/activity/{draft.pk}/change/", form_of(draft, name="Renamed"))
        assert [(action, name) for action, name, *_rest in told()] == [("draft_create", "boss"), ("draft_edit", "boss")]
        assert told("draft_edit")[0][2:4] == ({"name": "Mine"}, {"name": "Renamed"})

    def test_change_of_access_and_of_a_list_is_read_by_the_names_that_pages_have(self, boss):
        activity, now = DraftFactory(), timezone.now()
        access.activity_access_change(activity_id=activity.pk, values={"asks_max": None}, now=now, by=Actor("ann"))
        access.activity_listed_replace(
            activity_id=activity.pk, verdict=Listed.Verdict.DENY, user_ids=[987654321], now=now
        )
        page = boss.get(LIST).content.decode()
        for text in ("requests per shopper: 20 → –", "list of those kept out: 0 → 1, version of the lists: 0 → 1"):
            assert text in page, text
        event = AuditEvent.objects.get(action="listed")
        shown = boss.get(f"{LIST}{event.pk}/change/").content.decode()
        assert "&quot;list of those kept out&quot;: 1" in shown
        assert "987654321" not in shown + str(vars(event))

    def test_dead_letter_key_and_roll_back_are_told(self, boss):
        activity = offer()
        DeadLetter.of(Entry(f"{activity.pk}:7:1", f"1700000000000:{activity.uid}"), reason="NO_ROOM").save()
        letter = DeadLetter.objects.get()
        letter_discard(letter_id=letter.pk, reason="asked", by=Actor("ann"), now=timezone.now())
        boss.post("/admin/activities/apikey/add/", {"name": "checkout", "scopes": ["read"]})
        assert [(action, name) for action, name, *_rest in told("letter_discard", "key_make")] == [
            ("letter_discard", "ann"), ("key_make", "boss"),
        ]  # fmt: skip

    def test_secret_of_a_key_is_not_told(self, boss):
        made = boss.post("/admin/activities/apikey/add/", {"name": "checkout", "scopes": ["read"]})
        [secret] = re.findall(r"csk_[0-9a-f]{12}_([A-Za-z0-9_-]{43})", made.content.decode())
        event = AuditEvent.objects.get(action="key_make")
        assert secret not in str(vars(event))
        assert event.after == {"scopes": ["read"]}

    def test_change_of_permissions_is_told_with_before_and_after(self, boss):
        user = get_user_model().objects.create_user("ann", password="x")
        group = Group.objects.create(name="helpers")
        permission = Permission.objects.get(codename="view_coupon")
        joined = user.date_joined
        form = {
            "username": "ann", "is_active": "on", "is_staff": "on", "groups": [group.pk],
            "user_permissions": [permission.pk], "date_joined_0": joined.strftime("%Y-%m-%d"),
            "date_joined_1": joined.strftime("%H:%M:%S"),
        }  # fmt: skip
        answer = boss.post(f"/admin/auth/user/{user.pk}/change/", form)
        assert answer.status_code == 302, answer.context["adminform"].form.errors
        [[_action, name, before, after, _reason]] = told("permissions")
        assert (name, before) == ("boss", {"is_staff": False, "groups": [], "permissions": []})
        assert after == {"is_staff": True, "groups": ["helpers"], "permissions": ["activities.view_coupon"]}

    def test_group_that_is_given_a_permission_or_deleted_is_told_of(self, boss):
        group = Group.objects.create(name="helpers")
        permission = Permission.objects.get(codename="view_coupon")
        boss.post(f"/admin/auth/group/{group.pk}/change/", {"name": "helpers", "permissions": [permission.pk]})
        boss.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"})
        assert [(before, after) for _action, _name, before, after, _reason in told("permissions")] == [
            ({"permissions": []}, {"permissions": ["activities.view_coupon"]}),
            ({"permissions": ["activities.view_coupon"]}, {}),
        ]


@pytest.mark.parametrize(
    ("behind", "forwarded", "address"),
    [
        (False, "", "192.0.2.7"),
        (False, "203.0.113.9", "192.0.2.7"),
        (True, "203.0.113.9", "203.0.113.9"),
        (True, "6.6.6.6, 203.0.113.9", "203.0.113.9"),
        (True, "", "192.0.2.7"),
    ],
)
def test_address_is_the_connections_unless_a_trusted_proxy_names_another(rf, settings, behind, forwarded, address):
    settings.BEHIND_PROXY = behind
    headers = {"HTTP_X_FORWARDED_FOR": forwarded} if forwarded else {}
    assert client_address(rf.get("/", REMOTE_ADDR="192.0.2.7", **headers)) == address
