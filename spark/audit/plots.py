"""The plots of an audit as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any, Final

WIDTH: Final = 1060
HEIGHT: Final = 200
LEFT: Final = 70
BOTTOM: Final = 34
TOP: Final = 12


def windows(found: dict[str, Any]) -> str:
    """Messages by time."""
    start, length, rows = found["from"], found["length"], found["bars"]
    if not rows:
        return _empty("no messages")
    count = rows[-1][0] + 1
    labels = [(place, moment(start + place * length, length)) for place in sorted({0, count // 2, count - 1})]
    title = f"Messages per {duration(length)}"
    return _bars(dict(rows), count, labels, title)


def histogram(rows: Sequence[Sequence[int]], title: str) -> str:
    """How many lasted how long."""
    if not rows:
        return _empty("none")
    low = rows[0][0].bit_length() - 1
    count = rows[-1][0].bit_length() - low
    values = {least.bit_length() - 1 - low: number for least, number in rows}
    step = max(1, count // 8)
    labels = [(place, f"from {duration(1 << (low + place))}") for place in range(0, count, step)]
    return _bars(values, max(count, 6), labels, title)


def outcomes(rows: Sequence[dict[str, Any]]) -> str:
    """Transactions by how they ended."""
    if not rows:
        return _empty("no transactions")
    most = max(row["transactions"] for row in rows)
    height = 30 * len(rows) + 10
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Transactions by outcome">']
    for number, row in enumerate(rows):
        name = row["state"].replace("_", " ") + (
            f" ({row['cause'].replace('_', ' ')})" if row["cause"] else ""
        )
        width = max(2.0, (WIDTH - 520) * row["transactions"] / most)
        y = 30 * number + 6
        parts.append(f'<text x="250" y="{y + 15}" text-anchor="end" class="title">{escape(name)}</text>')
        parts.append(f'<rect class="{row["state"]}" x="260" y="{y}" width="{width:.1f}" height="20" rx="2"/>')
        told = f"{counted(row['transactions'], 'transaction')}, {counted(row['messages'], 'message')}"
        parts.append(f'<text x="{266 + width:.1f}" y="{y + 15}">{told}</text>')
    return "\n".join([*parts, "</svg>"])


def _bars(values: dict[int, int], count: int, labels: Sequence[tuple[int, str]], title: str) -> str:
    most = max(values.values())
    room, floor = (WIDTH - LEFT - 10) / count, HEIGHT - BOTTOM
    scale = (floor - TOP) / most
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for mark in sorted({0, most // 2, most}):
        y = floor - scale * mark
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(mark)}</text>')
    for place, value in values.items():
        x, height = LEFT + place * room, max(1.0, scale * value)
        parts.append(
            f'<rect class="bar" x="{x + room * 0.08:.1f}" y="{floor - height:.1f}" width="{room * 0.84:.1f}" '
            f'height="{height:.1f}"><title>{value:,}</title></rect>'
        )
    for place, text in labels:
        x = LEFT + (place + 0.5) * room
        anchor = "start" if place == 0 else "end" if place == count - 1 and count > 8 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{floor + 18}" text-anchor="{anchor}">{escape(text)}</text>')
    return "\n".join([f'<p class="soft">{escape(title)}</p>', *parts, "</svg>"])


def _empty(what: str) -> str:
    return f'<p class="soft">{escape(what)}</p>'


def moment(time: int, step: int) -> str:
    """UTC, as exactly as moments that far (µs) from each other need it."""
    form = "%Y-%m-%d %H:%M" if step >= 60_000_000 else "%Y-%m-%d %H:%M:%S"
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)).strftime(form)
    except OverflowError:
        return f"{time} µs"


def counted(number: int, what: str) -> str:
    """``1 message``, ``2,000 messages``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(time: float) -> str:
    """µs for people."""
    for size, unit in ((86_400e6, "d"), (3600e6, "h"), (60e6, "min"), (1e6, "s"), (1e3, "ms")):
        if time >= size:
            return f"{time / size:.3g} {unit}"
    return f"{time:.0f} µs"


def _short(value: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
