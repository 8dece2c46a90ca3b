"""What groups settle is dumped with the names of its fields, finished offsets as runs, and retry rules: in records and
in rows.
"""

import pytest

from journal.check import JournalEntry
from journal.folds.group import GroupRow, SettlementRow
from journal.records.group_entries import (
    Ending,
    GroupPositions,
    GroupSettings,
    RetryRules,
    Settled,
    Unfinished,
)
from journal.records.record import (
    GroupAltered,
    OffsetsCommitted,
    PartitionsClaimed,
    StreamClaimed,
    StreamReleased,
    TransactionCommitted,
    TransactionOffsetsAdded,
    TransactionPrepared,
)
from journal.records.stream_entries import Delivered
from journal.transaction_states import Cause
from journal.xid import Xid
from txbroker.cli.directory import dump_lines
from txbroker.cli.directory.dump_lines import line_json, line_text

SETTLED = Settled(1, 2, 5, b"\x02\x17", [Unfinished(8, 3, 99, "why", 77)], 4)
NAMED = {
    "partition": 1,
    "generation": 2,
    "base": 5,
    "finished": "5-7, 9",
    "unfinished": [
        {"offset": 8, "attempts": 3, "due": 99, "reason": "why", "failed": 77, "death": "rejected"}
    ],
    "start": 4,
}
RULES = RetryRules(3, 5, 80, Ending.STOP)
SHOWN = {"attempts": 3, "pause": 5, "longest": 80, "ending": 2, "target": ""}
MOVED = [GroupPositions("g", b"", [], [SETTLED])]


def entry(record):
    return JournalEntry("journal/1.journal", 4096, 1, record, memoryview(b""), length=10)


@pytest.mark.parametrize(
    "record",
    [
        OffsetsCommitted("g", [], 1, b"", [SETTLED]),
        PartitionsClaimed("g", "m", [(1, 1)], 1, b"", [SETTLED]),
        TransactionOffsetsAdded(1, 1, "g", [], 1, 0, settled=[SETTLED]),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_of_settled_offsets(record):
    assert line_json(entry(record))["settled"] == [NAMED]
    assert "5-7, 9" in line_text(entry(record))


@pytest.mark.parametrize(
    "record",
    [
        TransactionPrepared(1, 1, Xid(1, b"x", b""), None, 1, 0, positions=MOVED),
        TransactionCommitted(1, 1, [], 1, Cause.CLIENT, settles=MOVED),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_deciding_record(record):
    line = line_json(entry(record))
    [positions] = line.get("positions") or line["settles"]
    assert (positions["group"], positions["settled"]) == ("g", [NAMED])


def test_what_is_said_of_a_stream_names_it_as_errors_do():
    stream = b"\1" * 16
    for record in (StreamClaimed(stream, "table", 1, bytes(16), "me", 1), StreamReleased(stream, 1, 1)):
        assert line_json(entry(record))["stream"] == "01" * 16
        assert "01" * 16 in line_text(entry(record))
    commit = TransactionCommitted(1, 1, [], 1, Cause.CLIENT, settles=[Delivered(stream, 7, 9)])
    assert line_json(entry(commit))["settles"] == [{"stream": "01" * 16, "claim": 7, "number": 9}]


def test_a_set_that_is_none_is_dumped_as_its_bytes_with_the_reason():
    [settled] = line_json(entry(OffsetsCommitted("g", [], 1, b"", [Settled(1, 0, 0, b"\xff")])))["settled"]
    assert "kind 255" in settled["finished"]["undecodable"]
    assert settled["finished"]["bytes"] == {"base64": "/w=="}


def test_the_row_of_a_group_in_a_checkpoint():
    row = GroupRow("g", b"", [(1, 5, "m")], [], [SettlementRow(1, [b"\x02\x16"], [Unfinished(8, 3)])])
    [settlement] = dump_lines._named(row)["settlements"]
    assert (settlement["partition"], settlement["finished"]) == (1, ["6-7, 9"])
    assert settlement["unfinished"][0]["attempts"] == 3


@pytest.mark.parametrize(("rules", "shown"), [(RULES, SHOWN), (None, None)])
def test_a_record_of_settings(rules, shown):
    line = line_json(entry(GroupAltered("g", GroupSettings(rules, 7), 1, b"id")))
    assert (line["record"], line["group"]) == ("GroupAltered", "g")
    assert line["settings"] == {"retry": shown, "expiry": 7, "tags": []}
    assert "'attempts': 3" in line_text(entry(GroupAltered("g", GroupSettings(RULES), 1)))


@pytest.mark.parametrize("settlements", [[], [SettlementRow(1, [b"\x02\x16"], [])]], ids=["bare", "settled"])
def test_the_retry_rules_of_a_group_in_a_checkpoint(settlements):
    row = GroupRow("g", b"", [(1, 5, "m")], [], settlements, GroupSettings(RULES), 9)
    assert dump_lines._named(row)["settings"] == {"retry": SHOWN, "expiry": None, "tags": []}
    assert dump_lines._named(row)["used"] == 9
