"""Moments in slots of so many seconds, grouped by the database itself."""

from typing import Any

from django.db.models import Func, IntegerField
from django.db.models.sql.compiler import SQLCompiler


class Slot(Func):
    """The number of the slot of ``width_s`` seconds since 1970 that a moment lies in.

    Not ``TruncDate`` and the like: on MySQL they need its tables of time zones, which few servers have.
    """

    output_field = IntegerField()
    template_mysql = "TIMESTAMPDIFF(SECOND, '1970-01-01', %(expressions)s) DIV %(width_s)s"
    # Of four signs one is left: Django formats this text, and then the whole statement.
    template_sqlite = "CAST(strftime('%%%%s', %(expressions)s) AS INTEGER) / %(width_s)s"

    def __init__(self, column: str, *, width_s: int = 1) -> None:
        super().__init__(column, width_s=int(width_s))

    def as_mysql(self, compiler: SQLCompiler, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template=self.template_mysql, **context)

    def as_sqlite(self, compiler: SQLCompiler, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template=self.template_sqlite, **context)
