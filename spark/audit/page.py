"""An audit as one page of HTML that needs nothing else: no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final

from spark.audit import plots

SHOWN: Final = 200
"""Findings on the page."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6675; --paper: #fbfbfa; --card: #fff; --line: #dde1e6;
  --bar: #1f6fb2; --good: #1b7f4b; --bad: #c92a2a; --wait: #b08400; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #9aa5b4; --paper: #14181e; --card: #1b2028;
  --line: #313944; --bar: #6db3f2; --good: #56d38e; --bad: #ff7b72; --wait: #e3b341; } }
body { margin: 0 auto; padding: 28px 24px 60px; max-width: 1120px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 34px 0 10px; } p { margin: 4px 0; }
.soft { color: var(--soft); } code { font-size: 13px; overflow-wrap: anywhere; }
.verdict { margin: 18px 0; padding: 12px 16px; border-left: 5px solid var(--good); background: var(--card); }
.verdict.bad { border-color: var(--bad); } .verdict strong { color: var(--good); } .bad strong { color: var(--bad); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 10px 14px; }
.card b { display: block; font-size: 22px; font-weight: 600; } .card span { color: var(--soft); font-size: 13px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 12px; }
figure > svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; } svg .title { fill: var(--ink); }
svg .grid { stroke: var(--line); } svg .bar { fill: var(--bar); } svg .committed { fill: var(--good); }
svg .rolled_back { fill: var(--bad); } svg .prepared, svg .active { fill: var(--wait); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; background: var(--card); font-size: 14px; }
th, td { text-align: left; padding: 5px 12px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
"""


def page(summary: dict[str, Any]) -> str:
    """The whole page."""
    return "\n".join(
        [
            "<!doctype html>", '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Audit of {escape(summary['directory'])}</title><style>{_STYLE}</style></head><body>",
            f"<h1>Audit of <code>{escape(summary['directory'])}</code></h1>",
            f'<p class="soft">as of the checkpoint of {escape(summary["as_of"])}, LSN {summary["lsn"]}; '
            f"every byte by the second implementation of the checksum, in {summary['seconds']:.0f} s</p>",
            *_verdict(summary), *_cards(summary), *_findings(summary),
            "<h2>Messages by time</h2>", _figure(plots.windows(summary["windows"])),
            "<h2>Transactions by outcome</h2>", _figure(plots.outcomes(summary["transactions"])),
            "<h2>From prepare to commit</h2>",
            _figure(plots.histogram(summary["prepare_to_commit"], "Committed in two phases, by how long it took")),
            "<h2>In doubt for how long</h2>",
            _figure(plots.histogram(summary["in_doubt"], "Prepared and undecided at the checkpoint, by age")),
            *_topics(summary), *_proven(summary), "</body></html>",
        ]
    )  # fmt: skip


def _figure(content: str) -> str:
    return f"<figure>{content}</figure>"


def _verdict(summary: dict[str, Any]) -> Iterable[str]:
    violations, notices = sum(summary["violations"].values()), sum(summary["notices"].values())
    if summary["sound"]:
        more = f" {notices:,} things to know of." if notices else ""
        yield f'<div class="verdict"><strong>Sound.</strong> Everything is as it was promised.{more}</div>'
    else:
        kinds = ", ".join(
            f"{escape(kind)} {count:,}" for kind, count in sorted(summary["violations"].items())
        )
        yield f'<div class="verdict bad"><strong>{violations:,} violations</strong>: {kinds}.</div>'


def _cards(summary: dict[str, Any]) -> Iterable[str]:
    logs = summary["logs"]
    transactions = sum(row["transactions"] for row in summary["transactions"])
    yield '<div class="cards">'
    for value, name in (
        (f"{logs['messages']:,}", "messages"),
        (f"{logs['bytes'] / 1e6:,.1f} MB", "of frames"),
        (f"{logs['partitions']:,}", "partitions"),
        (f"{transactions:,}", "transactions"),
        (
            f"{sum(row['transactions'] for row in summary['transactions'] if row['state'] == 'prepared'):,}",
            "in doubt",
        ),
    ):
        yield f'<div class="card"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
    yield "</div>"


def _findings(summary: dict[str, Any]) -> Iterable[str]:
    found = summary["findings"]
    if not found:
        return
    yield "<h2>Findings</h2>"
    if len(found) > SHOWN:
        yield f'<p class="soft">The first {SHOWN}; <code>findings/</code> has all.</p>'
    rows = []
    for each in found[:SHOWN]:
        log = f"{each['topic']}-{each['partition']}" if "partition" in each else each.get("topic", "")
        offsets = _span(each)
        number = f"{each['session']}-{each['serial']}" if "session" in each else ""
        file = f"{each['path']} @ {each.get('position', 0):,}" if "path" in each else ""
        rows.append(
            (each["severity"], each["kind"], log, offsets, number, each.get("xid", ""), file, each["text"])
        )
    yield from _table(("", "kind", "log", "offsets", "transaction", "xid", "file @ byte", "what"), rows)


def _span(each: dict[str, Any]) -> str:
    first, last = each.get("first"), each.get("last")
    if first is None:
        return ""
    return f"{first:,}" if last in (None, first) else f"{first:,} to {last:,}"


def _topics(summary: dict[str, Any]) -> Iterable[str]:
    yield "<h2>Topics</h2>"
    rows = [(row["topic"], f"{row['messages']:,}", f"{row['bytes']:,}") for row in summary["topics"]]
    yield from _table(("topic", "messages", "bytes beside headers"), rows, numbers=(1, 2))


def _proven(summary: dict[str, Any]) -> Iterable[str]:
    yield "<h2>What was proven, and what not</h2><ul>"
    yield from (f"<li>{escape(line)}</li>" for line in summary["proven"])
    yield "</ul>"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> Iterable[str]:
    def cell(kind: str, place: int, text: str) -> str:
        shown = ' class="number"' if place in numbers else ""
        return f"<{kind}{shown}>{escape(text)}</{kind}>"

    yield (
        '<div class="scroll"><table><tr>'
        + "".join(cell("th", n, name) for n, name in enumerate(names))
        + "</tr>"
    )
    for row in rows:
        yield "<tr>" + "".join(cell("td", n, text) for n, text in enumerate(row)) + "</tr>"
    yield "</table></div>"
