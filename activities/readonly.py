"""Back-office pages of rows that nobody adds, edits or deletes there: the ledger and what sync keeps.

The ledger has millions of rows, so its pages do nothing for which no index is there: they count up to a limit, keep the
order that the index has, find by equality, and fetch by itself what rows refer to. For a join the planner would begin
with the smaller table and sort a million rows for a page of 50.
"""

from functools import cached_property
from typing import Any, cast

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Field, Model, Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import display

from activities.text import shopper_masked
from seize.requests import id_parse

COUNTED_MAX = 10_000


class CountedPaginator(Paginator):
    """Counts rows up to ``COUNTED_MAX`` and ends there: nobody turns to page 201, and a COUNT reads every row."""

    template_name = "admin/pagination_counted.html"  # which Unfold's pages include

    @cached_property
    def _found(self) -> int:
        rows = cast("QuerySet[Model]", self.object_list)
        return rows.order_by().values("pk")[: COUNTED_MAX + 1].count()

    @cached_property
    def count(self) -> int:
        """How many there are, at most ``COUNTED_MAX``."""
        return min(self._found, COUNTED_MAX)

    @property
    def there_are_more(self) -> bool:
        """Whether ``count`` is not all of them."""
        return self._found > COUNTED_MAX


class LedgerChangeList(ChangeList):
    """Rows in an order that an index has: the filter's own, or the newest first. ``?o=`` would sort the table."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        return list(queryset.query.order_by) or ["-pk"]

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        for row in rows:
            row.shopper_shown = shopper_shown(request, row.user_id)
        self.result_list = rows
        if self.paginator.there_are_more:
            self.full_result_count = self.result_count  # or the heading would call the limit the number of results


class ReadOnlyAdmin(ModelAdmin):
    """Rows to look at."""

    show_full_result_count = False  # a COUNT over the ledger costs more than the page
    paginator = CountedPaginator

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def shopper_shown(request: HttpRequest, user_id: int) -> str:
    """A shopper's id as this person may see it: in full, or its last two digits, by which a caller is recognised."""
    return str(user_id) if sees_in_full(request) else shopper_masked(user_id)


def sees_in_full(request: HttpRequest) -> bool:
    """Whether this person may see shoppers' ids as they are."""
    return request.user.has_perm("activities.view_personal_data")


class LedgerAdmin(ReadOnlyAdmin):
    """Rows of the ledger. ``found_by`` are the columns that a search looks into, each with an index of its own."""

    found_by: tuple[str, ...] = ()
    sortable_by = ()
    list_select_related = ()  # not False, which means whatever is shown
    list_per_page = 50

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return LedgerChangeList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            row.shopper_shown = shopper_shown(request, row.user_id)
        return row

    @display(description=_("shopper"))
    def show_shopper(self, obj: Any) -> str:
        shown: str = obj.shopper_shown
        return shown

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        return self.found_by

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Rows that every word of the search is found in. Django would compare numbers as text, past every index."""
        for word in search_term.split():
            found = Q()
            for name in self.found_by:
                if (value := _column_value(self.opts.get_field(name), word)) is not None:
                    found |= Q(**{name: value})
            queryset = queryset.filter(found) if found else queryset.none()
        return queryset, False


def _column_value(column: Any, word: str) -> int | str | None:
    """A word as a column of ids or ASCII text may hold it; None when it cannot."""
    assert isinstance(column, Field)
    if column.get_internal_type() == "CharField":
        return word if word.isascii() else None
    return id_parse(word)
