"""What a call asks the database, by which index each statement finds its rows, and how many rows are really read.

Each statement is explained right before it runs, as it is and in the state that it meets. An estimate can be wrong, so
the rows that the storage engine hands out (``Handler_read_…``) are counted as well.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

WATCHED = ("activities_coupon", "activities_redemption")
NOT_COUNTED = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE SAVEPOINT")


@dataclass(frozen=True, slots=True)
class Step:
    """One table of a plan. ``keys`` are several when indexes are merged; ``rows`` is an estimate."""

    table: str
    access: str
    keys: frozenset[str]
    rows: int
    is_sorted: bool


@dataclass(slots=True)
class Statement:
    """A statement, the steps of its plan on the tables that are watched, and the rows that were read for it."""

    sql: str
    steps: list[Step] = field(default_factory=list)
    read: int = 0


@dataclass(slots=True)
class Asked:
    """What came of a call, and all that it asked."""

    answer: Any = None
    statements: list[Statement] = field(default_factory=list)

    @property
    def read(self) -> int:
        """Rows read, of all tables."""
        return sum(statement.read for statement in self.statements)

    @property
    def steps(self) -> list[Step]:
        """The steps of all statements."""
        return [step for statement in self.statements for step in statement.steps]

    def keys(self, table: str) -> set[str]:
        """The indexes by which rows of a table were found."""
        return {key for step in self.steps if step.table == table for key in step.keys}

    def __str__(self) -> str:
        """For whoever reads why a test failed."""
        lines = []
        for statement in self.statements:
            lines.append(f"{statement.read:>9,} rows read: {statement.sql[:2000]}")
            lines += [f"          {step}" for step in statement.steps]
        return "\n".join(lines)


def asked(call: Callable[[], object]) -> Asked:
    """Carry out a call and watch what it asks."""
    seen = Asked()

    def watch(execute: Callable, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if sql.startswith(NOT_COUNTED):
            return execute(sql, params, many, context)
        with connection.connection.cursor() as beside:  # the driver's own, which nobody watches
            statement = Statement(sql)
            if sql.startswith(("SELECT", "UPDATE", "DELETE")) and any(table in sql for table in WATCHED):
                beside.execute(f"EXPLAIN FORMAT=JSON {sql}", params)
                names = {alias: table for table, alias in re.findall(r"`(\w+)` (U\d+)\b", sql)}
                statement.steps = list(_steps(json.loads(beside.fetchone()[0]), names, is_sorted=False))
            before = _read(beside)
            result = execute(sql, params, many, context)
            statement.read = _read(beside) - before
        seen.statements.append(statement)
        return result

    with connection.execute_wrapper(watch):
        seen.answer = call()
    return seen


def _read(cursor: Any) -> int:
    cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(count) for _name, count in cursor.fetchall())


def _steps(node: Any, names: dict[str, str], *, is_sorted: bool) -> Iterator[Step]:
    """Every watched table below a node of MariaDB's JSON, and whether its rows are sorted afterwards."""
    if isinstance(node, list):
        for part in node:
            yield from _steps(part, names, is_sorted=is_sorted)
    if not isinstance(node, dict):
        return
    if (table := names.get(node.get("table_name", ""), node.get("table_name"))) in WATCHED:
        yield Step(table, node["access_type"], frozenset(_keys(node)), int(node.get("rows", 0)), is_sorted)
    for name, part in node.items():
        yield from _steps(part, names, is_sorted=is_sorted or name in ("filesort", "temporary_table"))


def _keys(table: dict[str, Any]) -> Iterator[str]:
    """The key of a table, or those that are merged: ``{"union": [{"range": {"key": …}}, …]}``."""
    if "key" in table:
        yield table["key"]
    for part in _dicts(table.get("index_merge", {})):
        if "key" in part:
            yield part["key"]


def _dicts(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from _dicts(part)
