"""The text in which Prometheus reads metrics, of its format 0.0.4; other systems read it, too.

https://prometheus.io/docs/instrumenting/exposition_formats/ has the format. A name stands once, with its help and type,
before all its series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from txbroker.broker.sessions.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

NO_LABELS: Final[Mapping[str, str]] = {}


class Metric(NamedTuple):
    """A metric: its name, what it counts or measures, and whether it is a counter, a gauge or a histogram."""

    name: str
    help: str
    kind: str = GAUGE

    def head(self) -> str:
        """Return the lines that stand before its series."""
        told = self.help.replace("\\", "\\\\").replace("\n", "\\n")
        return f"# HELP {self.name} {told}\n# TYPE {self.name} {self.kind}\n"

    def series(self, value: float, labels: Mapping[str, str] = NO_LABELS) -> str:
        """Return the line of one series."""
        return f"{self.name}{_labels(labels)} {_number(value)}\n"

    def only(self, value: float) -> str:
        """Return a metric that has one series without labels."""
        return self.head() + self.series(value)

    def all(self, series: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
        """Yield a metric of many series, line by line; nothing if it has none."""
        head = self.head()
        for labels, value in series:
            yield head + self.series(value, labels)
            head = ""

    def histogram(self, series: Iterable[tuple[Mapping[str, str], Histogram]]) -> str:
        """Return a histogram, which may have several series."""
        lines = [self.head()]
        for labels, found in series:
            counts = list(accumulate(found.counts))  # of one moment: it is counted on while this is written
            total = found.total
            for bound, count in zip((*map(_number, found.bounds), "+Inf"), counts, strict=True):
                lines.append(f"{self.name}_bucket{_labels({**labels, 'le': bound})} {count}\n")
            lines.append(f"{self.name}_sum{_labels(labels)} {_number(total)}\n")
            lines.append(f"{self.name}_count{_labels(labels)} {counts[-1]}\n")
        return "".join(lines)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    """Return a number as it is read again: whole ones without a point, all others with what a double has."""
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))
