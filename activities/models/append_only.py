"""Tables whose rows are written once: an error is corrected by another row."""

from collections.abc import Iterable
from typing import Any, NoReturn

from django.db import models


def _refuse(*_arguments: object, **_named: object) -> NoReturn:
    raise TypeError("rows of this table are neither changed nor deleted: write another one")


class AppendOnlyQuerySet(models.QuerySet[Any]):
    """Refuses whatever would change or delete a row."""

    update = _update = bulk_update = delete = _raw_delete = _refuse

    def bulk_create(self, objs: Iterable[Any], *arguments: Any, **named: Any) -> list[Any]:
        """As Django does, but for its way to change what is there."""
        if named.get("update_conflicts"):
            _refuse()
        return super().bulk_create(objs, *arguments, **named)


class AppendOnly(models.Model):
    """A row that is written once; with ``base_manager_name = "objects"`` saving it again is refused, too."""

    class Meta:
        abstract = True

    delete = _refuse
