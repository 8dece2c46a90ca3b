"""The timeline of a drill as SVG: throughput, what was done to the broker, and how long each start took."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final, NamedTuple

from txbroker.drill.report import Report
from txbroker.drill.victim import Blow

WIDTH: Final = 1100
LEFT: Final = 64
RIGHT: Final = 16
TOP: Final = 34
THROUGHPUT: Final = 190
STRIP: Final = 84
RECOVERY: Final = 120
GAP: Final = 34
HEIGHT: Final = TOP + THROUGHPUT + STRIP + GAP + RECOVERY + 44

ROWS: Final = {"kill": 0, "pause": 1, "stop": 2, "client kill": 3}
"""The line of the strip that each kind of blow has."""

LABELS: Final = {
    "kill": "SIGKILL",
    "pause": "SIGSTOP",
    "stop": "SIGTERM",
    "client kill": "client",
}


class Scale(NamedTuple):
    """From a value to a coordinate."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + share * (self.end - self.start), 1)


def ticks(high: float, wanted: int = 5) -> list[float]:
    """Round values from 0 on, the last of them at or above ``high``."""
    step = 10.0 ** math.floor(math.log10(max(high, 1e-6) / wanted))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if step * factor * wanted >= high * 0.999)
    return [round(number * step, 6) for number in range(math.ceil(high / step - 1e-9) + 1)]


def timeline(report: Report) -> str:
    """The whole picture."""
    end = max(
        [blow.up_at or blow.down_at for blow in report.blows]
        + [second for second, _ in report.throughput]
        + [1.0]
    )
    time = Scale(0.0, end, LEFT, WIDTH - RIGHT)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Timeline of the drill">',
        *_bands(report.blows, time),
        *_throughput(report, time),
        *_strip(report.blows, time),
        *_recovery(report, time),
        *_time_axis(end, time),
        "</svg>",
    ]
    return "\n".join(parts)


def _bands(blows: Sequence[Blow], time: Scale) -> Iterator[str]:
    """When the broker did not answer; a start that was killed, too, belongs to the kill before it."""
    reached = 0.0
    for blow in blows:
        if blow.kind != "client kill" and blow.up_at is not None and blow.up_at > reached:
            start, reached = max(blow.down_at, reached), blow.up_at
            x, width = time(start), max(time(reached) - time(start), 0.5)
            yield f'<rect class="down" x="{x}" y="{TOP}" width="{width:.1f}" height="{THROUGHPUT}"/>'


def _throughput(report: Report, time: Scale) -> Iterator[str]:
    yield _title(TOP - 14, "Acknowledged messages per second")
    marks = ticks(max((rate for _, rate in report.throughput), default=1.0) or 1.0, 4)
    rates = Scale(0.0, marks[-1], TOP + THROUGHPUT, TOP)
    yield from _grid(marks, rates)
    if not report.throughput:
        return
    points = [(time(second), rates(rate)) for second, rate in report.throughput]
    line = " L".join(f"{x} {y}" for x, y in points)
    floor = rates(0.0)
    yield f'<path class="area" d="M{points[0][0]} {floor} L{line} L{points[-1][0]} {floor} Z"/>'
    yield f'<path class="rate" d="M{line}"/>'


def _strip(blows: Sequence[Blow], time: Scale) -> Iterator[str]:
    """What was done, one line a kind: shape and place tell it, not the colour alone."""
    top = TOP + THROUGHPUT + 20
    for kind, row in ROWS.items():
        y = top + row * 16
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{LABELS[kind]}</text>'
    for blow in blows:
        x, y = time(blow.down_at), top + ROWS[blow.kind] * 16
        told = escape(f"{blow.down_at:.1f} s: {blow.kind} {blow.planned}: {blow.how}")
        shape = {
            "kill": f"M{x - 4} {y - 5} L{x + 4} {y - 5} L{x} {y + 5} Z",
            "pause": f"M{x - 4} {y - 4} H{x + 4} V{y + 4} H{x - 4} Z",
            "stop": f"M{x - 4} {y} A4 4 0 1 0 {x + 4} {y} A4 4 0 1 0 {x - 4} {y} Z",
            "client kill": f"M{x} {y - 5} L{x + 5} {y} L{x} {y + 5} L{x - 5} {y} Z",
        }[blow.kind]
        yield f'<path class="mark {blow.kind.replace(" ", "-")}" d="{shape}"><title>{told}</title></path>'


def _recovery(report: Report, time: Scale) -> Iterator[str]:
    top = TOP + THROUGHPUT + STRIP + GAP
    yield _title(top - 14, "Seconds from the start of the process to the first accepted request")
    starts = [start for start in report.starts[1:] if start.seconds is not None]
    marks = ticks(max((start.seconds or 0.0 for start in starts), default=1.0), 3)
    seconds = Scale(0.0, marks[-1], top + RECOVERY, top)
    yield from _grid(marks, seconds)
    for start in starts:
        x, y = time(max(start.executed_at, 0.0)), seconds(start.seconds or 0.0)
        told = f"started at {start.executed_at:.1f} s, accepted the first request {start.seconds:.2f} s later"
        height = round(top + RECOVERY - y, 1)
        yield f'<rect class="bar" x="{x - 2.5}" y="{y}" width="5" height="{height}"><title>{told}</title></rect>'


def _time_axis(end: float, time: Scale) -> Iterator[str]:
    y = TOP + THROUGHPUT + STRIP + GAP + RECOVERY
    for second in ticks(end, 8):
        if second <= end:
            x = time(second)
            yield f'<text class="tick" x="{x}" y="{y + 18}" text-anchor="middle">{second:g}</text>'
            yield f'<line class="axis" x1="{x}" x2="{x}" y1="{y}" y2="{y + 4}"/>'
    yield f'<text class="tick" x="{WIDTH - RIGHT}" y="{y + 36}" text-anchor="end">seconds of load</text>'


def _grid(marks: Sequence[float], scale: Scale) -> Iterator[str]:
    for mark in marks:
        y = scale(mark)
        kind = "grid" if mark else "axis"
        yield f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{mark:,g}</text>'


def _title(y: float, text: str) -> str:
    return f'<text class="title" x="{LEFT}" y="{y}">{text}</text>'
