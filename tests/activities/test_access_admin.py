"""The access page: the form, two lists by file with a look first, who may use it, and what is shown to the others."""

import csv
import io
import random
import re
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from activities import access, services
from activities.admin import activity_access
from activities.contention import ContentionLost
from activities.models import ACCESS_FIELDS, LISTED_MAX, Activity, AuditEvent, Listed
from sync.roles import roles_create
from tests.activities.test_access import answers, listed, row
from tests.activities.test_admin import form_of, messages_of
from tests.factories import DraftFactory, approved, offer

pytestmark = pytest.mark.django_db(transaction=True)
ALLOW, DENY = Listed.Verdict.ALLOW, Listed.Verdict.DENY


@pytest.fixture
def boss(client):
    client.force_login(get_user_model().objects.create_superuser("boss", password="x"))
    return client


@pytest.fixture
def person():
    """A browser of somebody with these permissions: ``person("view_activity")``."""

    def logged_in(*codenames: str, role: str = "") -> Client:
        user = get_user_model().objects.create_user(f"user-{random.random()}", password="x", is_staff=True)
        user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
        user.groups.set(Group.objects.filter(name=role))
        client = Client()
        client.force_login(user)
        return client

    return logged_in


def url_of(activity: Activity, end: str = "access/") -> str:
    return f"/admin/activities/activity/{activity.pk}/{end}"


def sent(client, activity: Activity, **changes: str | None) -> dict[str, str]:
    """What the browser would send for the page as it is, but for the changes; None is what is not sent."""
    form = client.get(url_of(activity)).context["form"]
    fields = {name: form[name].value() for name in (*ACCESS_FIELDS, "expected_version")}
    plain = {name: "on" if value is True else value for name, value in fields.items() if value is not False}
    return {name: value for name, value in {**plain, **changes}.items() if value is not None}


def looked_at(client, activity: Activity, content: bytes, which: str = "let-in"):
    return client.post(url_of(activity, f"access/{which}/"), {"file": SimpleUploadedFile("list.csv", content)})


def confirmed(client, activity: Activity, preview, which: str = "let-in"):
    data = {"token": preview.context["token"]}
    return client.post(url_of(activity, f"access/{which}/confirm/"), data, follow=True)


def told(*actions: str) -> list[tuple]:
    events = AuditEvent.objects.filter(action__in=actions).order_by("id")
    return [(event.action, event.actor_name, event.before, event.after) for event in events]


# -- The form ----------------------------------------------------------------------------------------------


def test_page_explains_every_field_and_starts_with_sensible_values(boss):
    activity = DraftFactory(name="Sale")
    page = boss.get(url_of(activity))
    form = page.context["form"]
    assert [name for name in form.fields if form[name].help_text == ""] == ["expected_version"]
    assert [str(title) for title, _fields in form.fieldsets()] == ["Limits", "Challenge", "Who is let in"]
    assert [field.name for _title, fields in form.fieldsets() for field in fields] == list(ACCESS_FIELDS)
    assert [form[name].value() for name in ACCESS_FIELDS] == [
        20, 10, None, 0, "OFF", 50_000, 500, "EVERYBODY", 100, False,
    ]  # fmt: skip
    assert "also in a sale" in page.content.decode()


def test_access_of_a_sale_is_changed_by_the_form_and_holds_for_the_next_press(boss):
    activity = offer(name="Sale")
    assert answers(activity, 1) == ["won"]
    done = boss.post(url_of(activity), sent(boss, activity, gray_percent="0", coming_soon="on"), follow=True)
    assert done.redirect_chain == [(url_of(activity), 302)]
    assert messages_of(done) == ["Done: Access. It holds within a second."]
    assert answers(activity, 2) == ["NOT_ELIGIBLE"]
    assert told("access") == [
        ("access", "boss", {"gray_percent": 100, "coming_soon": False}, {"gray_percent": 0, "coming_soon": True})
    ]
    boss.post(url_of(activity), sent(boss, activity, gray_percent="100", coming_soon=None, asks_max=""))
    activity.refresh_from_db()
    assert (activity.gray_percent, activity.coming_soon, activity.asks_max) == (100, False, None)
    assert answers(activity, 2) == ["won"]


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"asks_max": "0"}, "asks_max", "greater than or equal to 1"),
        ({"asks_window_s": ""}, "asks_window_s", "required"),
        ({"asks_window_s": "301"}, "asks_window_s", "less than or equal to 300"),
        ({"rate_max": "many"}, "rate_max", "whole number"),
        ({"ramp_s": "60"}, "ramp_s", "needs a number of coupons per second"),
        ({"challenge": "SOMETIMES"}, "challenge", "valid choice"),
        ({"challenge_effort": "1"}, "challenge_effort", "greater than or equal to 1000"),
        ({"gray_percent": "101"}, "gray_percent", "less than or equal to 100"),
        ({"audience": ""}, "audience", "required"),
        ({"expected_version": None}, "expected_version", "required"),
    ],
)
def test_value_that_cannot_be_is_said_beside_its_field_and_nothing_is_changed(boss, changes, field, says):
    activity = DraftFactory()
    before = row(activity)
    response = boss.post(url_of(activity), sent(boss, activity, coming_soon="on", **changes))
    assert response.status_code == 200
    assert says in " ".join(response.context["form"].errors[field])
    assert (row(activity), AuditEvent.objects.count()) == (before, 0)


