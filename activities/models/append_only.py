"""Tables whose rows are written once."""

from typing import NoReturn, TypeVar

from django.db import models

Row_co = TypeVar("Row_co", bound=models.Model, covariant=True)


class AppendOnlyQuerySet(models.QuerySet[Row_co]):
    """Rows that are written once; an error is corrected by another row."""

    def _refuse(self, *_arguments: object, **_named: object) -> NoReturn:
        raise TypeError("rows of this table are neither changed nor deleted: write another one")

    update = _update = bulk_update = delete = _raw_delete = _refuse
