"""Activities by file: a preview, then all rows or none, as drafts and by the same rules as the form."""

import csv
import io
from datetime import UTC, datetime

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from activities.models import Activity, AuditEvent
from activities.transfer import FILE_MAX_BYTES, ROWS_MAX, moment_parse, table_check
from tests.factories import DraftFactory, offer, percent_terms

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/admin/activities/activity/"
IMPORT, CONFIRM, EXPORT = f"{LIST}import/", f"{LIST}process_import/", f"{LIST}export/"
HEADER = ["name", "kind", "min_spend", "amount_off", "pay_percent", "max_off", "valid_days", "valid_until", "starts_at",
          "ends_at", "stock_total", "per_user_limit"]  # fmt: skip
GOOD = ["双十一", "FIXED", "100.00", "20.00", "", "", "7", "", "2030-11-11 00:00", "2030-11-12 00:00", "1000", "2"]
PERCENT = ["Eights", "PERCENT", "", "", "80", "50", "", "2030-12-31T23:59:59Z", "2030/11/11 0:00",
           "2030-11-12T00:00+08:00", "5", ""]  # fmt: skip


@pytest.fixture
def author(client):
    user = get_user_model().objects.create_user("author", password="x", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=["view_activity", "add_activity"]))
    client.force_login(user)
    return client


def table(*rows: list[str], header: list[str] | None = None) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([HEADER if header is None else header, *rows])
    return text.getvalue().encode()


def changed(**cells: str) -> list[str]:
    return [cells.get(name, cell) for name, cell in zip(HEADER, GOOD, strict=True)]


def looked_at(client, content: bytes, name: str = "sale.csv"):
    return client.post(IMPORT, {"import_file": SimpleUploadedFile(name, content), "format": "0", "resource": "0"})


def confirmed(client, preview):
    return client.post(CONFIRM, preview.context["confirm_form"].initial, follow=True)


def row_errors(response) -> dict[int, dict[str, list[str]]]:
    return {row.number: row.error_dict for row in response.context["result"].invalid_rows}


def nothing_happened() -> bool:
    return (Activity.objects.count(), AuditEvent.objects.count()) == (0, 0)


def said(response) -> str:
    return " ".join(str(message) for message in response.context["messages"])


# -- Importing -------------------------------------------------------------------------------------------


