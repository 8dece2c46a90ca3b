"""Transactions for people: in a list, and in full. All of it is pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from journal.transaction_states import State
from txbroker.cli.output import (
    age_text,
    bytes_text,
    count_text,
    facts,
    shortened,
    size_text,
    table,
    time_text,
    visible,
)
from txbroker.cli.transactions.json_form import preview
from txbroker.cli.transactions.words import (
    DAMAGE,
    by_text,
    cause_text,
    decision,
    has_ended,
    next_sentence,
    next_text,
    number_of,
    owner_text,
    state_text,
    summary,
)
from txbroker.client.core.results import TransactionDetails
from txbroker.databases.tables import xids
from txbroker.wire.messages import TransactionInfo

SHOWN_CHARACTERS = 48


def listing(infos: Sequence[TransactionInfo], empty: str) -> RenderableType:
    """Return the undecided ones as a table, then those that have ended."""
    undecided = [info for info in infos if not has_ended(info)]
    ended = [info for info in infos if has_ended(info)]
    if not ended:
        return undecided_table(undecided, empty)
    if not undecided:
        return ended_table(ended)
    return Stack(undecided_table(undecided, empty), "", ended_table(ended))


def undecided_table(infos: Sequence[TransactionInfo], empty: str) -> RenderableType:
    """Return one row for each; some lines for each if there is no room."""
    only_prepared = all(info.state is State.PREPARED for info in infos)
    groups = any(info.groups for info in infos)
    columns = [
        "number",
        "xid",
        "prepared",
        "began",
        "messages",
        "bytes",
        "topics",
        "owner",
        "address",
        "next",
    ]
    if groups:
        columns.insert(7, "groups")
    if not only_prepared:
        columns.insert(2, "state")
    rows = []
    for info in infos:
        row = [
            number_of(info), info.xid, None if info.prepared_age is None else age_text(info.prepared_age),
            age_text(info.age), info.messages, size_text(info.bytes), ", ".join(info.topics) or None,
            owner_text(info) or None, info.address or None, next_text(info),
        ]  # fmt: skip
        if groups:
            row.insert(7, ", ".join(info.groups) or None)
        if not only_prepared:
            row.insert(2, state_text(info))
        rows.append(row)
    return table(columns, rows, empty, [paragraph(info) for info in infos])


def paragraph(info: TransactionInfo) -> RenderableType:
    """Return an undecided one in three lines."""
    began = f"began {age_text(info.age)} ago"
    since = f"{state_text(info)}, {began}"
    if info.prepared_age is not None:
        since = f"prepared {age_text(info.prepared_age)} ago ({began})"
    holds = f"{count_text(info.messages, 'message')} ({size_text(info.bytes)})"
    holds += f" for {', '.join(info.topics)}" if info.topics else ""
    holds += f", offsets of {', '.join(info.groups)}" if info.groups else ""
    whose = f"owner {owner_text(info) or '–'}, address {info.address or '–'}; next: {next_text(info)}"
    rest = Text(f"{visible(f'{since}: {holds}')}\n{visible(whose)}")
    name = f"{number_of(info)}  {info.xid if info.xid is not None else '(no xid)'}"
    return Stack(Text(visible(name)), Padding(rest, (0, 0, 0, 2)))


def ended_table(infos: Sequence[TransactionInfo]) -> RenderableType:
    """Return the decided ones: how, when, by whom and why, and what their coordinators decided."""
    columns = ("number", "xid", "outcome", "ended", "cause", "by", "why", "coordinator")
    rows = [
        (
            number_of(info), info.xid, state_text(info), age_text(info.age), cause_text(info), by_text(info) or None,
            info.why or None, coordinator_text(info),
        )
        for info in infos
    ]  # fmt: skip
    return table(columns, rows, "", [Text(summary(info)) for info in infos])


def coordinator_text(info: TransactionInfo) -> str | None:
    """Return its coordinator's decision about a heuristic outcome."""
    if not info.heuristic:
        return None
    if info.told is None:
        return "not heard of"
    if info.contradicted:
        return f"decided to {decision(info.told.decided)}: {DAMAGE}"
    return "agrees"


# -- in full ----------------------------------------------------------------------------------------


def details(shown: TransactionDetails) -> RenderableType:
    """Return a transaction for people."""
    info = shown.transaction
    known: list[tuple[str, object]] = [
        ("number", number_of(info)),
        ("xid", info.xid),
        ("state", state_text(info)),
        ("owner", info.owner or None),
        ("address", info.address or None),
        ("principal", info.principal or None),
        ("messages", info.messages),
        ("bytes", size_text(info.bytes)),
    ]
    parts: list[RenderableType] = [facts(known), *contents(shown)]
    parts += ["", Text("History", style="bold"), facts(history(info))]
    parts += ["", Text("Next", style="bold"), Text(visible(next_sentence(info))), *commands(info)]
    return Stack(*parts)


