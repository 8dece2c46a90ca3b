"""The plots of an audit, as SVG and as bars of HTML: legible as wide as the page is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from txbroker.pages.charts import element, titled, together

HEIGHT: Final = 200
BOTTOM: Final = 34
TOP: Final = 12
LABELS: Final = 7
"""The labels below a histogram; every other one is *spare*: a narrow page leaves it out."""


PROOFS: Final = {
    "archive": "by the outcome archive, byte for byte",
    "journal": "by a record of the journal",
    "checkpoint": "by place and number alone, in the checkpoint",
    "reports": "by producers’ counts of their window",
    "nothing": "by nothing: sound and in their place, but nothing shows that they were sent",
}
"""The name of each proof in the figure."""


class Label(NamedTuple):
    """A text below a bar that begins at ``place``, has its middle there, or ends there."""

    place: int
    text: str
    anchor: str = "middle"
    spare: bool = False


def windows(found: dict[str, Any]) -> Markup:
    """Draw messages by time."""
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


def histogram(rows: Sequence[Sequence[int]], title: str) -> Markup:
    """Draw how many transactions lasted how long."""
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


def proofs(counts: dict[str, int]) -> Markup:
    """Draw how many messages each proof covers: one bar of all, and its parts."""
    total = sum(counts.values())
    if not total:
        return _empty("no messages")
    bars = [
        _share(f"by_{name}", f"{100 * count / total:.2f}", f"{name}: {count:,}")
        for name, count in counts.items()
        if count
    ]
    lines = [
        element(
            "li",
            Markup("{}{} <b>{:,}</b> {}").format(
                element("i", class_=f"by_{name}"), PROOFS[name], count, _soft(f"{100 * count / total:.1f} %")
            ),
        )
        for name, count in counts.items()
    ]
    said = {"role": "img", "aria-label": ", ".join(f"{name} {count:,}" for name, count in counts.items())}
    bar = element("div", together(bars), class_="proofs", **said)
    return together([bar, element("ul", together(lines), class_="legend")])


def outcomes(rows: Sequence[dict[str, Any]]) -> Markup:
    """Draw transactions by how they ended."""
    if not rows:
        return _empty("no transactions")
    most = max(row["transactions"] for row in rows)
    parts = []
    for row in rows:
        cause = f" ({row['cause'].replace('_', ' ')})" if row["cause"] else ""
        name = element("span", row["state"].replace("_", " ") + cause)
        counts = f"{counted(row['transactions'], 'transaction')}, {counted(row['messages'], 'message')}"
        parts.append(element("div", Markup("{} {}").format(name, _soft(counts)), class_="outcome"))
        parts.append(_share(f"share {row['state']}", f"{max(0.3, 100 * row['transactions'] / most):.1f}"))
    return together(parts)


def _share(kind: str, percent: str, told: str | None = None) -> Markup:
    return element("div", class_=kind, style=f"width: {percent}%", title=told)


def _soft(text: str) -> Markup:
    return element("span", text, class_="soft")


def _bars(values: dict[int, int], count: int, labels: Sequence[Label], title: str) -> Markup:
    """Return bars with widths in percent, so that they become narrower with the page and texts do not."""
    most = max(values.values())
    room, floor = 100 / count, HEIGHT - BOTTOM
    scale = (floor - TOP) / most
    parts = []
    for mark in sorted({0, most // 2, most}):
        y = floor - scale * mark
        parts.append(element("line", class_="grid", x1=0, x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}"))
        parts.append(element("text", _short(mark), x=-6, y=f"{y + 4:.1f}", text_anchor="end"))
    for place, value in values.items():
        height = max(1.0, scale * value)
        across = {"x": f"{room * (place + 0.08):.2f}%", "width": f"{room * 0.84:.2f}%"}
        up = {"y": f"{floor - height:.1f}", "height": f"{height:.1f}"}
        parts.append(element("rect", titled(f"{value:,}"), class_="bar", **across, **up))
    for label in labels:
        x = room * (label.place + {"start": 0.0, "middle": 0.5, "end": 1.0}[label.anchor])
        spare = "spare" if label.spare else None
        where = {"x": f"{x:.2f}%", "y": floor + 18, "text_anchor": label.anchor}
        parts.append(element("text", label.text, class_=spare, **where))
    said = {"role": "img", "aria-label": title}
    return together([_empty(title), element("svg", together(parts), height=HEIGHT, **said)])


def _empty(what: str) -> Markup:
    return element("p", what, class_="soft")


def moment(time: int, step: int) -> str:
    """Return a time in UTC, as exactly as times that far (µs) from each other need it."""
    form = "%Y-%m-%d %H:%M" if step >= 60_000_000 else "%Y-%m-%d %H:%M:%S"
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)).strftime(form)
    except OverflowError:
        return f"{time} µs"


def counted(number: int, what: str) -> str:
    """Return ``1 message``, ``2,000 messages``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def duration(time: float) -> str:
    """Return µs in units for people."""
    for size, unit in ((86_400e6, "d"), (3600e6, "h"), (60e6, "min"), (1e6, "s"), (1e3, "ms")):
        if time >= size:
            return f"{time / size:.3g} {unit}"
    return f"{time:.0f} µs"


def _short(value: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
