"""Test how a dump shows the records and rows of queues, exchanges and bindings: with names, kinds in words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from journal.check import FileKind, JournalEntry, walk_any, walk_journal
from journal.folds.queues import QueuesFold
from journal.formats.filenames import checkpoint_file
from journal.records.queue_entries import (
    Binding,
    ExchangeKind,
    ExchangeSettings,
    Queue,
    QueueSettings,
    address_of,
)
from journal.records.record import (
    AnyRecord,
    Bound,
    ExchangeDeclared,
    ExchangeDeleted,
    Placement,
    Published,
    Run,
    TopicCreated,
    TransactionAdded,
    Unbound,
)
from journal.settings import TopicSettings
from journal.walks.checkpoint_walk import checkpoint_lsns
from tests.support.queue_work import everything
from txbroker.cli.directory.dump_lines import line_json, line_text
from txbroker.queues.kept_arguments import packed

BINDING = Binding(
    "orders", "a.#", "tasks", False, (("n", 3), ("t", b"text"), ("u", b"\xff"), ("x", float("inf")))
)
SHOWN = {
    "exchange": "orders",
    "key": "a.#",
    "destination": "tasks",
    "to_exchange": False,
    "arguments": {"n": 3, "t": "text", "u": {"base64": "/w=="}, "x": "inf"},
}


def shown(record: AnyRecord) -> dict[str, Any]:
    entry = JournalEntry("journal/1.journal", 4096, 1, record, memoryview(b""), length=10)
    assert type(record).__name__ in line_text(entry)
    line = line_json(entry)
    json.dumps(line, allow_nan=False)
    return line


@pytest.mark.parametrize("kind", [Bound, Unbound])
def test_a_binding_has_its_names_and_arguments(kind: type[Bound] | type[Unbound]) -> None:
    assert shown(kind(BINDING, 7))["binding"] == SHOWN


def test_an_exchange_has_its_kind_in_a_word() -> None:
    line = shown(ExchangeDeclared("orders", 7, ExchangeSettings(ExchangeKind.TOPIC, auto_delete=True), 1))
    wanted = {"kind": "topic", "internal": False, "auto_delete": True, "alternate": None, "durable": True}
    assert line["settings"] == wanted | {"delayed": False}
    assert shown(ExchangeDeleted("orders", 7, 1))["number"] == 7


def test_a_topic_has_its_queue() -> None:
    kept = packed({"x-queue-type": "quorum", "x-raw": b"\xff"})
    queue = Queue("tasks", QueueSettings(3, "dead", arguments=kept))
    line = shown(TopicCreated("txbroker.queue.4", 4, 1, TopicSettings(), 1, queue=queue))
    settings = {"delivery_limit": 3, "dead_letter_exchange": "dead", "dead_letter_key": None}
    settings |= {
        "message_ttl": None,
        "max_length": None,
        "overflow": "drop-head",
        "expires": None,
        "exclusive": False,
        "auto_delete": False,
        "durable": True,
        "single_active": False,
        "max_priority": 0,
        "max_length_bytes": None,
        "consumer_timeout": None,
        "dead_letter_strategy": "at-most-once",
        "arguments": {"x-queue-type": "quorum", "x-raw": {"base64": "/w=="}},
    }
    assert line["queue"] == {"name": "tasks", "settings": settings}
    assert shown(TopicCreated("t", 4, 1, TopicSettings(), 1))["queue"] is None


@pytest.mark.parametrize("mandatory", [False, True])
def test_a_publication_has_its_exchange_and_its_ways(mandatory: bool) -> None:
    record = Published(
        address_of(7, mandatory), 5, 2, [Run(3, 1, 0, 0, [4]), Run(0, 1, 50, 0)], [Placement(3, 0, 1)], 9
    )
    line = shown(record)
    assert (line["exchange"], line["mandatory"]) == (7, mandatory)
    assert line["runs"] == [[3, 1, 0, 0, [4]], [0, 1, 50, 0, []]]
    assert line["ids"] == []
    due = shown(
        Published(address_of(7, mandatory), 5, 1, [Run(3, 1, 0, 0)], [Placement(3, 0, 1)], 9, ids=[11])
    )
    assert due["ids"] == ["3-1"]


def test_an_add_has_its_runs() -> None:
    assert shown(TransactionAdded(1, 1, 0, 1, 1, 0, runs=[Run(3, 1, 0, 7, [4])]))["runs"] == [
        [3, 1, 0, 7, [4]]
    ]


def test_the_rows_of_a_checkpoint_have_their_names() -> None:
    disk = everything(archive=False).files()
    path = checkpoint_file(checkpoint_lsns(disk)[-1])
    [rows] = [
        line["rows"]
        for each in walk_any(disk, path, FileKind.CHECKPOINT)
        if (line := line_json(each)).get("fold") == QueuesFold.name
    ]
    head, *others = rows
    assert head == {"next_exchange": 9, "exchanges": 8, "queues": 3}
    exchange = {"kind": "fanout", "internal": False, "auto_delete": False, "alternate": None, "durable": True}
    exchange["delayed"] = False
    assert {"name": "fan", "number": 7, "settings": exchange, "taken": 4} in others
    assert others[8]["name"] == "a"
    assert others[8]["topic"] == "txbroker.queue.1"
    assert others[-1]["exchange"] == "topic"


def test_every_record_of_a_broker_with_queues_can_be_printed_with_its_values() -> None:
    disk = everything().files()
    kinds = set()
    for each in walk_journal(disk):
        assert isinstance(each, JournalEntry)
        text = line_text(each, values=True)
        kinds.add(type(each.record).__name__)
        if b"fanned 1" in bytes(each.data):
            assert "fanned 1" in text.partition("\n")[2]
        json.dumps(line_json(each, values=True), allow_nan=False)
    assert {"Published", "Bound", "ExchangeDeclared"} < kinds
