"""The report of a drill is written as one page of HTML, made from ``report.html``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from txbroker.drill.report.result import Report, percentile, rows_of
from txbroker.drill.report.timeline import timeline
from txbroker.pages.page import render

PAGE_FILE: Final = "report.html"
SHOWN: Final = 500
"""How many violations the page shows; the JSON has all."""

_LEGEND: Final = (
    ("rate", "M0 6 H12", "acknowledged per second"),
    ("down", "M0 0 H12 V12 H0 Z", "broker does not answer"),
    ("kill", "M1 1 L11 1 L6 11 Z", "broker killed (SIGKILL)"),
    ("pause", "M2 2 H10 V10 H2 Z", "broker paused (SIGSTOP)"),
    ("stop", "M2 6 A4 4 0 1 0 10 6 A4 4 0 1 0 2 6 Z", "broker stopped (SIGTERM)"),
    ("client-kill", "M6 1 L11 6 L6 11 L1 6 Z", "client killed"),
    ("client-pause", "M1 3 H11 V9 H1 Z", "worker paused (SIGSTOP)"),
    ("bar", "M4 0 H9 V12 H4 Z", "start to first accepted request"),
)


def page(report: Report) -> str:
    """Return the whole page."""
    number = len(report.violations)
    return render(
        "txbroker.drill.report",
        "report.html",
        report=report,
        title=f"Recovery drill {report.name}, seed {report.seed}",
        violations=f"{number:,} violation{'s' if number > 1 else ''}",
        numbers=_numbers(report),
        legend=_LEGEND,
        timeline=timeline(report),
        found=list(_violations(report)),
        more=max(number - SHOWN, 0),
        counted=rows_of(report),
        disturbances=list(_disturbances(report)),
    )


def write_page(report: Report, folder: Path) -> Path:
    """Write the page into the folder; return its path."""
    path = folder / PAGE_FILE
    path.write_text(page(report), encoding="utf-8")
    return path


def _numbers(report: Report) -> list[tuple[str, str]]:
    counts, longest = report.counts, max(report.recovery, default=0.0)
    return [
        (f"{len(report.violations):,}", "violations"),
        (f"{report.kills:,}", "kills of the broker"),
        (f"{report.client_deaths:,}", "kills of clients"),
        (f"{counts.acknowledged:,}", "messages acknowledged"),
        (f"{counts.transactions_committed + counts.transactions_rolled_back:,}", "transactions ended"),
        (
            f"{percentile(report.recovery, 0.5):.2f} s",
            f"to the first request, median (longest {longest:.2f} s)",
        ),
    ]


def _violations(report: Report) -> Iterator[tuple[str, ...]]:
    for violation in report.violations[:SHOWN]:
        place = "" if violation.partition is None else f"-{violation.partition}"
        yield (
            violation.wrong.value,
            violation.text,
            f"{violation.topic}{place}",
            "" if violation.offset is None else f"{violation.offset:,}",
            violation.transaction,
            violation.client,
            violation.ledger,
        )


def _disturbances(report: Report) -> Iterator[tuple[str, ...]]:
    for disturbance in report.disturbances:
        down = (
            ""
            if disturbance.up_at is None or disturbance.kind.startswith("client")
            else f"{disturbance.up_at - disturbance.down_at:.2f} s"
        )
        yield f"{disturbance.down_at:,.1f} s", disturbance.kind, disturbance.planned, disturbance.how, down
