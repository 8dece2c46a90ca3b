"""An audit as one page of HTML that needs nothing else: no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, Final

from spark.audit.report import plots
from spark.audit.report.kinds import by_kind, kind_of, log_of, span_of, transaction_of

SHOWN: Final = 200
"""Findings on the page, of all kinds together; but some of each."""

_STYLE: Final = """
:root { color-scheme: light; --ink: #1c2330; --soft: #566170; --paper: #fbfbfa; --card: #fff; --line: #dde1e6;
  --bar: #1f6fb2; --good: #1b7f4b; --bad: #c92a2a; --wait: #936f00; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px 24px 60px; max-width: 1120px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 24px; line-height: 1.3; margin: 0 0 4px; } h1 code { font-size: 20px; }
h2 { font-size: 18px; margin: 34px 0 10px; } h3 { font-size: 15px; margin: 24px 0 2px; } p { margin: 4px 0; }
.soft { color: var(--soft); } code { font-size: 13px; }
.verdict { margin: 18px 0; padding: 12px 16px; border-left: 5px solid var(--good); background: var(--card); }
.verdict.bad { border-color: var(--bad); } .verdict strong { color: var(--good); } .bad strong { color: var(--bad); }
.verdict ul { margin: 6px 0 0; padding-left: 20px; }
.cards { display: flex; flex-wrap: wrap; gap: 10px; }
.card { flex: 1 1 130px; min-width: max-content; background: var(--card); border: 1px solid var(--line);
  border-radius: 6px; padding: 10px 14px; }
.card b { display: block; font-size: 22px; font-weight: 600; } .card span { color: var(--soft); font-size: 13px; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 12px; }
figure > svg { width: calc(100% - 56px); margin-left: 46px; overflow: visible; display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; } svg .grid { stroke: var(--line); }
svg .bar { fill: var(--bar); } .outcome { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 12px; }
.proofs { display: flex; height: 22px; border-radius: 3px; overflow: hidden; gap: 1px; }
.legend { list-style: none; margin: 10px 0 0; padding: 0; } .legend li { padding: 1px 0 1px 20px; text-indent: -20px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin-right: 8px; }
.by_archive { background: var(--good); } .by_journal { background: var(--bar); } .by_checkpoint { background: #6aa9d8; }
.by_reports { background: #7b5ea7; } .by_nothing { background: #b9bfc7; }
.share { height: 14px; margin: 2px 0 10px; border-radius: 2px; } .committed { background: var(--good); }
.rolled_back { background: var(--bad); } .prepared, .active { background: var(--wait); }
.mark { display: inline-block; padding: 0 8px; border-radius: 4px; color: #fff; background: var(--wait);
  font-size: 13px; font-weight: 500; } .mark.violation { background: var(--bad); }
.scroll { overflow-x: auto; margin-top: 8px; }
table { border-collapse: collapse; width: 100%; background: var(--card); font-size: 14px; }
th, td { text-align: left; padding: 5px 12px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; }
td.wide { min-width: 240px; max-width: 520px; } td.topic { min-width: 110px; } td.whole { white-space: nowrap; }
td.xid { min-width: 150px; } td.file { min-width: 330px; font: 12.5px/1.6 ui-monospace, monospace; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
@media (max-width: 600px) { body { padding: 18px 14px 40px; } .verdict { padding: 10px 12px; }
  figure { padding: 12px 8px; } figure > svg { width: calc(100% - 52px); } svg .spare { display: none; } }
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
            *_verdict(summary), *_cards(summary),
            "<h2>What the messages are proven by</h2>", _figure(plots.proofs(summary["proven_by"])),
            *_findings(summary),
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
    more = f" {plots.counted(notices, 'notice')} below." if notices else ""
    if summary["sound"]:
        yield '<div class="verdict"><strong>Sound.</strong> Everything that was looked at is as it was promised; '
        yield f"what was not looked at is said at the end.{more}</div>"
        return
    yield f'<div class="verdict bad"><strong>{plots.counted(violations, "violation")}.</strong> What was promised does '
    yield f"not hold. Keep the directory as it is until you know why; each kind says what to do.{more}<ul>"
    for severity, kind, found in by_kind(summary["findings"]):
        if severity == "violation":
            count = summary["violations"][kind]
            yield f'<li><a href="#{_anchor(severity, kind)}">{escape(kind)}</a> {count:,}: '
            yield f"{escape(kind_of(found[0]).means)}</li>"
    yield "</ul></div>"


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
    kinds = by_kind(summary["findings"])
    if not kinds:
        return
    yield "<h2>Findings</h2>"
    most = max(5, SHOWN // len(kinds))
    for severity, kind, found in kinds:
        count = summary["violations" if severity == "violation" else "notices"][kind]
        about = kind_of(found[0])
        yield f'<h3 id="{_anchor(severity, kind)}"><span class="mark {severity}">{severity}</span> {escape(kind)} '
        yield f'<span class="soft">{count:,}</span></h3><p>{escape(about.means)}</p>'
        yield f'<p class="soft">What to do: {escape(about.then)}</p>'
        yield from _listed(found[:most])
        if count > most:
            yield f'<p class="soft">{most} of {count:,}; the table <code>findings/</code> has all.</p>'


def _listed(found: Sequence[dict[str, Any]]) -> Iterable[str]:
    """The findings of one kind, without columns of which none has anything."""
    columns: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
        "log": ("topic", log_of),
        "offsets": ("number", span_of),
        "what": ("wide", lambda each: each["text"]),
        "transaction": ("whole", transaction_of),
        "xid": ("xid", lambda each: each.get("xid", "")),
        "file": ("file", lambda each: each.get("path", "")),
        "byte": ("number", lambda each: f"{each.get('position', 0):,}" if "path" in each else ""),
    }
    cells = {name: [shown(each) for each in found] for name, (_, shown) in columns.items()}
    shown = {name: texts for name, texts in cells.items() if any(texts)}
    classes = {place: columns[name][0] for place, name in enumerate(shown)}
    yield from _table(list(shown), zip(*shown.values(), strict=True), classes)


def _anchor(severity: str, kind: str) -> str:
    return escape(f"{severity}-{kind}".replace(" ", "-").replace(":", ""))


def _topics(summary: dict[str, Any]) -> Iterable[str]:
    yield "<h2>Topics</h2>"
    rows = [(row["topic"], f"{row['messages']:,}", f"{row['bytes']:,}") for row in summary["topics"]]
    yield from _table(("topic", "messages", "bytes of content"), rows, {0: "topic", 1: "number", 2: "number"})
    yield '<p class="soft">The broker’s own topics (<code>txbroker.…</code>) are not listed; the messages at the top '
    yield "count theirs, too.</p>"


def _proven(summary: dict[str, Any]) -> Iterable[str]:
    yield "<h2>What was proven, and what not</h2><ul>"
    yield from (f"<li>{escape(line)}</li>" for line in summary["proven"])
    yield "</ul>"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], classes: dict[int, str]) -> Iterable[str]:
    def cell(kind: str, place: int, text: str) -> str:
        shown = f' class="{classes[place]}"' if place in classes else ""
        return f"<{kind}{shown}>{escape(text)}</{kind}>"

    head = "".join(cell("th", n, name) for n, name in enumerate(names))
    yield f'<div class="scroll" tabindex="0"><table><tr>{head}</tr>'
    for row in rows:
        yield "<tr>" + "".join(cell("td", n, text) for n, text in enumerate(row)) + "</tr>"
    yield "</table></div>"
