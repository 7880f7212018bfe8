"""Before an activity is on offer: made by one, approved by another, sent back with a reason, cloned."""

from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from activities import drafts, services
from activities.audit import Actor
from activities.models import Activity, AuditEvent
from activities.workflow import ActivityRefused
from tests.factories import DraftFactory, approved, offer
from tests.race.conftest import crowd

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


@pytest.fixture
def people() -> tuple[Actor, Actor]:
    """An author and an approver."""
    make = get_user_model().objects.create_user
    return tuple(Actor(name, user_id=make(name).pk, address="10.0.0.1") for name in ("author", "approver"))


@pytest.fixture
def draft(people) -> Activity:
    author, _approver = people
    return drafts.activity_draft_save(activity=DraftFactory.build(name="Sale"), now=timezone.now(), by=author)


def state(activity: Activity) -> tuple:
    activity.refresh_from_db()
    return activity.status, activity.submitted_by_id, activity.approved_by_id, activity.version


def test_activity_is_made_submitted_approved_by_somebody_else_and_published(draft, people):
    author, approver = people
    now = timezone.now()
    drafts.activity_submit(activity_id=draft.pk, now=now, by=author)
    assert state(draft) == ("SUBMITTED", author.user_id, None, 2)
    drafts.activity_approve(activity_id=draft.pk, now=now, by=approver)
    assert state(draft) == ("APPROVED", author.user_id, approver.user_id, 3)
    services.activity_publish(activity_id=draft.pk, now=now, by=author)
    assert state(draft) == ("ACTIVE", author.user_id, approver.user_id, 4)
    assert draft.approved_alone is False


@pytest.mark.parametrize("who", ["made it", "submitted it"])
def test_author_cannot_approve_own_work(draft, people, who):
    author, approver = people
    submits, tries = (approver, author) if who == "made it" else (author, author)
    if who == "submitted it":
        Activity.objects.filter(pk=draft.pk).update(author=None)
    drafts.activity_submit(activity_id=draft.pk, now=timezone.now(), by=submits)
    before = state(draft)
    with pytest.raises(ActivityRefused, match="somebody else"):
        drafts.activity_approve(activity_id=draft.pk, now=timezone.now(), by=tries)
    assert state(draft) == before


@pytest.mark.parametrize("column", ["author", "submitted_by"])
def test_database_itself_refuses_an_activity_approved_by_its_author(draft, people, column):
    author, _approver = people
    with pytest.raises(IntegrityError), transaction.atomic():
        Activity.objects.filter(pk=draft.pk).update(
            **{"author": None, column: author.user_id, "approved_by": author.user_id, "status": "APPROVED"}
        )
    assert state(draft) == ("DRAFT", None, None, 1)


def test_one_person_shop_approves_alone_where_the_setting_says_so_and_it_is_noted(draft, people, settings):
    author, _approver = people
    settings.SELF_APPROVAL = True
    drafts.activity_submit(activity_id=draft.pk, now=timezone.now(), by=author)
    drafts.activity_approve(activity_id=draft.pk, now=timezone.now(), by=author)
    assert state(draft) == ("APPROVED", author.user_id, author.user_id, 3)
    assert draft.approved_alone is True


def test_only_a_person_approves(draft, people):
    drafts.activity_submit(activity_id=draft.pk, now=timezone.now(), by=people[0])
    with pytest.raises(ActivityRefused, match="Only a person"):
        drafts.activity_approve(activity_id=draft.pk, now=timezone.now(), by=Actor("command line"))


def test_rejection_needs_a_reason_and_sends_the_draft_back_to_its_author(draft, people):
    author, approver = people
    drafts.activity_submit(activity_id=draft.pk, now=timezone.now(), by=author)
    with pytest.raises(ActivityRefused, match="reason"):
        drafts.activity_reject(activity_id=draft.pk, reason="  ", now=timezone.now(), by=approver)
    drafts.activity_reject(activity_id=draft.pk, reason="too cheap", now=timezone.now(), by=approver)
    assert state(draft) == ("DRAFT", None, None, 3)
    assert draft.rejection == "too cheap"
    drafts.activity_submit(activity_id=draft.pk, now=timezone.now(), by=author)
    draft.refresh_from_db()
    assert (draft.status, draft.rejection) == ("SUBMITTED", "")


def test_withdrawing_makes_an_approval_void(draft, people):
    author, approver = people
    drafts.activity_submit(activity_id=draft.pk, now=timezone.now(), by=author)
    drafts.activity_approve(activity_id=draft.pk, now=timezone.now(), by=approver)
    drafts.activity_withdraw(activity_id=draft.pk, now=timezone.now(), by=author)
    assert state(draft) == ("DRAFT", None, None, 4)
    with pytest.raises(ActivityRefused):
        services.activity_publish(activity_id=draft.pk, now=timezone.now(), by=author)