def test_page_that_somebody_else_overtook_says_so_and_keeps_the_input(boss):
    activity = DraftFactory()
    stale = sent(boss, activity, gray_percent="7")
    access.activity_access_change(activity_id=activity.pk, values={"gray_percent": 50}, now=timezone.now())
    response = boss.post(url_of(activity), stale)
    assert response.context["form"].non_field_errors() == ["Somebody else changed it meanwhile: open it again."]
    assert "Somebody else changed it" in response.content.decode()
    assert response.context["form"]["gray_percent"].value() == "7"
    activity.refresh_from_db()
    assert (activity.gray_percent, activity.version) == (50, 2)


def test_saving_what_is_there_already_is_no_change(boss):
    activity = DraftFactory()
    assert messages_of(boss.post(url_of(activity), sent(boss, activity), follow=True)) == ["Nothing was changed."]
    activity.refresh_from_db()
    assert (activity.version, AuditEvent.objects.count()) == (1, 0)


def test_locked_row_is_a_word_on_the_page(boss, monkeypatch):
    def locked(**_arguments: object) -> None:
        raise ContentionLost

    activity = DraftFactory()
    monkeypatch.setattr(activity_access, "activity_access_change", locked)
    monkeypatch.setattr(activity_access, "activity_listed_replace", locked)
    response = boss.post(url_of(activity), sent(boss, activity, gray_percent="7"))
    assert "try again" in response.context["form"].non_field_errors()[0]
    preview = looked_at(boss, activity, b"7\n")
    assert "try again" in messages_of(confirmed(boss, activity, preview))[0]


def test_what_is_over_is_shown_and_cannot_be_changed(boss):
    now = timezone.now()
    over = DraftFactory(status="ACTIVE", starts_at=now - timedelta(hours=2), ends_at=now - timedelta(hours=1))
    page = boss.get(url_of(over)).content.decode()
    assert "The activity is over" in page
    assert ('type="submit" class="bg-primary' in page, 'type="file"' in page) == (False, False)
    assert f'href="{url_of(over)}"' not in boss.get(url_of(over, "change/")).content.decode()
    refused = boss.post(url_of(over), sent(boss, over, gray_percent="7"))
    assert "not possible" in refused.context["form"].non_field_errors()[0]
    preview = looked_at(boss, over, b"7\n")
    assert "not possible" in messages_of(confirmed(boss, over, preview))[0]
    assert (row(over)["gray_percent"], row(over)["version"], listed(over)) == (100, 1, set())


# -- Who may ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "who"),
    [
        ("DRAFT", "author"),
        ("SUBMITTED", "author"),
        ("APPROVED", "author"),
        ("ACTIVE", "operator"),
        ("PAUSED", "operator"),
    ],
)
def test_author_says_who_is_let_in_until_it_is_published_and_then_the_operator(person, status, who):
    roles_create()
    activity = DraftFactory(status=status)
    before = row(activity)
    for role in ("author", "approver", "operator", "support"):
        client = person(role=role)
        page = client.get(url_of(activity, "change/")).content.decode()
        assert (f'href="{url_of(activity)}"' in page) is (role == who), role
        if role == who:
            assert client.get(url_of(activity)).status_code == 200
            continue
        assert client.get(url_of(activity)).status_code == 403, role
        assert client.post(url_of(activity), {"gray_percent": "1"}).status_code == 403
        assert looked_at(client, activity, b"7\n").status_code == 403
        for end in ("access/let-in/confirm/", "access/let-in/empty/"):
            assert client.post(url_of(activity, end), {}).status_code == 403
    assert (row(activity), AuditEvent.objects.count()) == (before, 0)


