"""An audit as one page of HTML, made of ``audit.html``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from spark.audit.report import plots
from spark.audit.report.kinds import Kind, by_kind, kind_of, log_of, span_of, transaction_of
from txbroker.pages.page import render

SHOWN: Final = 200
"""The most findings on the page, of all kinds together; but some of each."""

_COLUMNS: Final[dict[str, tuple[str, Callable[[dict[str, Any]], str]]]] = {
    "log": ("topic", log_of),
    "offsets": ("number", span_of),
    "what": ("wide", lambda each: each["text"]),
    "transaction": ("whole", transaction_of),
    "xid": ("xid", lambda each: each.get("xid", "")),
    "file": ("file", lambda each: each.get("path", "")),
    "byte": ("number", lambda each: f"{each.get('position', 0):,}" if "path" in each else ""),
}
"""The columns of findings: the class of their cells, and the cell of a finding."""


class Section(NamedTuple):
    """The findings of one kind: how many there are, what they mean, and a table of the first ones."""

    severity: str
    kind: str
    number: int
    about: Kind
    shown: int
    names: list[str]
    rows: list[tuple[str, ...]]
    classes: dict[int, str]

    @property
    def anchor(self) -> str:
        """The anchor of the section on the page."""
        return f"{self.severity}-{self.kind}".replace(" ", "-").replace(":", "")


def page(summary: dict[str, Any]) -> str:
    """Return the whole page."""
    notices = sum(summary["notices"].values())
    return render(
        "spark.audit.report",
        "audit.html",
        summary=summary,
        violations=plots.counted(sum(summary["violations"].values()), "violation"),
        notices=f" {plots.counted(notices, 'notice')} below." if notices else "",
        numbers=_numbers(summary),
        sections=list(_sections(summary)),
        topics=[(row["topic"], f"{row['messages']:,}", f"{row['bytes']:,}") for row in summary["topics"]],
        plots=plots,
    )


def _numbers(summary: dict[str, Any]) -> list[tuple[str, str]]:
    logs, rows = summary["logs"], summary["transactions"]
    in_doubt = sum(row["transactions"] for row in rows if row["state"] == "prepared")
    return [
        (f"{logs['messages']:,}", "messages"),
        (f"{logs['bytes'] / 1e6:,.1f} MB", "of frames"),
        (f"{logs['partitions']:,}", "partitions"),
        (f"{sum(row['transactions'] for row in rows):,}", "transactions"),
        (f"{in_doubt:,}", "in doubt"),
    ]


def _sections(summary: dict[str, Any]) -> Iterator[Section]:
    kinds = by_kind(summary["findings"])
    for severity, kind, found in kinds:
        count = summary["violations" if severity == "violation" else "notices"][kind]
        most = max(5, SHOWN // len(kinds))
        yield Section(severity, kind, count, kind_of(found[0]), most, *_listed(found[:most]))


def _listed(found: Sequence[dict[str, Any]]) -> tuple[list[str], list[tuple[str, ...]], dict[int, str]]:
    """Return names, rows and classes of a table of findings, without columns that are empty."""
    cells = {name: [shown(each) for each in found] for name, (_, shown) in _COLUMNS.items()}
    shown = {name: texts for name, texts in cells.items() if any(texts)}
    classes = {place: _COLUMNS[name][0] for place, name in enumerate(shown)}
    return list(shown), list(zip(*shown.values(), strict=True)), classes