def test_terms_are_fixed_from_submitting_on(draft, people):
    author, _approver = people
    opened = Activity.objects.get(pk=draft.pk)
    drafts.activity_submit(activity_id=draft.pk, now=timezone.now(), by=author)
    opened.stock_total = 99_999
    with pytest.raises(ActivityRefused, match="no draft any more"):
        drafts.activity_draft_save(activity=opened, now=timezone.now(), by=author)
    with pytest.raises(ActivityRefused, match="cannot be deleted"):
        drafts.activity_draft_delete(activity_id=draft.pk, now=timezone.now(), by=author)
    draft.refresh_from_db()
    assert draft.stock_total == 10


def test_what_is_over_or_not_valid_is_not_submitted(people):
    author, _approver = people
    now = timezone.now()
    over = DraftFactory(starts_at=now - 2 * HOUR, ends_at=now - HOUR)
    with pytest.raises(ActivityRefused, match="end has passed"):
        drafts.activity_submit(activity_id=over.pk, now=now, by=author)
    assert Activity.objects.get().status == "DRAFT"


@pytest.mark.parametrize("status", ["DRAFT", "ACTIVE", "VOIDED", "ENDED"])
def test_clone_is_a_draft_of_whoever_cloned_it_with_the_same_terms_and_nothing_else(people, status):
    author, _approver = people
    source = DraftFactory(name="Sale", status=status, issued=3, rules_text="one each", epoch=5, version=9)
    clone = drafts.activity_clone(activity_id=source.pk, now=timezone.now(), by=author)
    clone.refresh_from_db()
    source.refresh_from_db()
    same = [name for name in drafts.DRAFT_FIELDS if name != "name"]
    assert [getattr(clone, name) for name in same] == [getattr(source, name) for name in same]
    assert (clone.name, clone.status, clone.issued, clone.epoch, clone.version) == ("Copy of Sale", "DRAFT", 0, 0, 1)
    assert clone.author_id == author.user_id
    assert clone.uid != source.uid
    assert (source.status, source.issued) == (status, 3)


def test_clone_of_the_longest_name_fits():
    source = DraftFactory(name="x" * 100)
    assert drafts.activity_clone(activity_id=source.pk, now=timezone.now()).name == ("Copy of " + "x" * 92)


def test_drafts_submitted_and_approved_ones_are_seen_by_no_shopper_and_by_no_comparison(api, people):
    for status in ("DRAFT", "SUBMITTED", "APPROVED"):
        DraftFactory(status=status)
    offer(name="on offer")
    listed = api.get("/market/consumer/activity/list").json()["results"]
    assert [element["name"] for element in listed] == ["on offer"]
    assert Activity.objects.watched().count() == 1


class TestAddingStock:
    """As compare-and-set, with a number for each request."""

    def add(self, activity: Activity, **how: object) -> Activity:
        return services.activity_add_stock(activity_id=activity.pk, amount=5, now=timezone.now(), **how)

    def test_same_request_again_adds_once(self):
        activity = offer(stock_total=10)
        for _click in range(3):
            added = self.add(activity, expected_total=10, request_id="r-1")
        assert added.stock_total == 15
        assert AuditEvent.objects.filter(action="add_stock").count() == 1

    def test_same_request_eight_times_at_once_adds_once(self):
        activity = offer(stock_total=10)

        def click(_number: int) -> int:
            try:
                return self.add(activity, expected_total=10, request_id="r-1").stock_total
            finally:
                connection.close()

        assert crowd(8, click) == [15] * 8
        activity.refresh_from_db()
        assert activity.stock_total == 15

    def test_total_that_somebody_else_has_changed_is_refused(self):
        activity = offer(stock_total=10)
        self.add(activity, expected_total=10, request_id="mine")
        with pytest.raises(ActivityRefused, match="15 by now"):
            self.add(activity, expected_total=10, request_id="yours")
        activity.refresh_from_db()
        assert activity.stock_total == 15

    def test_two_people_who_both_saw_ten_add_once(self):
        activity = offer(stock_total=10)

        def click(number: int) -> str:
            try:
                self.add(activity, expected_total=10, request_id=f"r-{number}")
                return "added"
            except ActivityRefused:
                return "refused"
            finally:
                connection.close()

        assert sorted(crowd(4, click)) == ["added", "refused", "refused", "refused"]
        activity.refresh_from_db()
        assert activity.stock_total == 15


def test_two_who_approve_and_reject_at_once_leave_one_decision(draft, people):
    author, approver = people
    other = Actor("other", user_id=get_user_model().objects.create_user("other").pk)
    drafts.activity_submit(activity_id=draft.pk, now=timezone.now(), by=author)

    def decide(number: int) -> str:
        try:
            if number == 1:
                drafts.activity_approve(activity_id=draft.pk, now=timezone.now(), by=approver)
            else:
                drafts.activity_approve(activity_id=draft.pk, now=timezone.now(), by=other)
            return "approved"
        except ActivityRefused:
            return "refused"
        finally:
            connection.close()

    assert sorted(crowd(2, decide)) == ["approved", "refused"]
    assert AuditEvent.objects.filter(action="approve").count() == 1


def test_publishing_needs_an_approval():
    draft, ready = DraftFactory(), approved()
    with pytest.raises(ActivityRefused):
        services.activity_publish(activity_id=draft.pk, now=timezone.now())
    assert services.activity_publish(activity_id=ready.pk, now=timezone.now()).status == "ACTIVE"