def test_file_is_previewed_and_then_made_into_drafts_of_whoever_sent_it(author):
    preview = looked_at(author, table(GOOD, PERCENT))
    assert preview.status_code == 200
    assert preview.context["result"].totals["new"] == 2
    assert nothing_happened()
    assert "双十一" in preview.content.decode()
    assert "Drafts made: 2." in said(confirmed(author, preview))
    fixed, percent = Activity.objects.order_by("id")
    fields = ("name", "kind", "min_spend", "amount_off", "pay_percent", "max_off", "min_payable", "valid_days",
              "valid_until", "starts_at", "ends_at", "stock_total", "per_user_limit", "status", "version")  # fmt: skip
    start, end = datetime(2030, 11, 10, 16, tzinfo=UTC), datetime(2030, 11, 11, 16, tzinfo=UTC)
    assert [getattr(fixed, name) for name in fields] == [
        "双十一", "FIXED", 100, 20, None, None, 0, 7, None, start, end, 1000, 2, "DRAFT", 1,
    ]  # fmt: skip
    until = datetime(2030, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert [getattr(percent, name) for name in fields] == [
        "Eights", "PERCENT", 0, None, 80, 50, 0, None, until, start, end, 5, 1, "DRAFT", 1,
    ]  # fmt: skip
    assert {activity.author.username for activity in (fixed, percent)} == {"author"}
    events = list(AuditEvent.objects.order_by("id").values_list("action", "subject_id", "actor_name"))
    assert events == [
        ("draft_create", str(fixed.pk), "author"),
        ("draft_create", str(percent.pk), "author"),
        ("import", "", "author"),
    ]
    assert AuditEvent.objects.get(action="import").after == {
        "file": "sale.csv", "rows": 2, "ids": [str(fixed.pk), str(percent.pk)],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cells", "column", "says"),
    [
        ({"name": ""}, "name", "blank"),
        ({"name": "x" * 101}, "name", "at most 100"),
        ({"kind": "GIFT"}, "kind", "valid choice"),
        ({"amount_off": ""}, "amount_off", "needs it"),
        ({"amount_off": "0"}, "amount_off", "greater than or equal to 0.01"),
        ({"amount_off": "1.005"}, "amount_off", "2 decimal places"),
        ({"amount_off": "NaN"}, "amount_off", "Enter a number"),
        ({"pay_percent": "80"}, "pay_percent", "Leave this empty"),
        ({"stock_total": "0"}, "stock_total", "greater than or equal to 1"),
        ({"stock_total": "10.7"}, "stock_total", "whole number"),
        ({"stock_total": "10000001"}, "stock_total", "less than or equal to 10000000"),
        ({"per_user_limit": "-1"}, "per_user_limit", "greater than or equal to 0"),
        ({"per_user_limit": "0"}, "per_user_limit", "greater than or equal to 1"),
        ({"starts_at": ""}, "starts_at", "cannot be null"),
        ({"starts_at": "tomorrow"}, "starts_at", "“tomorrow” is no date and time"),
        ({"starts_at": "2030-11-11"}, "starts_at", "is no date and time"),
        ({"ends_at": "2030-11-10 00:00"}, "ends_at", "after the start"),
        ({"valid_days": ""}, "valid_days", "either days or a fixed end"),
        ({"valid_until": "2030-12-31 00:00"}, "valid_days", "not both"),
        ({"valid_days": "", "valid_until": "2030-11-11 00:00"}, "valid_until", "until the activity ends"),
    ],
)
def test_bad_cell_is_said_beside_its_row_and_no_row_is_imported(author, cells, column, says):
    response = looked_at(author, table(GOOD, changed(**cells), GOOD))
    errors = row_errors(response)
    assert list(errors) == [2]
    assert says in " ".join(errors[2][column])
    assert "confirm_form" not in response.context
    assert says in response.content.decode()
    assert nothing_happened()


def test_every_bad_cell_of_every_row_is_said_at_once(author):
    bad = changed(stock_total="many", starts_at="soon", name="")
    errors = row_errors(looked_at(author, table(bad, GOOD, changed(amount_off="x"))))
    assert {number: sorted(found) for number, found in errors.items()} == {
        1: ["name", "starts_at", "stock_total"],
        3: ["amount_off"],
    }


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (table([*GOOD, "7"], header=[*HEADER, "id"]), "Remove these columns: id."),
        (table([*GOOD, "7", "ACTIVE"], header=[*HEADER, "issued", "status"]), "Remove these columns: issued, status."),
        (table([*GOOD, "7"], header=[*HEADER, "author"]), "no such columns: author"),
        (table([*GOOD, "x"], header=[*HEADER, "name"]), "there twice: name"),
        (table(GOOD[:-2], header=HEADER[:-2]), "missing: stock_total"),
        (table(), "no rows"),
        (table(GOOD, GOOD[:-1], [*GOOD, ""]), "than the heading: 2, 3"),
        (table(*[GOOD] * (ROWS_MAX + 1)), "1001 rows"),
        (table(changed(name="x" * FILE_MAX_BYTES)), "larger than 1 MB"),
        ("名".encode("gb18030"), "not UTF-8"),
        (b'name\n"x', "no CSV"),
        (b"\n\n", "missing: name"),
    ],
)
def test_file_that_is_no_table_of_drafts_is_refused_as_a_whole(author, content, says):
    DraftFactory(name="there")
    before = list(Activity.objects.values())
    response = looked_at(author, content)
    assert says in " ".join(response.context["form"].errors["import_file"])
    assert says in response.content.decode()
    assert (list(Activity.objects.values()), AuditEvent.objects.count()) == (before, 0)


def test_file_of_exactly_so_many_rows_is_taken():
    table_check(table(*[GOOD] * ROWS_MAX))
    with pytest.raises(ValidationError):
        table_check(table(*[GOOD] * (ROWS_MAX + 1)))


def test_byte_order_mark_blank_lines_and_an_escaped_formula_are_read_as_meant(author):
    content = b"\xef\xbb\xbf" + table(changed(name="'=1+1"), [], changed(name="'quoted'"))
    confirmed(author, looked_at(author, content))
    assert sorted(Activity.objects.values_list("name", flat=True)) == ["'quoted'", "=1+1"]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-11 00:00", datetime(2026, 11, 11)),
        ("2026/11/11 0:00", datetime(2026, 11, 11)),
        ("2026/1/2 13:04:05", datetime(2026, 1, 2, 13, 4, 5)),
        ("2026-11-11T00:00:00Z", datetime(2026, 11, 11, tzinfo=UTC)),
    ],
)
def test_moments_are_read_as_people_and_spreadsheets_write_them(text, moment):
    assert moment_parse(text) == moment


@pytest.mark.parametrize(
    "text", ["2026-11-11", "20261111", "11:00", "2026-13-11 00:00", "2026-11-11 25:00", "x:y", ":"]
)
def test_what_is_no_moment_says_how_to_write_one(text):
    with pytest.raises(ValidationError, match="is no date and time"):
        moment_parse(text)


def test_same_file_is_confirmed_once(author):
    preview = looked_at(author, table(GOOD))
    confirmed(author, preview)
    assert "choose it again" in said(confirmed(author, preview))
    assert Activity.objects.count() == 1


