"""``view=transactions``: all transactions, with their outcomes and the places of their messages, or undecided.

Ended ones come from the outcome archive. Data without one have only those that the broker still remembers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import txbroker
from journal.parties import Owner, parts_of, parts_of_actor
from journal.records.outcome_entry import ArchivedOutcome
from journal.records.record import Placement
from journal.transaction_states import BEGUN, State
from journal.transactions.state import TransactionRow
from journal.transactions.table import live_rows, remembered
from spark.source.archive import archive_log, entries
from spark.source.files import Directory
from spark.source.logs import Logs, Losses
from spark.source.options import ReadOptions
from spark.source.partition_plan import Range, Task, cut_into_tasks
from spark.source.reader import open_logs
from spark.views.times import time_of
from txbroker.wire.messages import TransactionInfo

PARTITION = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("first_offset", LongType()),
        StructField("messages", LongType()),
        StructField("bytes", LongType()),
    ]
)
OWNER = StructType([StructField(name, StringType()) for name in ("principal", "client", "address")])
"""Whose a transaction is."""
SCHEMA = StructType(
    [
        StructField("transaction", StringType()),
        StructField("xid", StringType()),
        StructField("state", StringType()),
        StructField("heuristic", BooleanType()),
        StructField("cause", StringType()),
        StructField("resolved_by", StringType()),
        StructField("resolved_by_principal", StringType()),
        StructField("why", StringType()),
        StructField("owner", OWNER),
        StructField("began", TimestampType()),
        StructField("prepared", TimestampType()),
        StructField("ended", TimestampType()),
        StructField("messages", LongType()),
        StructField("bytes", LongType()),
        StructField("partitions", ArrayType(PARTITION)),
    ]
)
"""``first_offset`` is null for messages in no log. ``heuristic``: a person or policy ended it after it was prepared.

What went through an exchange is in the partitions of all queues that it goes to, or in none, and once in ``messages``
and ``bytes``.
"""

Row = tuple[Any, ...]
ENDED = (State.COMMITTED, State.ROLLED_BACK)


class Rest(InputPartition):
    """The transactions that are not in the archive's log: undecided ones, and entries on their way there."""

    def __init__(self) -> None:
        super().__init__(None)


def tasks(options: ReadOptions) -> list[InputPartition]:
    """Return the archive in parts, and the rest."""
    logs = open_logs(options)
    try:
        archive = archive_log(logs)
        parts = (
            []
            if archive is None or archive.start == archive.end
            else [Range(archive, archive.start, archive.end)]
        )
        return [*cut_into_tasks(logs, parts, options.min_partitions), Rest()]
    finally:
        logs.close()


def rows(options: ReadOptions, task: InputPartition) -> Iterator[Row]:
    """Yield a row for each transaction of a part."""
    logs = open_logs(options)
    try:
        if isinstance(task, Task):
            for part in task.parts:
                yield from map(_archived, entries(logs, part, Losses(options.fail_on_data_loss)))
        else:
            yield from map(_archived, logs.archive_waiting())
            yield from _of_broker(options, logs) if options.broker else _of_directory(logs)
    finally:
        logs.close()


def _archived(entry: ArchivedOutcome) -> Row:
    partitions = [
        (at.topic, at.index, at.base_offset if at.base_offset >= 0 else None, at.count, at.bytes)
        for at in entry.parts
    ]
    return _row(entry, str(entry.number), (entry.began, entry.prepared, entry.wall), partitions)


def _of_directory(logs: Logs) -> Iterator[Row]:
    """Yield transactions as the newest checkpoint has them."""
    assert isinstance(logs, Directory)
    names = {store.number: (store.topic, store.index) for store in logs.checkpoint.stores}
    for live in live_rows(logs.checkpoint):
        yield _undecided(live, names)
    if archive_log(logs) is None:
        for outcome in remembered(logs.checkpoint):
            times = outcome.began, outcome.prepared, outcome.wall
            yield _row(outcome, str(outcome.number), times, _placed(outcome.placements, names))


def _undecided(live: TransactionRow, names: dict[int, tuple[str, int]]) -> Row:
    sizes: dict[int, list[int]] = {}
    for entry in live.entries:
        for number in entry.targets:
            size = sizes.setdefault(number, [0, 0])
            size[0] += entry.count
            size[1] += entry.size
    partitions = [(*_named(number, names), None, *size) for number, size in sizes.items()]
    prepared = live.prepared_at + live.wall_offset if live.state is State.PREPARED else 0
    return (
        str(live.number),
        None if live.xid is None else str(live.xid),
        live.state.name,
        False,
        None,
        None,
        None,
        None,
        _owner(live.owner),
        time_of(live.began + live.wall_offset),
        time_of(prepared),
        None,
        live.totals.messages,
        sum(entry.size for entry in live.entries),
        partitions,
    )


def _of_broker(options: ReadOptions, logs: Logs) -> Iterator[Row]:
    """Yield transactions as a live broker lists them."""
    has_archive = archive_log(logs) is not None
    states = [state for state in BEGUN if not (has_archive and state in ENDED)]
    with txbroker.connect(options.broker, client="spark", timeout=options.timeout) as connection:
        names = {
            part.number: (topic.name, part.index)
            for topic in connection.topics()
            for part in topic.partitions
        }
        for info in connection.transactions(states):
            yield _listed(connection, info, names)


def _listed(connection: txbroker.Connection, info: TransactionInfo, names: dict[int, tuple[str, int]]) -> Row:
    number = f"{info.session}-{info.serial}"
    times = info.began, info.prepared, info.ended
    if info.state is State.COMMITTED:
        return _row(info, number, times, _placed(connection.outcome(number).placements, names))
    if info.state is State.ROLLED_BACK:
        return _row(info, number, times, [])
    contents = connection.show_transaction(number, max_bytes=1).contents
    return _row(
        info, number, times, [(at.topic, at.partition, None, at.messages, at.bytes) for at in contents]
    )


def _placed(placements: Iterable[Placement], names: dict[int, tuple[str, int]]) -> list[Row]:
    return [(*_named(at.partition, names), at.base_offset, at.count, None) for at in placements]


def _named(number: int, names: dict[int, tuple[str, int]]) -> tuple[str, int]:
    """Return topic and index; for a deleted log, its number."""
    return names.get(number, (f"(log {number}, deleted)", 0))


def _owner(owner: Owner | None) -> tuple[str | None, ...] | None:
    return None if owner is None else tuple(part or None for part in parts_of(owner))


def _row(each: Any, number: str, times: tuple[int, int, int], partitions: list[Row]) -> Row:
    """The common fields of entries, outcomes and the broker's answers."""
    if isinstance(each, TransactionInfo):
        by, principal = each.by, each.by_principal
        owner = Owner(each.principal, each.owner, each.address) if each.principal else None
    else:
        (by, principal), owner = parts_of_actor(each.by), each.owner
    return (
        number,
        None if each.xid is None else str(each.xid),
        each.state.name,
        each.heuristic,
        None if each.cause is None else each.cause.name,
        by or None,
        principal or None,
        each.why or None,
        _owner(owner),
        *map(time_of, times),
        each.messages,
        each.bytes,
        partitions,
    )
