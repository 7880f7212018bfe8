"""Column types that the ledger needs and Django does not have."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class AsciiField(models.CharField):
    """Short ASCII text that is compared byte for byte.

    MySQL's usual collations call ``A1`` and ``a1`` the same: two orders would pass for one.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        plain: Any = super().db_type(connection)
        return f"{plain} CHARACTER SET ascii COLLATE ascii_bin" if connection.vendor == "mysql" else str(plain)

    def get_prep_value(self, value: Any) -> Any:
        """Other text becomes its escapes, which match nothing: the server refuses to compare it."""
        prepared = super().get_prep_value(value)
        if isinstance(prepared, str) and not prepared.isascii():
            return prepared.encode("ascii", "backslashreplace").decode()
        return prepared
