"""The report of a drill as one page of HTML that needs nothing else: no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final

from txbroker.drill.plot import timeline
from txbroker.drill.report import Report, percentile, rows_of

PAGE_FILE: Final = "report.html"
SHOWN: Final = 500
"""Violations on the page; the JSON has all."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6675; --paper: #fbfbfa; --card: #ffffff; --line: #dde1e6;
  --rate: #1f6fb2; --area: #1f6fb222; --down: #d9480f1c; --kill: #c92a2a; --pause: #b08400; --stop: #5f6b7a;
  --client: #7048a8; --bar: #2b8a6e; --good: #1b7f4b; --bad: #c92a2a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa5b4; --paper: #14181e; --card: #1b2028;
  --line: #313944; --rate: #6db3f2; --area: #6db3f226; --down: #ff922b22; --kill: #ff7b72; --pause: #e3b341;
  --stop: #aab4c0; --client: #c297ff; --bar: #56d4ab; --good: #56d38e; --bad: #ff7b72; } }
body { margin: 0 auto; padding: 28px 24px 60px; max-width: 1120px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 34px 0 10px; }
p { margin: 4px 0; } .soft { color: var(--soft); } code { font-size: 13px; overflow-wrap: anywhere; }
.verdict { margin: 18px 0; padding: 12px 16px; border-left: 5px solid var(--good); background: var(--card); }
.verdict.bad { border-color: var(--bad); } .verdict strong { color: var(--good); } .bad strong { color: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 10px 14px; }
.card b { display: block; font-size: 22px; font-weight: 600; } .card span { color: var(--soft); font-size: 13px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--soft); margin: 6px 0; }
.legend svg { width: 12px; height: 12px; vertical-align: -1px; margin-right: 5px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 12px; }
figure > svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; } svg .title { fill: var(--ink); font-size: 12px; }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); }
svg .down { fill: var(--down); } svg .area { fill: var(--area); }
svg .rate { fill: none; stroke: var(--rate); stroke-width: 1.4; stroke-linejoin: round; }
svg .bar { fill: var(--bar); } svg .kill { fill: var(--kill); } svg .pause { fill: var(--pause); }
svg .stop { fill: var(--stop); } svg .client-kill { fill: var(--client); }
svg .mark { stroke: var(--card); stroke-width: 0.6; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; background: var(--card); font-size: 14px; }
th, td { text-align: left; padding: 5px 12px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; } td.number, th.number { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; } td:first-child { white-space: pre-wrap; }
details summary { cursor: pointer; margin: 30px 0 10px; font-size: 17px; font-weight: 600; }
"""

_LEGEND: Final = (
    ("rate", "M0 6 H12", "acknowledged per second"),
    ("down", "M0 0 H12 V12 H0 Z", "broker does not answer"),
    ("kill", "M1 1 L11 1 L6 11 Z", "broker killed (SIGKILL)"),
    ("pause", "M2 2 H10 V10 H2 Z", "broker paused (SIGSTOP)"),
    ("stop", "M2 6 A4 4 0 1 0 10 6 A4 4 0 1 0 2 6 Z", "broker stopped (SIGTERM)"),
    ("client-kill", "M6 1 L11 6 L6 11 L1 6 Z", "client killed"),
    ("bar", "M4 0 H9 V12 H4 Z", "start to first accepted request"),
)


def page(report: Report) -> str:
    """All of it."""
    title = f"Recovery drill {report.name}, seed {report.seed}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{report.seconds:,.0f} s in all. Repeat it with <code>{escape(report.command)}</code></p>'
        if report.command
        else f'<p class="soft">{report.seconds:,.0f} s in all.</p>',
        _verdict(report),
        _cards(report),
        "<h2>Timeline</h2>",
        _legend(),
        f"<figure>{timeline(report)}</figure>",
        _violations(report),
        "<h2>What was counted</h2>",
        _table(("what", "number"), rows_of(report), numbers=(1,)),
        "<details><summary>Everything that was done</summary>",
        _blows(report),
        "</details>",
    ]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            *body,
            "</body></html>\n",
        ]
    )


def write_page(report: Report, folder: Path) -> Path:
    """Put it into the folder; return its path."""
    path = folder / PAGE_FILE
    path.write_text(page(report), encoding="utf-8")
    return path


def _verdict(report: Report) -> str:
    if report.sound:
        text = "<strong>No violation.</strong> What was acknowledged is there, once, whole, unchanged and in order."
        return f'<div class="verdict">{text}</div>'
    number = len(report.violations)
    text = (
        f"<strong>{number:,} violation{'s' if number > 1 else ''}.</strong> A promise was broken; see below."
    )
    return f'<div class="verdict bad">{text}</div>'


def _cards(report: Report) -> str:
    counts = report.counts
    cards = (
        (f"{len(report.violations):,}", "violations"),
        (f"{report.kills:,}", "kills of the broker"),
        (f"{report.client_deaths:,}", "kills of clients"),
        (f"{counts.acknowledged:,}", "messages acknowledged"),
        (f"{counts.transactions_committed + counts.transactions_rolled_back:,}", "transactions ended"),
        (
            f"{percentile(report.recovery, 0.5):.2f} s",
            f"to the first request, median (longest {max(report.recovery, default=0.0):.2f} s)",
        ),
    )
    inner = "".join(f'<div class="card"><b>{value}</b><span>{label}</span></div>' for value, label in cards)
    return f'<div class="cards">{inner}</div>'


def _legend() -> str:
    marks = (
        f'<span><svg viewBox="0 0 12 12"><path class="{kind}" d="{shape}"/></svg>{text}</span>'
        for kind, shape, text in _LEGEND
    )
    return f'<div class="legend">{"".join(marks)}</div>'


def _violations(report: Report) -> str:
    if report.sound:
        return ""
    rows = [
        (
            violation.wrong.value,
            violation.text,
            f"{violation.topic}-{violation.partition}"
            if violation.partition is not None
            else violation.topic,
            "" if violation.offset is None else f"{violation.offset:,}",
            violation.transaction,
            violation.client,
            violation.ledger,
        )
        for violation in report.violations[:SHOWN]
    ]
    more = len(report.violations) - len(rows)
    note = f'<p class="soft">{more:,} more are in report.json.</p>' if more else ""
    head = ("kind", "what", "partition", "offset", "transaction", "client", "ledger line")
    return f"<h2>Violations</h2>{_table(head, rows, numbers=(3,))}{note}"


def _blows(report: Report) -> str:
    rows = [
        (
            f"{blow.down_at:,.1f} s",
            blow.kind,
            blow.planned,
            blow.how,
            "" if blow.up_at is None or blow.kind == "client kill" else f"{blow.up_at - blow.down_at:.2f} s",
        )
        for blow in report.blows
    ]
    return _table(("at", "kind", "where", "what came of it", "not answering for"), rows, numbers=(4,))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    kinds = [' class="number"' if column in numbers else "" for column in range(len(head))]
    first = "".join(f"<th{kind}>{escape(text)}</th>" for kind, text in zip(kinds, head, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(text)}</td>" for kind, text in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>'
