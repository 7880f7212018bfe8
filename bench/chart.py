"""The run as one self-contained SVG, readable on light and dark pages: horizontal bars, a panel per question."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

WIDTH, LEFT, RIGHT = 760, 214, 216  # px: names stand left of the bars, figures and notes right of them
BAR, GAP, HEAD, FOOT, MARGIN = 20, 10, 62, 22, 24
NAMES = {
    "gate": "gate (ours)",
    "drf_view": "DRF view (ours)",
    "stock_drf": "stock DRF + django-redis",
    "fastapi": "FastAPI + redis.asyncio",
    "fastify": "Fastify + ioredis",
    "nginx_lua": "nginx + Lua",
    "lua": "Lua script (ours)",
    "decr": "DECR alone",
    "redis_lock": "Redis lock",
    "redis_lock_short": "Redis lock, expires early",
    "cas": "CAS, version column",
    "pessimistic": "SELECT … FOR UPDATE",
    "in_process_lock": "in-process lock, 1 process",
    "in_process_lock_2": "in-process lock, 2 processes",
    "naive": "naive (control)",
}
STYLE = """\
svg { --paper: #fff; --ink: #1c2024; --faint: #60666d; --line: #e3e6ea;
      --ours: #0b6bcb; --other: #9aa7b4; --second: #e08a1e; --wrong: #c62a2f; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #16191d; --ink: #eceef0; --faint: #a1a8b0; --line: #31373e;
        --ours: #52a5f5; --other: #6c7986; --second: #f0a742; --wrong: #ff7a7a; } }
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink); }
.title { font-size: 16px; font-weight: 600; } .faint { fill: var(--faint); font-size: 12px; }
.own { font-weight: 600; } .wrong { fill: var(--wrong); }
.paper { fill: var(--paper); } .axis { stroke: var(--line); }
.ours { fill: var(--ours); } .other { fill: var(--other); }
.second { fill: var(--second); } .bad { fill: var(--wrong); }
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One contender: ``parts`` are stacked; ``note`` stands behind the figure, as a warning when ``wrong``."""

    name: str
    parts: tuple[float, ...]
    note: str = ""
    own: bool = False
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One question. ``legend`` names the parts of stacked bars."""

    title: str
    subtitle: str
    bars: list[Bar] = field(default_factory=list)
    legend: tuple[str, ...] = ()

    @property
    def height(self) -> int:
        return HEAD + len(self.bars) * (BAR + GAP) + FOOT


def panels(result: dict) -> Iterator[Panel]:
    """The panels that this result has figures for."""
    win = {name: row for name, row in result.get("http", {}).get("win", {}).items() if row.get("rps")}
    if win:
        own = ("gate", "drf_view")
        rates = [Bar(NAMES.get(n, n), (row["rps"],), own=n in own) for n, row in win.items()]
        yield Panel("Seizes won a second", "every request a different shopper and token; more is better", rates)
        costs = [
            Bar(NAMES.get(n, n), (row["web_cpu_us"], row["redis_cpu_us"]), own=n in own)
            for n, row in win.items()
            if row.get("web_cpu_us") is not None and row.get("redis_cpu_us") is not None
        ]
        yield Panel("CPU µs per seize won", "web server and Redis together; less is better", costs, ("web", "Redis"))
    if ways := result.get("strategies"):
        bars = [
            Bar(
                NAMES.get(n, n),
                (row["rps"],),
                note=harm_text(row),
                own=n == "lua",
                wrong=bool(row["oversold"] or row["duplicates"]),
            )
            for n, row in ways.items()
        ]
        yield Panel("Ways to sell a stock once", "requests a second, and what went wrong; more is better", bars)
    for kind, what in (("grant", "granted"), ("refuse", "refused")):
        if rows := result.get("redis", {}).get(kind):
            bars = [Bar(f"{n} a call", (row["us"],), own=n != "1") for n, row in rows.items()]
            yield Panel(f"Redis µs per seize {what}", "time in the script, by shoppers per call; less is better", bars)


def harm_text(row: dict) -> str:
    """What a way to sell did wrong, in words; empty when nothing."""
    return ", ".join(f"{name} {row[name]:,}" for name in ("oversold", "duplicates") if row[name])


def number_text(value: float) -> str:
    """Short: 12,345 or 98 or 3.4."""
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}"


def draw(result: dict) -> str:
    """The chart of a result; panels without figures are left away."""
    shown = list(panels(result))
    meta = result["meta"]
    foot = f"{meta['command']} · {meta['date'][:10]} · {meta['cores']} cores · medians of {meta['rounds']} round(s)"
    height = MARGIN + sum(panel.height for panel in shown) + 30
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t">',
        f'<title id="t">{escape("; ".join(panel.title for panel in shown) or "nothing to draw")}</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>',
    ]
    top = MARGIN
    for panel in shown:
        lines += panel_draw(panel, top)
        top += panel.height
    lines.append(f'<text class="faint" x="{MARGIN}" y="{height - 16}">{escape(foot)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def panel_draw(panel: Panel, top: int) -> Iterator[str]:
    """One panel, its upper edge at ``top``."""
    yield f'<text class="title" x="{MARGIN}" y="{top + 16}">{escape(panel.title)}</text>'
    yield f'<text class="faint" x="{MARGIN}" y="{top + 35}">{escape(panel.subtitle)}</text>'
    x = LEFT
    for part, colour in zip(panel.legend, ("ours", "second"), strict=False):
        x_legend = x + 240
        yield f'<rect class="{colour}" x="{x_legend}" y="{top + 25}" width="11" height="11" rx="2"/>'
        yield f'<text class="faint" x="{x_legend + 16}" y="{top + 35}">{escape(part)}</text>'
        x += 70
    first = top + HEAD - 14
    most = max((sum(bar.parts) for bar in panel.bars), default=0) or 1
    scale = (WIDTH - LEFT - RIGHT) / most
    for number, bar in enumerate(panel.bars):
        yield from bar_draw(bar, first + number * (BAR + GAP), scale)
    last = first + len(panel.bars) * (BAR + GAP) - GAP
    yield f'<line class="axis" x1="{LEFT}" y1="{first - 4}" x2="{LEFT}" y2="{last + 4}"/>'


def bar_draw(bar: Bar, y: int, scale: float) -> Iterator[str]:
    """One bar with its name, figure and note."""
    base = y + BAR - 6
    own = ' class="own"' if bar.own else ""
    yield f'<text{own} x="{LEFT - 10}" y="{base}" text-anchor="end">{escape(bar.name)}</text>'
    colours = ("bad" if bar.wrong else "ours" if bar.own or len(bar.parts) > 1 else "other", "second")
    x = float(LEFT)
    for part, colour in zip(bar.parts, colours, strict=False):
        width = max(part * scale, 1)
        yield f'<rect class="{colour}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>'
        x += width
    figure = number_text(sum(bar.parts))
    if len(bar.parts) > 1:
        figure += f" = {' + '.join(number_text(part) for part in bar.parts)}"
    note = f'<tspan class="wrong" dx="8">{escape(bar.note)}</tspan>' if bar.note else ""
    yield f'<text{own} x="{x + 8:.1f}" y="{base}">{figure}{note}</text>'
