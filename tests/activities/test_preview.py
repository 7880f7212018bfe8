"""The preview in both languages, the checklist's questions to database and Redis, and errors that refuse to submit."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.utils import timezone

from activities import drafts, services
from activities.admission import redis_state
from activities.checklist import Level, Redis
from activities.models import Activity, AuditEvent
from activities.moments import moment_text
from activities.preview import activity_checklist, preview_cards
from activities.workflow import ActivityRefused
from tests.factories import DraftFactory, approved, offer, percent_terms, shards_declare_loaded

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


@pytest.fixture
def viewer(client):
    user = get_user_model().objects.create_user("viewer", password="x", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_activity"))
    client.force_login(user)
    return client


def page_of(activity: Activity, name: str = "preview") -> str:
    return f"/admin/activities/activity/{activity.pk}/{name}/"


def text_of(response) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", response.content.decode()))


def checked(activity: Activity, title: str):
    [item] = [item for item in activity_checklist(activity=activity, now=timezone.now()) if item.title == title]
    return item


# -- What shoppers will see ------------------------------------------------------------------------------


def test_cards_say_the_same_in_both_languages_with_times_in_the_sites_zone(settings):
    start = datetime(2026, 11, 10, 16, tzinfo=UTC)
    activity = DraftFactory.build(
        name="双十一", starts_at=start, ends_at=start + HOUR, stock_total=12_000, per_user_limit=2, rules_text="Once."
    )
    english, chinese = preview_cards(activity=activity)
    assert (english.offer, chinese.offer) == ("20.00 off orders from 100.00", "满100减20")
    assert (english.language_name, chinese.language_name) == ("English", "简体中文")
    assert english.facts == (
        ("Starts", "2026-11-11 00:00:00+08:00 (Asia/Shanghai)"),
        ("Ends", "2026-11-11 01:00:00+08:00 (Asia/Shanghai)"),
        ("Coupons", "12,000"),
        ("For each shopper", "at most 2"),
        ("Valid", "7 × 24 hours from seizing"),
    )
    assert [value for _label, value in chinese.facts][:3] == [value for _label, value in english.facts][:3]
    assert {label for label, _value in chinese.facts} & {label for label, _value in english.facts} == set()
    assert (english.name, english.rules) == (chinese.name, chinese.rules) == ("双十一", "Once.")


def test_fixed_end_of_validity_is_shown_and_the_zone_is_the_sites_whatever_is_active():
    end = datetime(2026, 12, 31, 15, 59, 59, tzinfo=UTC)
    activity = DraftFactory.build(valid_days=None, valid_until=end)
    with timezone.override("America/New_York"):
        assert moment_text(end) == "2026-12-31 23:59:59+08:00 (Asia/Shanghai)"
        assert dict(preview_cards(activity=activity)[0].facts)["Valid"] == f"until {moment_text(end)}"


@pytest.mark.parametrize("status", ["DRAFT", "SUBMITTED", "ACTIVE", "VOIDED"])
def test_page_shows_both_languages_and_the_checklist_to_who_may_look(viewer, status):
    activity = DraftFactory(name="<b>Sale</b>", status=status, rules_text="One a day.\n<script>", **percent_terms())
    change = viewer.get(f"/admin/activities/activity/{activity.pk}/change/").content.decode()
    assert f'href="{page_of(activity)}"' in change
    response = viewer.get(page_of(activity))
    shown = response.content.decode()
    assert "20% off orders from 100.00, at most 50.00 off" in shown
    assert "满100打8折，最多减50" in shown
    assert "&lt;b&gt;Sale&lt;/b&gt;" in shown
    assert "<b>Sale" not in shown
    assert "&lt;script&gt;" in shown
    assert "Sum at risk" in shown
    assert "500.00 yuan: 10 × 50.00" in text_of(response)


def test_page_needs_the_permission_and_an_activity_and_changes_nothing(client, viewer):
    activity = DraftFactory()
    before = Activity.objects.filter(pk=activity.pk).values().get()
    assert viewer.get(page_of(activity)).status_code == 200
    assert viewer.get("/admin/activities/activity/999999/preview/").status_code == 404
    assert Activity.objects.filter(pk=activity.pk).values().get() == before
    assert AuditEvent.objects.count() == 0
    other = get_user_model().objects.create_user("other", password="x", is_staff=True)
    client.force_login(other)
    assert client.get(page_of(activity)).status_code == 403


def test_draft_whose_fields_are_wrong_by_now_still_has_a_page(viewer):
    activity = DraftFactory(ends_at=timezone.now() - timedelta(seconds=1), starts_at=timezone.now() - HOUR)
    assert "move the end first" in text_of(viewer.get(page_of(activity)))


# -- What the checklist asks for -------------------------------------------------------------------------


def test_overlaps_are_those_approved_or_on_offer_at_the_same_time_from_now_on():
    now = timezone.now()
    window = {"starts_at": now - HOUR, "ends_at": now + HOUR}
    names = {status: f"with {status}" for status in ("APPROVED", "PENDING", "ACTIVE", "PAUSED")}
    for status in ("DRAFT", "SUBMITTED", "ENDED", "VOIDED", *names):
        DraftFactory(status=status, name=f"with {status}", **window)
    DraftFactory(status="ACTIVE", name="over", starts_at=now - 2 * HOUR, ends_at=now)
    DraftFactory(status="ACTIVE", name="next", starts_at=now + HOUR, ends_at=now + 2 * HOUR)
    activity = DraftFactory(**window)
    item = checked(activity, "Other activities")
    assert (item.level, [name for _id, name in item.activities]) == (Level.WARNING, list(names.values()))


def test_own_row_is_no_overlap():
    assert checked(offer(), "Other activities").level == Level.OK


def test_redis_is_ready_loading_or_away(settings):
    draft = DraftFactory()
    assert redis_state(draft) == Redis.LOADING
    shards_declare_loaded()
    assert redis_state(draft) == Redis.READY
    published = offer()
    assert redis_state(published) == Redis.READY
    published.uid = "another"
    assert redis_state(published) == Redis.LOADING
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert redis_state(draft) == Redis.AWAY
    assert checked(draft, "Redis").level == Level.WARNING


def test_preview_opens_while_redis_is_away(viewer, settings):
    activity = DraftFactory()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    response = viewer.get(page_of(activity))
    assert response.status_code == 200
    assert "Redis cannot be asked" in text_of(response)


# -- Before submitting -----------------------------------------------------------------------------------


def test_pages_that_ask_show_what_to_look_at_and_what_is_good_is_left_out(client):
    client.force_login(get_user_model().objects.create_superuser("boss", password="x"))
    activity = DraftFactory(min_spend=0)
    for status, name in (("DRAFT", "submit"), ("SUBMITTED", "approve"), ("APPROVED", "publish")):
        Activity.objects.filter(pk=activity.pk).update(status=status)
        shown = text_of(client.get(page_of(activity, name)))
        assert "An order of 20.00 becomes free" in shown
        assert "Sum at risk" not in shown
    Activity.objects.filter(pk=activity.pk).update(status="ACTIVE")
    assert "becomes free" not in text_of(client.get(page_of(activity, "pause")))


def test_warnings_do_not_refuse():
    activity = DraftFactory(min_spend=0, per_user_limit=100)
    drafts.activity_submit(activity_id=activity.pk, now=timezone.now())
    activity.refresh_from_db()
    assert activity.status == "SUBMITTED"


@pytest.mark.parametrize("change", [drafts.activity_submit, services.activity_publish])
@pytest.mark.parametrize(
    ("fields", "says"),
    [({"name": ""}, "cannot be blank"), ({"stock_total": 10_000_001}, "10000000"), ({}, "move the end first")],
)
def test_errors_refuse_in_the_service_and_change_nothing(change, fields, says):
    activity = DraftFactory() if change is drafts.activity_submit else approved()
    Activity.objects.filter(pk=activity.pk).update(**fields)
    now = timezone.now() if fields else activity.ends_at
    before = Activity.objects.filter(pk=activity.pk).values().get()
    with pytest.raises(ActivityRefused, match=says):
        change(activity_id=activity.pk, now=now)
    assert Activity.objects.filter(pk=activity.pk).values().get() == before
    assert AuditEvent.objects.count() == 0