def test_author_who_opened_the_page_before_it_was_published_changes_nothing(person):
    activity = approved()
    author = person("view_activity", "change_activity")
    stale = sent(author, activity, gray_percent="1")
    preview = looked_at(author, activity, b"7\n")
    services.activity_publish(activity_id=activity.pk, now=timezone.now())
    assert author.post(url_of(activity), stale).status_code == 403
    token = {"token": preview.context["token"]}
    assert author.post(url_of(activity, "access/let-in/confirm/"), token).status_code == 403
    assert (row(activity)["gray_percent"], listed(activity)) == (100, set())


def test_whoever_may_look_at_an_activity_sees_its_access_and_how_many_are_listed_but_not_whom(person):
    activity, draft = offer(), DraftFactory()
    for one in (activity, draft):
        for verdict, user_ids in ((ALLOW, range(987_654_001, 987_655_235)), (DENY, [987_654_000])):
            access.activity_listed_replace(
                activity_id=one.pk, verdict=verdict, user_ids=user_ids, now=timezone.now()
            )  # fmt: skip
        access.activity_access_change(
            activity_id=one.pk, values={"challenge": "PRESSURE", "rate_max": 4321}, now=timezone.now()
        )  # fmt: skip
        page = person("view_activity").get(url_of(one, "change/")).content.decode()
        for text in ("Access", "Under pressure", "4321", "1,234"):
            assert text in page, text
        assert "98765" not in page


def test_draft_form_is_saved_beside_the_access_that_it_shows(boss):
    draft = DraftFactory(name="First")
    access.activity_access_change(activity_id=draft.pk, values={"gray_percent": 7}, now=timezone.now())
    draft.refresh_from_db()
    boss.post(url_of(draft, "change/"), form_of(draft, name="Second", gray_percent="99"))
    draft.refresh_from_db()
    assert (draft.name, draft.gray_percent) == ("Second", 7)


def test_clone_says_that_lists_were_not_copied(boss):
    draft = DraftFactory()
    assert len(messages_of(boss.get(url_of(draft, "clone/"), follow=True))) == 1
    access.activity_listed_replace(activity_id=draft.pk, verdict=ALLOW, user_ids=[7], now=timezone.now())
    said = messages_of(boss.get(url_of(draft, "clone/"), follow=True))
    assert said[1] == "The lists of those let in and kept out were not copied."


def test_question_before_a_draft_is_deleted_counts_its_lists_and_names_nobody(boss):
    draft = DraftFactory(name="Sale")
    access.activity_listed_replace(activity_id=draft.pk, verdict=ALLOW, user_ids=[987654321, 7], now=timezone.now())
    page = boss.get(url_of(draft, "delete/")).content.decode()
    assert re.search(r"[Ll]isted shoppers: 2", page)
    assert "987654321" not in page
    boss.post(url_of(draft, "delete/"), {"post": "yes"})
    assert (Activity.objects.count(), Listed.objects.count()) == (0, 0)


# -- Lists ------------------------------------------------------------------------------------------------


def test_file_is_looked_at_and_then_replaces_the_list(boss):
    activity = offer(stock_total=100)
    access.activity_listed_replace(activity_id=activity.pk, verdict=ALLOW, user_ids=[1, 2, 3], now=timezone.now())
    access.activity_access_change(activity_id=activity.pk, values={"gray_percent": 0}, now=timezone.now())
    before = AuditEvent.objects.count()
    preview = looked_at(boss, activity, "\ufeff用户 id\r\n3\r\n4\r\n9223372036854775807\r\n".encode())
    look = preview.context["look"]
    assert (len(look.file.user_ids), look.now, look.added, look.removed) == (3, 3, 2, 1 + 1)
    assert "3, 4, 9223372036854775807" in preview.content.decode()
    assert listed(activity) == {(1, "ALLOW"), (2, "ALLOW"), (3, "ALLOW")}
    assert AuditEvent.objects.count() == before
    assert answers(activity, 4) == ["NOT_ELIGIBLE"]
    done = confirmed(boss, activity, preview)
    assert messages_of(done) == ["Done: List of those let in. It holds within a second."]
    assert listed(activity) == {(3, "ALLOW"), (4, "ALLOW"), (2**63 - 1, "ALLOW")}
    assert answers(activity, 1, 3, 4, 2**63 - 1) == ["NOT_ELIGIBLE", "won", "won", "won"]
    assert told("listed")[-1] == (
        "listed", "boss", {"let_in": 3, "listed_version": 1}, {"let_in": 3, "listed_version": 2},
    )  # fmt: skip