def contents(shown: TransactionDetails) -> Iterable[RenderableType]:
    """Yield its contents, or where they are now: by topic and partition, its first messages, the positions it moves."""
    if shown.contents:
        rows = [(*at[:3], size_text(at.bytes)) for at in shown.contents]
        yield from ("", table(("topic", "partition", "messages", "bytes"), rows, ""))
    if shown.runs:
        places = [(run.topic, run.partition, run.base_offset, run.messages) for run in shown.runs]
        yield from ("", table(("topic", "partition", "from offset", "messages"), places, ""))
    if shown.obstacle:
        yield from ("", Text(visible(f"Its messages cannot be read: {shown.obstacle}")))
    if shown.messages:
        yield from ("", previews(shown))
        first = len(preview(shown))
        if first < shown.transaction.messages:
            total = count_text(shown.transaction.messages, "message")
            yield Text(f"These are {first:,} of {total}, the first ones of each partition.")
    if shown.offsets:
        yield from ("", table(("group", "topic", "partition", "moves to offset"), shown.offsets, ""))


def previews(shown: TransactionDetails) -> RenderableType:
    """Return the first messages, one in a row, or in two lines each."""
    rows, narrow = [], list[RenderableType]()
    for m in preview(shown):
        key, value = (
            shortened(bytes_text(m.key), SHOWN_CHARACTERS // 2),
            shortened(bytes_text(m.value), SHOWN_CHARACTERS),
        )
        rows.append((m.topic, m.partition, key, value, len(m.headers), time_text(m.timestamp)))
        place = f"{m.topic}/{m.partition}  key {key}, {count_text(len(m.headers), 'header')}, {time_text(m.timestamp)}"
        narrow.append(Text(f"{visible(place)}\n  {value}"))
    return table(("topic", "partition", "key", "value", "headers", "timestamp"), rows, "", narrow)


def history(info: TransactionInfo) -> list[tuple[str, object]]:
    """Return its history: what happened, when by the broker's wall clock, by whom and why."""
    who = " ".join(
        filter(
            None,
            [f"by {owner_text(info)}" if info.owner else "", f"from {info.address}" if info.address else ""],
        )
    )
    lines: list[tuple[str, object]] = []
    if info.began:
        lines.append((time_text(info.began), f"began, {who}" if who else "began"))
    if info.prepared:
        ago = (
            f" ({age_text(info.prepared_age)} ago, counted while the broker runs)"
            if info.prepared_age is not None
            else ""
        )
        lines.append((time_text(info.prepared), f"prepared{ago}"))
    if has_ended(info):
        by = f" by {by_text(info)}" if info.by else ""
        why = f": {info.why}" if info.why else ""
        when = time_text(info.ended) if info.ended else "at an unknown time"
        lines.append((when, f"{state_text(info)}, cause {cause_text(info)}{by}{why}"))
    if info.told is not None:
        agrees = f": {DAMAGE}" if info.contradicted else ", as had been forced"
        told = f"its coordinator decided to {decision(info.told.decided)}, from {by_text(info.told) or '–'}{agrees}"
        lines.append((time_text(info.told.wall), told))
    return lines


def by_its_record(info: TransactionInfo) -> str:
    """Return how to have it ended as it was decided, if its xid's format shows where the decision is; else nothing."""
    from txbroker.coordinator import gids  # late, because it imports the whole coordinator

    if info.xid is None:
        return ""
    return {
        xids.FORMAT_ID: (
            "It is of a block of `txbroker.atomic`, whose database decides. This asks it, and ends it so:\n"
            "  txbroker resolve --database URL"
        ),
        gids.FORMAT_ID: (
            "It is of a `txbroker.coordinator`, whose log decides. Start its program, or while that is down:\n"
            "  txbroker coordinator resolve DIRECTORY --participant NAME=URL ..."
        ),
    }.get(info.xid.format_id, "")


def commands(info: TransactionInfo) -> Iterable[RenderableType]:
    """Yield the commands to end it, or to forget it."""
    number = number_of(info)
    lines = {
        State.PREPARED: ("commit", "rollback"),
        State.COMMITTED: ("forget",) if info.heuristic else (),
        State.ROLLED_BACK: ("forget",) if info.heuristic else (),
    }.get(info.state, ())
    if info.state is State.PREPARED:
        known = by_its_record(info)
        if known:
            yield Text(known)
        yield Text(
            f"To end it by hand{' all the same' if known else ''}, once you know what its coordinator decided "
            "(docs/operations.md has how to find out):"
        )
    for line in lines:
        yield Text(f'  txbroker transactions {line} {number} --why "..."')