def test_file_that_the_cache_lost_is_asked_for_again(author):
    preview = looked_at(author, table(GOOD))
    cache.clear()
    assert "choose it again" in said(confirmed(author, preview))
    assert nothing_happened()


def test_row_that_is_not_good_any_more_when_it_is_confirmed_lets_none_in(author, monkeypatch):
    preview = looked_at(author, table(GOOD, changed(name="second")))
    clean = Activity.clean

    def stricter(self: Activity) -> None:
        clean(self)
        if self.name == "second":
            raise ValidationError("not any more")

    monkeypatch.setattr(Activity, "clean", stricter)
    assert "nothing was imported" in said(confirmed(author, preview))
    assert nothing_happened()


def test_import_needs_the_permission_to_add(author):
    preview = looked_at(author, table(GOOD))
    assert IMPORT in author.get(LIST).content.decode()
    get_user_model().objects.get().user_permissions.remove(Permission.objects.get(codename="add_activity"))
    assert IMPORT not in author.get(LIST).content.decode()
    assert author.get(IMPORT).status_code == 403
    assert looked_at(author, table(GOOD)).status_code == 403
    assert author.post(CONFIRM, preview.context["confirm_form"].initial).status_code == 403
    assert author.get(CONFIRM).status_code == 405
    assert nothing_happened()


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_pages_open_in_both_languages(author, language):
    for url in (IMPORT, EXPORT):
        response = author.get(url, HTTP_ACCEPT_LANGUAGE=language)
        assert (response.status_code, response["Content-Language"]) == (200, language)


# -- Exporting -------------------------------------------------------------------------------------------


def exported(client, query: str = "") -> list[dict[str, str]]:
    before = timezone.localdate()
    response = client.post(f"{EXPORT}{query}", {"format": "0", "resource": "0"})
    assert response["Content-Disposition"] in {
        f'attachment; filename="activities-{day:%Y-%m-%d}.csv"' for day in (before, timezone.localdate())
    }
    text = response.content.decode()
    assert text.startswith("\ufeff")
    return list(csv.DictReader(io.StringIO(text[1:], newline="")))


def test_activities_are_exported_as_staff_know_them_with_the_status_that_holds(author):
    start, end = datetime(2020, 11, 10, 16, tzinfo=UTC), datetime(2020, 11, 11, 16, tzinfo=UTC)
    made = DraftFactory(
        name="=1+1", rules_text="@home", status="ACTIVE", starts_at=start, ends_at=end, stock_total=10, issued=4
    )
    DraftFactory(name="双十一", **percent_terms())
    draft, row = exported(author)
    assert row == {
        "id": str(made.pk), "name": "'=1+1", "rules_text": "'@home", "kind": "FIXED", "min_spend": "100.00",
        "amount_off": "20.00", "pay_percent": "", "max_off": "", "min_payable": "0.00", "valid_days": "7",
        "valid_until": "", "starts_at": "2020-11-11 00:00:00+08:00", "ends_at": "2020-11-12 00:00:00+08:00",
        "stock_total": "10", "per_user_limit": "1", "status": "ended", "issued": "4",
    }  # fmt: skip
    assert (draft["name"], draft["status"], draft["pay_percent"], draft["max_off"]) == (
        "双十一",
        "draft",
        "80",
        "50.00",
    )
    event = AuditEvent.objects.get()
    assert (event.action, event.actor_name) == ("export", "author")
    assert event.after == {"what": "activities", "filter": "", "rows": 2}


def test_what_is_exported_is_what_the_list_shows(author):
    DraftFactory(name="draft")
    offer(name="on offer")
    assert [row["name"] for row in exported(author, "?effective=ongoing")] == ["on offer"]
    assert [row["name"] for row in exported(author, "?q=draft")] == ["draft"]
    event = AuditEvent.objects.filter(action="export").order_by("id")[0]
    assert event.after == {"what": "activities", "filter": "effective=ongoing", "rows": 1}


def test_exported_activities_without_what_is_fixed_make_the_same_drafts(author):
    made = DraftFactory(
        name="=1+1", starts_at=datetime(2030, 1, 1, tzinfo=UTC), ends_at=datetime(2030, 1, 2, tzinfo=UTC)
    )
    [row] = exported(author)
    names = [name for name in row if name not in ("id", "status", "issued")]
    confirmed(author, looked_at(author, table([row[name] for name in names], header=names)))
    copy = Activity.objects.exclude(pk=made.pk).get()
    same = ("name", "kind", "min_spend", "amount_off", "valid_days", "starts_at", "ends_at", "stock_total")
    assert [getattr(copy, name) for name in same] == [getattr(made, name) for name in same]


def test_export_needs_the_permission_to_view(author):
    get_user_model().objects.get().user_permissions.clear()
    assert author.get(EXPORT).status_code == 403
    assert author.post(EXPORT, {"format": "0", "resource": "0"}).status_code == 403
    assert AuditEvent.objects.count() == 0