def test_each_bad_line_is_named_and_there_is_nothing_to_confirm(boss):
    activity = DraftFactory()
    access.activity_listed_replace(activity_id=activity.pk, verdict=ALLOW, user_ids=[5], now=timezone.now())
    before, events = row(activity), AuditEvent.objects.count()
    preview = looked_at(boss, activity, b"user_id\n7\nseven\n7\n5\n", "kept-out")
    mistakes = [(mistake.line, mistake.text) for mistake in preview.context["mistakes"]]
    assert mistakes == [(3, "seven"), (4, "7"), (5, "5")]
    page = preview.content.decode()
    for text in ("No id", "Twice in the file, first in line 2.", "On the other list.", "Lines that are not good: 3."):
        assert text in page, text
    assert ('name="token"' in page, "Would be added" in page, preview.context["look"].file.rows) == (False, False, 4)
    assert "choose it again" in messages_of(confirmed(boss, activity, preview, "kept-out"))[0]
    assert (row(activity), listed(activity), AuditEvent.objects.count()) == (before, {(5, "ALLOW")}, events)


def test_preview_of_many_mistakes_shows_the_first_of_them(boss):
    preview = looked_at(boss, DraftFactory(), b"x\n" * 1000)
    page = preview.content.decode()
    assert (page.count("No id"), "Lines that are not good: 1000." in page) == (20, True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("用户".encode("gb18030"), "not UTF-8"),
        (b"user_id\n", "nobody"),
        (b"", "empty"),
        (b"1\n" * 100_001, "more rows than a list takes"),
    ],
)
def test_file_that_is_no_list_is_refused_beside_its_field(boss, content, says):
    activity = DraftFactory()
    response = looked_at(boss, activity, content, "kept-out")
    [allow, deny] = response.context["lists"]
    assert (allow.form.errors, says in str(deny.form.errors["file"])) == ({}, True)
    assert says in response.content.decode()
    assert (listed(activity), AuditEvent.objects.count()) == (set(), 0)


def test_missing_file_is_asked_for(boss):
    response = boss.post(url_of(DraftFactory(), "access/let-in/"), {})
    assert "required" in str(response.context["lists"][0].form.errors["file"])


def test_look_is_confirmed_once_by_whoever_looked_for_that_list_of_that_activity(boss, person):
    activity, other = DraftFactory(), DraftFactory()
    preview = looked_at(boss, activity, b"7\n")
    stranger = person("view_activity", "change_activity")
    for client, subject, which in (
        (stranger, activity, "let-in"),
        (boss, other, "let-in"),
        (boss, activity, "kept-out"),
    ):
        assert "choose it again" in messages_of(confirmed(client, subject, preview, which))[0]  # fmt: skip
    assert Listed.objects.count() == 0
    confirmed(boss, activity, preview)
    assert "choose it again" in messages_of(confirmed(boss, activity, preview))[0]
    activity.refresh_from_db()
    assert (listed(activity), listed(other), activity.listed_version) == ({(7, "ALLOW")}, set(), 1)


def test_look_that_somebody_else_overtook_is_refused(boss):
    activity = DraftFactory()
    preview = looked_at(boss, activity, b"7\n")
    access.activity_listed_replace(activity_id=activity.pk, verdict=DENY, user_ids=[7], now=timezone.now())
    assert "Somebody else changed it" in messages_of(confirmed(boss, activity, preview))[0]
    assert listed(activity) == {(7, "DENY")}


