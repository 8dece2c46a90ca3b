"""The timeline of a drill as SVG: throughput, events that disturbed the broker, and how long each start took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from markupsafe import Markup

from txbroker.drill.broker.victim import Disturbance
from txbroker.drill.report.result import Report
from txbroker.pages.charts import Scale, element, ticks, titled, together

WIDTH: Final = 1100
LEFT: Final = 64
RIGHT: Final = 16
TOP: Final = 34
THROUGHPUT: Final = 190
STRIP: Final = 84
RECOVERY: Final = 120
GAP: Final = 34
HEIGHT: Final = TOP + THROUGHPUT + STRIP + GAP + RECOVERY + 44

ROWS: Final = {"kill": 0, "pause": 1, "stop": 2, "client kill": 3, "client pause": 3}
"""The line of the strip for each kind of disturbance."""

LABELS: Final = {
    "kill": "SIGKILL",
    "pause": "SIGSTOP",
    "stop": "SIGTERM",
    "client kill": "client",
}


def timeline(report: Report) -> Markup:
    """Return the whole picture."""
    end = max(
        [disturbance.up_at or disturbance.down_at for disturbance in report.disturbances]
        + [second for second, _ in report.throughput]
        + [1.0]
    )
    time = Scale(0.0, end, LEFT, WIDTH - RIGHT)
    parts = [
        *_bands(report.disturbances, time),
        *_throughput(report, time),
        *_strip(report.disturbances, time),
        *_recovery(report, time),
        *_time_axis(end, time),
    ]
    said = {"role": "img", "aria-label": "Timeline of the drill"}
    return element("svg", together(parts), viewBox=f"0 0 {WIDTH} {HEIGHT}", **said)


def _bands(disturbances: Sequence[Disturbance], time: Scale) -> Iterator[Markup]:
    """Draw when the broker did not answer; a start that was killed belongs to the kill before it."""
    reached = 0.0
    for disturbance in disturbances:
        if (
            not disturbance.kind.startswith("client")
            and disturbance.up_at is not None
            and disturbance.up_at > reached
        ):
            start, reached = max(disturbance.down_at, reached), disturbance.up_at
            x = time(start)
            width = f"{max(time(reached) - x, 0.5):.1f}"
            yield element("rect", class_="down", x=x, y=TOP, width=width, height=THROUGHPUT)


def _throughput(report: Report, time: Scale) -> Iterator[Markup]:
    yield _title(TOP - 14, "Acknowledged messages per second")
    marks = ticks(max((rate for _, rate in report.throughput), default=1.0) or 1.0, 4)
    rates = Scale(0.0, marks[-1], TOP + THROUGHPUT, TOP)
    yield from _grid(marks, rates)
    if not report.throughput:
        return
    points = [(time(second), rates(rate)) for second, rate in report.throughput]
    line = " L".join(f"{x} {y}" for x, y in points)
    floor = rates(0.0)
    yield element("path", class_="area", d=f"M{points[0][0]} {floor} L{line} L{points[-1][0]} {floor} Z")
    yield element("path", class_="rate", d=f"M{line}")


def _strip(disturbances: Sequence[Disturbance], time: Scale) -> Iterator[Markup]:
    """Draw the events, one line for each kind: shape and position show the kind, not only the colour."""
    top = TOP + THROUGHPUT + 20
    for kind, label in LABELS.items():
        y = top + ROWS[kind] * 16
        yield _across("grid", y)
        yield _tick(LEFT - 8, y + 4, "end", label)
    for disturbance in disturbances:
        x, y = time(disturbance.down_at), top + ROWS[disturbance.kind] * 16
        told = titled(
            f"{disturbance.down_at:.1f} s: {disturbance.kind} {disturbance.planned}: {disturbance.how}"
        )
        shape = {
            "kill": f"M{x - 4} {y - 5} L{x + 4} {y - 5} L{x} {y + 5} Z",
            "pause": f"M{x - 4} {y - 4} H{x + 4} V{y + 4} H{x - 4} Z",
            "stop": f"M{x - 4} {y} A4 4 0 1 0 {x + 4} {y} A4 4 0 1 0 {x - 4} {y} Z",
            "client pause": f"M{x - 5} {y - 3} H{x + 5} V{y + 3} H{x - 5} Z",
            "client kill": f"M{x} {y - 5} L{x + 5} {y} L{x} {y + 5} L{x - 5} {y} Z",
        }[disturbance.kind]
        yield element("path", told, class_=f"mark {disturbance.kind.replace(' ', '-')}", d=shape)


def _recovery(report: Report, time: Scale) -> Iterator[Markup]:
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
        yield element("rect", titled(told), class_="bar", x=x - 2.5, y=y, width=5, height=height)


def _time_axis(end: float, time: Scale) -> Iterator[Markup]:
    y = TOP + THROUGHPUT + STRIP + GAP + RECOVERY
    for second in ticks(end, 8):
        if second <= end:
            x = time(second)
            yield _tick(x, y + 18, "middle", f"{second:g}")
            yield element("line", class_="axis", x1=x, x2=x, y1=y, y2=y + 4)
    yield _tick(WIDTH - RIGHT, y + 36, "end", "seconds of load")


def _grid(marks: Sequence[float], scale: Scale) -> Iterator[Markup]:
    for mark in marks:
        y = scale(mark)
        yield _across("grid" if mark else "axis", y)
        yield _tick(LEFT - 8, y + 4, "end", f"{mark:,g}")


def _across(kind: str, y: float) -> Markup:
    return element("line", class_=kind, x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)


def _tick(x: float, y: float, anchor: str, text: str) -> Markup:
    return element("text", text, class_="tick", x=x, y=y, text_anchor=anchor)


def _title(y: float, text: str) -> Markup:
    return element("text", text, class_="title", x=LEFT, y=y)
