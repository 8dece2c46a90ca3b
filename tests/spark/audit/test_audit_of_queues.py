"""Test an audit of queues: what goes through an exchange is claimed in each log that it goes to, and counted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from journal.formats.frame import HEADER_BYTES
from journal.records.outcome_entry import ArchivedOutcome, Part, pack, unpack
from journal.records.record import Published, Run
from journal.transaction_states import Cause, State
from journal.transactions import outcome_archive
from spark.audit.claims.entries import _contradiction
from spark.audit.claims.facts import What
from spark.views.records import detail_of
from tests.broker.queues.compacting import Compacting
from tests.spark.audit.audited import audited, violations
from tests.spark.damages.forger import altered, holding, rerecord, write
from tests.spark.source.test_views import view
from tests.support.queue_work import everything, on_disk, without_journal

QUEUES = {"a": "txbroker.queue.2", "b": "txbroker.queue.3", "c": "txbroker.queue.4"}
"""Their topics; the archive has partition 1."""


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("archive", [False, True])
def test_a_directory_with_queues_audits_clean(tmp_path: Path, archive: bool, flushed: bool) -> None:
    path = on_disk(everything(archive, flushed=flushed).files(), tmp_path)
    assert violations(path) == []


def test_and_one_whose_journal_is_gone(tmp_path: Path) -> None:
    path = on_disk(without_journal(everything()).files(), tmp_path)
    facts = audited(path)
    assert [fact for fact in facts if fact.what == What.VIOLATION] == []
    proven = {
        fact.topic: fact.messages for fact in facts if fact.what == What.PROOF and fact.kind == "archive"
    }
    assert {topic: proven[topic] for topic in QUEUES.values()} == {
        QUEUES["a"]: 9 * 2,
        QUEUES["b"]: 9 * 3,
        QUEUES["c"]: 9,
    }


def test_a_compacted_queue_audits_clean_with_its_journal(tmp_path: Path) -> None:
    scene = Compacting()
    scene.fill(60)
    scene.acknowledge_but(3, 30)
    scene.compact()
    scene.checkpoint()
    path = on_disk(scene.room.filesystem.kill_clone(), tmp_path)
    facts = audited(path)
    assert [fact for fact in facts if fact.what == What.VIOLATION] == []
    assert sum(fact.messages for fact in facts if fact.what == What.LOG) == 60 - 52 + 2


def forge_value(path: Path, queue: str, value: bytes) -> int:
    """Put another value into a message of a queue's log; return its offset. Checksums agree."""
    found = holding(path, QUEUES[queue], 0, value)
    data = bytes(found.entry.frame)
    at = data.index(value, HEADER_BYTES)
    write(path, found.segment, found.entry.position, altered(data, at, b"FORGED"))
    return found.entry.offset


@pytest.mark.parametrize(
    ("queue", "value", "kind"),
    [
        ("a", b"fanned 1", "send"),
        ("c", b"fanned 2", "send"),
        ("b", b"both 1", "send"),
        ("a", b"in all at once 1", "transaction"),
        ("b", b"in both added 1", "transaction"),
        ("c", b"in all prepared 2", "transaction"),
    ],
)
def test_another_message_in_the_log_of_a_queue_is_a_violation(
    tmp_path: Path, queue: str, value: bytes, kind: str
) -> None:
    path = on_disk(everything().files(), tmp_path)
    offset = forge_value(path, queue, value)
    told = [fact for fact in violations(path) if fact.kind == kind]
    assert [(fact.topic, fact.first <= offset <= fact.last) for fact in told] == [(QUEUES[queue], True)]


def test_what_a_transaction_put_into_a_queue_is_proven_by_the_archive_alone(tmp_path: Path) -> None:
    path = on_disk(without_journal(everything()).files(), tmp_path)
    offset = forge_value(path, "b", b"in both at once 2")
    [told] = violations(path)
    assert (told.kind, told.topic, told.first <= offset <= told.last) == ("transaction", QUEUES["b"], True)


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({"placements": []}, {"journal"}),
        ({"runs": [Run(2, 1, 0, 0)]}, {"journal"}),
        ({"runs": [Run(2, 2, 0, 0, [3])]}, {"journal"}),
    ],
    ids=["no place", "a run less", "a queue less"],
)
def test_a_forged_publication_is_a_violation(
    tmp_path: Path, changes: dict[str, Any], kinds: set[str]
) -> None:
    path = on_disk(everything().files(), tmp_path)
    rerecord(path, lambda each: isinstance(each, Published), lambda each: replace(each, **changes))
    assert {fact.kind for fact in violations(path)} >= kinds


