"""Test what a repair finds again of queues in the journal, and what it says of what is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from journal.check import JournalEntry, Level, verify, walk_journal
from journal.formats import frame
from journal.log.segment import segments_of
from journal.records.queue_entries import Binding, ExchangeKind, exchange_of
from journal.records.record import Messages
from journal.repair import Diagnosis
from journal.testing import MemoryFilesystem
from journal.transaction_states import Cause
from tests.repair.repair_scene import all_files, repaired
from tests.support.engine_room import damage
from tests.support.queue_work import QueueWork, everything
from txbroker.wire import messages

Values = dict[str, list[bytes | None]]


def values(work: QueueWork) -> Values:
    """All messages of each log, as readers see them."""
    found: Values = {}
    for store in work.room.engine.catalog.stores.values():
        mine = found[f"{store.topic}-{store.index}"] = []
        while data := store.read(store.start_offset + len(mine), 1 << 20):
            mine += [each.value for each in frame.decode_run(data)]
    return found


def started(filesystem: MemoryFilesystem, work: QueueWork) -> QueueWork:
    """Have the broker start again on these files."""
    work.room.filesystem = filesystem
    work.room.start()
    work.peer, work.other = work.room.peer(), work.room.peer()
    return work


def segment_of(work: QueueWork, partition: int) -> str:
    [segment] = segments_of(work.room.engine.catalog.stores[partition].state())
    return segment.path


# -- what is found again --------------------------------------------------------------------------


@pytest.mark.parametrize("queue", ["a", "b", "c"])
def test_the_log_of_a_queue_is_made_again_of_what_the_journal_has(queue: str) -> None:
    work = everything()
    before, filesystem = values(work), work.files()
    filesystem.unlink(segment_of(work, getattr(work, queue)))
    diagnosis = repaired(filesystem)
    assert [loss.text for loss in diagnosis.lost] == []
    assert values(started(filesystem, work)) == before
    assert [str(each) for each in verify(work.files(), Level.DEEP) if not each.harmless] == []


def test_the_staged_frames_of_a_prepared_transaction_are_found_again_for_all_its_queues() -> None:
    work = QueueWork()
    work.in_doubt()
    for value in (b"1", b"2"):
        work.peer.send(work.plain, value)
        work.checkpoint()
    filesystem = work.files()
    [staged] = [path for path in all_files(filesystem) if path.startswith("staged/")]
    filesystem.unlink(staged)
    diagnosis = repaired(filesystem)
    assert ([loss.text for loss in diagnosis.lost], diagnosis.rollbacks) == ([], [])
    started(filesystem, work)
    [number] = work.room.engine.transactions.prepared
    work.room.engine.transactions.commit(number, Cause.OPERATOR)
    work.room.engine.sync()
    assert work.taken(work.a) == work.taken(work.b) == [b"doubtful for all", b"doubtful for two"]
    assert work.taken(work.c) == [b"doubtful for all"]


# -- what is lost ---------------------------------------------------------------------------------


def cut(work: QueueWork, filesystem: MemoryFilesystem) -> Diagnosis:
    """Damage the record of the message that says so, and repair."""
    damaged = next(
        each
        for each in walk_journal(filesystem)
        if isinstance(each, JournalEntry)
        and isinstance(each.record, Messages)
        and b"is damaged" in bytes(each.data)
    )
    damage(filesystem, damaged.path, damaged.position + 20)
    return repaired(filesystem)


def declare(work: QueueWork) -> None:
    work.queue("new")
    work.exchange("more", ExchangeKind.DIRECT)
    work.bind("more", "key", "new")
    work.bind("topic", "z", "a")
    work.publish("key", b"lost", to=work.exchange("more", ExchangeKind.DIRECT))


def delete(work: QueueWork) -> None:
    work.peer.ask(messages.Unbind, Binding("fan", "", "a"))
    work.peer.ask(messages.DeleteQueue, "c", work.c)
    work.peer.ask(messages.DeleteExchange, "topic", exchange_of(work.topic))


def publish(work: QueueWork) -> None:
    work.publish("", b"lost", to=work.fan)
    work.publish("a", b"lost, too")


def acknowledge(work: QueueWork) -> None:
    work.taken(work.a)
    work.acknowledge(work.a, 0)


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (
            declare,
            [
                "queue 'new' (txbroker.queue.6-0): offset 0 (1 message)",
                "the declaration of queue 'new'",
                "the declaration of exchange 'more'",
                "that 2 bindings had been made: messages do not go that way",
            ],
        ),
        (
            delete,
            [
                "the deletion of queue 'c': it is there again",
                "the deletion of exchange 'topic': it is there again",
                "that 1 binding had been ended: messages go that way again",
            ],
        ),
        (
            publish,
            [
                "queue 'a' (txbroker.queue.2-0): offsets 1 to 2 (2 messages)",
                "queue 'b' (txbroker.queue.3-0): offset 1 (1 message)",
                "queue 'c' (txbroker.queue.4-0): offset 1 (1 message)",
            ],
        ),
        (
            acknowledge,
            ["acknowledgements, or attempts, of messages in queues: such messages are delivered again"],
        ),
    ],
    ids=["declare", "delete", "publish", "acknowledge"],
)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_is_lost_of_queues_is_named_by_their_names(
    does: Callable[[QueueWork], None], told: list[str], checkpoint: bool
) -> None:
    work = QueueWork()
    work.publish("", b"kept", to=work.fan)
    if checkpoint:
        work.checkpoint()
    before = values(work)
    work.peer.send(work.plain, b"is damaged")
    does(work)
    filesystem = work.files()
    lost = [loss.text for loss in cut(work, filesystem).lost]
    named = [text for text in lost if "orders" not in text and "LSN" not in text]
    assert named == told
    assert values(started(filesystem, work)) == before
    assert work.taken(work.a) == [b"kept"]
    assert [each.name for each in work.peer.ask(messages.ListQueues).queues] == ["a", "b", "c"]
    assert [str(each) for each in verify(work.files(), Level.DEEP) if not each.harmless] == []
