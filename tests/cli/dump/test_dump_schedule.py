"""Test how a dump shows the records and rows of scheduled messages: ids as people see them, sets and times in words."""

from __future__ import annotations

from array import array

from journal.folds.schedule import LogRow, TimesRow
from journal.folds.timetable import ENTRY_BITS, HOUR
from journal.formats.envelope import Clock, id_of
from journal.records.record import (
    AnyRecord,
    Cancelled,
    Due,
    Placement,
    TransactionCommitted,
    TransactionPrepared,
    WallClockTold,
)
from journal.records.schedule_records import TakenBack
from journal.transaction_states import Cause
from journal.wal.reader import JournalEntry
from journal.xid import Xid
from txbroker.cli.directory import dump_lines
from txbroker.cli.directory.dump_lines import line_json, line_text

ONE, OTHER = id_of(7, 1042), id_of(0, 3)


def entry(record: AnyRecord) -> JournalEntry:
    return JournalEntry("journal/1.journal", 4096, 1, record, memoryview(b""), length=10)


def test_records_name_messages_by_log_and_offset() -> None:
    due = entry(Due([ONE], [Placement(1, 5, 1), Placement(9, 0, 1)], [0, 50], 7, [(OTHER, 2)]))
    assert (line_json(due)["ids"], line_json(due)["gone"]) == (["7-1042"], [["0-3", 2]])
    assert "7-1042" in line_text(due)
    assert line_json(entry(Cancelled([(ONE, 1)], 7)))["messages"] == [["7-1042", 1]]
    prepared = TransactionPrepared(1, 1, Xid(1, b"x", b""), None, 1, 0, taken_back=[(ONE, 1)])
    assert line_json(entry(prepared))["taken_back"] == [["7-1042", 1]]
    committed = TransactionCommitted(1, 1, [], 1, Cause.CLIENT, settles=[TakenBack([(OTHER, 1)])])
    assert line_json(entry(committed))["settles"] == [{"taken_back": [["0-3", 1]]}]


def test_a_jump_of_the_wall_clock() -> None:
    line = line_json(entry(WallClockTold(1_700_000_000_000_000, 5, holds=True)))
    assert (line["wall"], line["holds"]) == (1_700_000_000_000_000, True)


def test_the_row_of_a_log_has_its_sets_in_words() -> None:
    shown = dump_lines._named(LogRow(5, [b"\x02\x17"], [b""], 3, [(2, 5)], 9))
    assert (shown["begins"], shown["over"], shown["seen"]) == (5, ["5-7, 9"], 9)


def test_the_row_of_an_hour_has_ids_and_times() -> None:
    items = array("Q", [2_000 << ENTRY_BITS | ONE] * 150).tobytes()
    shown = dump_lines._named(TimesRow(Clock.WALL, 2 * HOUR, HOUR, items))
    assert shown["messages"] == 150
    assert len(shown["items"]) == 100
    assert shown["items"][0] == ((2 * HOUR + 2_000) * 1_000, "7-1042")