def test_a_publication_that_lacks_a_queue_is_a_violation_where_that_has_its_messages(tmp_path: Path) -> None:
    path = on_disk(everything().files(), tmp_path)

    def elsewhere(record: Any) -> Any:
        [run] = record.runs
        return replace(record, runs=[replace(run, also=run.also[:1])], placements=record.placements[:2])

    rerecord(
        path,
        lambda each: isinstance(each, Published) and each.base > 0 and len(each.placements) == 3,
        elsewhere,
    )
    assert QUEUES["c"] in {fact.topic for fact in violations(path)}


# -- the archive's entries ------------------------------------------------------------------------

ENTRY = ArchivedOutcome(
    1, 7, State.COMMITTED, Cause.CLIENT, 5, 1, 2, 3, 0, None, None, "", None, False, 5, 500, 1, 9,
    [
        Part("orders", 0, 5, 0, 2, 200, 7), Part("txbroker.queue.2", 0, 2, 4, 2, 200, 8),
        Part("txbroker.queue.3", 0, 3, 4, 1, 100, 6),
    ],
    (3, 300),
)  # fmt: skip
"""Two messages for a topic, and three through exchanges: two for one queue, one for another, and at least one for none
or for both.
"""


def test_an_entry_may_say_that_messages_are_in_several_queues_or_in_none() -> None:
    assert _contradiction(ENTRY) == ""
    assert _contradiction(replace(ENTRY, messages=3, bytes=300, parts=[], routed=(3, 300))) == ""
    only = [replace(ENTRY.parts[1], count=3, bytes=300, checksum=9)]
    assert _contradiction(replace(ENTRY, messages=3, bytes=300, parts=only)) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": ENTRY.parts[1:]},
        {"messages": 6},
        {"bytes": 501},
        {"routed": (0, 0)},
        {"routed": (4, 300)},
        {"routed": (3, 301)},
        {"messages": 4, "bytes": 400, "routed": (2, 200), "parts": [ENTRY.parts[0], replace(ENTRY.parts[1], count=3)]},
        {"parts": [ENTRY.parts[0], replace(ENTRY.parts[1], bytes=301)]},
        {"messages": 1, "bytes": 100, "routed": (-1, -100), "parts": ENTRY.parts[:1]},
        {"messages": 3, "bytes": 300, "parts": [replace(ENTRY.parts[1], count=3, bytes=300)]},
        {"messages": 3, "bytes": 300, "routed": (0, 0), "parts": []},
    ],
)  # fmt: skip
def test_an_entry_whose_numbers_do_not_agree_contradicts_itself(changes: dict[str, Any]) -> None:
    assert _contradiction(replace(ENTRY, **changes)) != ""


@pytest.mark.parametrize("part", [0, 1, 3])
def test_an_entry_that_lacks_a_queue_or_a_partition_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    truth, told = outcome_archive.pack_outcome, list[bytes]()

    def packed(*fields: Any) -> bytes:
        told.append(truth(*fields))
        entry = unpack(told[-1][HEADER_BYTES:])
        if len(told) > 1:
            return told[-1]
        assert len(entry.parts) == 4
        return pack(replace(entry, parts=[*entry.parts[:part], *entry.parts[part + 1 :]]))

    monkeypatch.setattr(outcome_archive, "pack_outcome", packed)
    path = on_disk(without_journal(everything()).files(), tmp_path)
    assert violations(path)


# -- views ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("archive", [False, True])
def test_the_transactions_of_queues_are_shown_with_each_queue_and_counted_once(
    tmp_path: Path, archive: bool
) -> None:
    path = on_disk(everything(archive).files(), tmp_path)
    rows = view(path=str(path), view="transactions")
    first = 2 if archive else 1
    [doubtful] = [row for row in rows if row["state"] == "PREPARED"]
    assert doubtful["messages"] == 3
    assert [(each[0], each[3]) for each in doubtful["partitions"]] == [
        (f"txbroker.queue.{first}", 2),
        (f"txbroker.queue.{first + 1}", 2),
        (f"txbroker.queue.{first + 2}", 1),
    ]
    sizes = [each[4] for each in doubtful["partitions"]]
    assert max(sizes) < doubtful["bytes"] < sum(sizes)
    committed = [row for row in rows if row["state"] == "COMMITTED" and row["messages"] == 5]
    assert {tuple(each[3] for each in row["partitions"]) for row in committed} == {(2, 3, 1, 1)}


def test_records_that_went_through_an_exchange_are_of_no_one_log(tmp_path: Path) -> None:
    path = on_disk(everything().files(), tmp_path)
    rows = view(path=str(path), view="journal")
    logs = {row["record"]: row["partition_log"] for row in rows}
    assert (logs["Published"], logs["TransactionAdded"]) == (None, None)
    assert logs["Messages"] is not None
    assert "amq" not in detail_of(Published(-2, 0, 1, [Run(1, 1, 0, 0)], [], 1))
