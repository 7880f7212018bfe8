"""What a run gives to people and programs: tables on the terminal, ``latest.json``, ``latest.svg``."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench import chart, stage
from bench.arguments import SECTIONS

TITLES = {
    "rps": "requests/s",
    "rows_per_s": "rows/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "us": "µs",
    "server_us": "busy server CPU µs",
    "web_cpu_us": "web CPU µs",
    "redis_cpu_us": "Redis CPU µs",
    "database_cpu_us": "MariaDB CPU µs",
    "cpu_us": "CPU µs",
}
COMPARED = ("rps", "rows_per_s", "us", "server_us", "cpu_us")  # columns with a ratio to the base row behind them

Figure = int | float | str | bool | None


@dataclass(slots=True)
class Table:
    """Rows of figures with the same columns."""

    title: str
    rows: dict[str, dict[str, Figure]] = field(default_factory=dict)

    def lines(self, *, base: str | None) -> Iterator[str]:
        """The table as text; each compared figure is followed by its ratio to that of row ``base`` or the first."""
        columns = list(dict.fromkeys(column for row in self.rows.values() for column in row))
        own = base if base in self.rows else next(iter(self.rows))
        heads, body = [""], {name: [name] for name in self.rows}
        for column in columns:
            heads.append(TITLES.get(column, column.replace("_", " ")))
            for name, row in self.rows.items():
                body[name].append(figure_text(row.get(column)))
            if column in COMPARED and len(self.rows) > 1:
                heads.append(f"× {own}")
                for name, row in self.rows.items():
                    body[name].append(ratio_text(row.get(column), self.rows[own].get(column)))
        widths = [max(len(line[i]) for line in (heads, *body.values())) for i in range(len(heads))]
        for line in (heads, *body.values()):
            cells = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
            yield "  ".join((line[0].ljust(widths[0]), *cells)).rstrip()


def figure_text(value: Figure) -> str:
    """A figure with as many digits as mean something; – when there is none."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratio_text(value: Figure, base: Figure) -> str:
    """How many times the base's figure this is."""
    if isinstance(value, int | float) and isinstance(base, int | float) and base:
        return f"{value / base:.2f}"
    return "–"


def tables(figures: dict) -> tuple[list[Table], dict[str, Figure]]:
    """A section's nested figures as tables, and what stands alone in it by its dotted name."""
    found: dict[str, Table] = {}
    alone: dict[str, Figure] = {}

    def walk(node: dict, path: tuple[str, ...]) -> None:
        own = {name: value for name, value in node.items() if not isinstance(value, dict)}
        if own and path and len(own) == len(node):
            title = ".".join(path[:-1])
            found.setdefault(title, Table(title)).rows[path[-1]] = with_sum(own)
        else:
            alone.update({".".join((*path, name)): value for name, value in own.items()})
        for name, value in node.items():
            if isinstance(value, dict):
                walk(value, (*path, name))

    walk(figures, ())
    return list(found.values()), alone


def with_sum(row: dict[str, Figure]) -> dict[str, Figure]:
    """The row, and web and Redis CPU together where both are known."""
    parts = [row.get("web_cpu_us"), row.get("redis_cpu_us")]
    if all(isinstance(part, int | float) for part in parts):
        return {**row, "cpu_us": sum(parts)}
    return row


def section_lines(name: str, figures: dict) -> Iterator[str]:
    """A section's heading, tables and single figures; nothing when it has none."""
    section = SECTIONS[name]
    found, alone = tables(figures)
    if figures:
        yield f"\n{name}: {section.what}"
    for table in found:
        yield f"\n[{table.title}]" if table.title else ""
        yield from table.lines(base=section.base)
    if alone:
        yield ""
    for label, value in alone.items():
        yield f"{label} = {figure_text(value)}"


def result_print(result: dict, write: Callable[[str], object] = print) -> None:
    """Every section's tables, then what was left out or failed, and why."""
    for name in SECTIONS:
        for line in section_lines(name, result.get(name, {})):
            write(line)
    meta = result["meta"]
    for heading, rows in (("Left out", meta["left_out"]), ("FAILED", meta["failed"])):
        if rows:
            write(f"\n{heading}:")
        for row, why in rows.items():
            write(f"  {row}: {why}")


def result_write(result: dict, folder: Path = stage.FOLDER) -> list[Path]:
    """Write ``latest.json`` and ``latest.svg``, each in one step; what an earlier run left is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        folder / "latest.json": json.dumps(result, ensure_ascii=False, indent=2) + "\n",
        folder / "latest.svg": chart.draw(result),
    }
    for path, text in texts.items():
        unfinished = path.with_suffix(".new")
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    return list(texts)
