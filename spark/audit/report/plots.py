"""The plots of an audit, as SVG and as bars of HTML: legible as wide as the page is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any, Final, NamedTuple

HEIGHT: Final = 200
BOTTOM: Final = 34
TOP: Final = 12
LABELS: Final = 7
"""Below a histogram; every other one is *spare*: the page leaves it out where it is narrow."""


PROOFS: Final = {
    "archive": "by the outcome archive, byte for byte",
    "journal": "by a record of the journal",
    "checkpoint": "by place and number alone, in the checkpoint",
    "reports": "by producers’ counts of their window",
    "nothing": "by nothing: sound and in their place, but nobody says that they were sent",
}
"""What the figure calls each proof."""


class Label(NamedTuple):
    """A text below the bar at ``place``, which it begins with, stands in the middle of, or ends with."""

    place: int
    text: str
    anchor: str = "middle"
    spare: bool = False


def windows(found: dict[str, Any]) -> str:
    """Messages by time."""
    start, length, rows = found["from"], found["length"], found["bars"]
    if not rows:
        return _empty("no messages")
    count = rows[-1][0] + 1
    places = {count // 2: "middle", count - 1: "end", 0: "start"}
    labels = [
        Label(place, moment(start + place * length, length), anchor, spare=anchor == "middle")
        for place, anchor in places.items()
    ]
    title = f"Messages per {duration(length)}"
    return _bars(dict(rows), count, labels, title)


def histogram(rows: Sequence[Sequence[int]], title: str) -> str:
    """How many lasted how long."""
    if not rows:
        return _empty("none")
    low = rows[0][0].bit_length() - 1
    count = rows[-1][0].bit_length() - low
    values = {least.bit_length() - 1 - low: number for least, number in rows}
    room = max(count, 6)
    places = range(0, count - (count > LABELS), -(-count // LABELS))
    labels = [
        Label(place, f"≥ {duration(1 << (low + place))}", spare=number % 2 == 1)
        for number, place in enumerate(places)
    ]
    return _bars(values, room, labels, title)


def proofs(counts: dict[str, int]) -> str:
    """What proves how many messages: one bar of all, and what its parts are."""
    total = sum(counts.values())
    if not total:
        return _empty("no messages")
    parts = [f'<div class="proofs" role="img" aria-label="{escape(_shares(counts))}">']
    for name, count in counts.items():
        if count:
            width = 100 * count / total
            parts.append(
                f'<div class="by_{name}" style="width: {width:.2f}%" title="{name}: {count:,}"></div>'
            )
    parts.append('</div><ul class="legend">')
    for name, count in counts.items():
        share = f'<span class="soft">{100 * count / total:.1f} %</span>'
        parts.append(f'<li><i class="by_{name}"></i>{escape(PROOFS[name])} <b>{count:,}</b> {share}</li>')
    return "\n".join([*parts, "</ul>"])


def _shares(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def outcomes(rows: Sequence[dict[str, Any]]) -> str:
    """Transactions by how they ended."""
    if not rows:
        return _empty("no transactions")
    most = max(row["transactions"] for row in rows)
    parts = []
    for row in rows:
        name = row["state"].replace("_", " ") + (
            f" ({row['cause'].replace('_', ' ')})" if row["cause"] else ""
        )
        counts = f"{counted(row['transactions'], 'transaction')}, {counted(row['messages'], 'message')}"
        parts.append(
            f'<div class="outcome"><span>{escape(name)}</span> <span class="soft">{counts}</span></div>'
        )
        width = max(0.3, 100 * row["transactions"] / most)
        parts.append(f'<div class="share {row["state"]}" style="width: {width:.1f}%"></div>')
    return "\n".join(parts)


def _bars(values: dict[int, int], count: int, labels: Sequence[Label], title: str) -> str:
    """Across in percent, so that bars become narrower with the page and texts do not."""
    most = max(values.values())
    room, floor = 100 / count, HEIGHT - BOTTOM
    scale = (floor - TOP) / most
    parts = [f'<svg height="{HEIGHT}" role="img" aria-label="{escape(title)}">']
    for mark in sorted({0, most // 2, most}):
        y = floor - scale * mark
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{_short(mark)}</text>')
    for place, value in values.items():
        height = max(1.0, scale * value)
        parts.append(
            f'<rect class="bar" x="{room * (place + 0.08):.2f}%" y="{floor - height:.1f}" width="{room * 0.84:.2f}%" '
            f'height="{height:.1f}"><title>{value:,}</title></rect>'
        )
    for label in labels:
        x = room * (label.place + {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor])
        spare = ' class="spare"' if label.spare else ""
        parts.append(
            f'<text{spare} x="{x:.2f}%" y="{floor + 18}" text-anchor="{label.anchor}">{escape(label.text)}</text>'
        )
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