def test_look_that_the_cache_lost_is_asked_for_again_and_a_cache_that_is_away_is_told(boss, settings):
    activity = DraftFactory()
    preview = looked_at(boss, activity, b"7\n")
    cache.clear()
    assert "choose it again" in messages_of(confirmed(boss, activity, preview))[0]
    away = {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/2"}
    settings.CACHES = {"default": away}
    refused = looked_at(boss, activity, b"7\n")
    assert "could not be kept" in str(refused.context["lists"][0].form.errors["file"])
    assert listed(activity) == set()


def test_list_is_emptied_after_a_question(boss):
    activity = offer()
    access.activity_listed_replace(activity_id=activity.pk, verdict=DENY, user_ids=[7, 8], now=timezone.now())
    assert answers(activity, 7) == ["NOT_ELIGIBLE"]
    url = url_of(activity, "access/kept-out/empty/")
    assert f'href="{url}"' in boss.get(url_of(activity)).content.decode()
    assert "Take everybody off this list?" in boss.get(url).content.decode()
    assert len(listed(activity)) == 2
    done = boss.post(url, {}, follow=True)
    assert done.redirect_chain == [(url_of(activity), 302)]
    assert f'href="{url}"' not in done.content.decode()
    assert listed(activity) == set()
    assert answers(activity, 7) == ["won"]
    assert told("listed")[-1][2:] == (
        {"kept_out": 2, "listed_version": 1}, {"kept_out": 0, "listed_version": 2},
    )  # fmt: skip


def test_other_addresses_of_lists_lead_nowhere(boss):
    activity = DraftFactory()
    assert looked_at(boss, activity, b"7\n", "winners").status_code == 404
    assert boss.get(url_of(activity, "access/let-in/"), follow=True).redirect_chain == [(url_of(activity), 302)]
    assert boss.get(url_of(activity, "access/let-in/confirm/")).status_code == 405
    assert boss.get("/admin/activities/activity/999999999/access/").status_code == 404


@pytest.mark.parametrize(("in_full", "shown"), [(True, ["7", "987654321"]), (False, ["•••7", "•••21"])])
def test_list_is_downloaded_by_who_may_export_and_the_audit_says_so(person, in_full, shown):
    activity = offer()
    access.activity_listed_replace(activity_id=activity.pk, verdict=DENY, user_ids=[987654321, 7], now=timezone.now())
    access.activity_listed_replace(activity_id=activity.pk, verdict=ALLOW, user_ids=[5], now=timezone.now())
    client = person("view_activity", "export_coupon", "operate_activity", *(["view_personal_data"] if in_full else []))
    url = url_of(activity, "kept-out/")
    assert f'href="{url}"' in client.get(url_of(activity)).content.decode()
    response = client.get(url)
    text = response.getvalue().decode()
    assert list(csv.reader(io.StringIO(text[1:], newline=""))) == [["user_id"], *([one] for one in shown)]
    assert f"kept-out-{activity.pk}-" in response["Content-Disposition"]
    [(action, _name, _before, after)] = told("export")
    assert (action, after) == (
        "export", {"what": "kept_out", "shoppers": "in full" if in_full else "masked", "rows": 2},
    )  # fmt: skip
    if in_full:
        boss = person("view_activity", "operate_activity")
        assert looked_at(boss, activity, text.encode(), "kept-out").context["look"].added == 0


def test_list_is_not_downloaded_without_the_permission(person):
    activity = offer()
    access.activity_listed_replace(activity_id=activity.pk, verdict=ALLOW, user_ids=[7], now=timezone.now())
    client = person("view_activity", "operate_activity")
    assert client.get(url_of(activity, "let-in/")).status_code == 403
    for page in (url_of(activity), url_of(activity, "change/")):
        assert f'href="{url_of(activity, "let-in/")}"' not in client.get(page).content.decode()
    assert told("export") == []


def test_list_of_100000_is_looked_at_and_confirmed_a_thousand_at_a_time_by_a_small_page(boss):
    activity = offer()
    user_ids = random.Random(7).sample(range(1, 2**63), LISTED_MAX)
    content = ("user_id\r\n" + "".join(f"{user_id}\r\n" for user_id in user_ids)).encode()
    with CaptureQueriesContext(connection) as asked:
        preview = looked_at(boss, activity, content)
    assert len(asked) < 20
    assert len(preview.content) < 200_000
    with CaptureQueriesContext(connection) as asked:
        done = confirmed(boss, activity, preview)
    assert messages_of(done) == ["Done: List of those let in. It holds within a second."]
    assert len(asked) < LISTED_MAX / 1000 + 50
    assert Listed.objects.filter(activity=activity, verdict="ALLOW").count() == LISTED_MAX


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_pages_open_in_both_languages(boss, language):
    activity = offer()
    access.activity_listed_replace(activity_id=activity.pk, verdict=ALLOW, user_ids=[7], now=timezone.now())
    for end in ("access/", "access/let-in/empty/", "change/"):
        response = boss.get(url_of(activity, end), HTTP_ACCEPT_LANGUAGE=language)
        assert (response.status_code, response["Content-Language"]) == (200, language)
