"""The check of the queues in the newest checkpoint: each has its log, and what was acknowledged of it is there.

What a queue is called, which log it has, and what of it was acknowledged are kept by three folds. If they disagree,
messages are handed out to nobody, or again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from journal.folds.group import Group, GroupRow, restored
from journal.folds.groups import GroupsFold
from journal.folds.queues import QueuesFold
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.formats.store_state import StoreState
from journal.log.catalog import topic_rows
from journal.records.queue_entries import QUEUE_GROUP, QUEUE_TOPIC_PREFIX, waiting_queue_of
from journal.walks.findings import Affected, Finding


def check_queues(checkpoint: Checkpoint, moved: Mapping[int, int] | None = None) -> Iterator[Finding]:
    """Yield how the rows of queues differ from those of topics, of logs, and of the group that acknowledges.

    ``moved`` says to which offset records above the checkpoint's LSN have moved the start of a log, by partition: the
    checkpoint may have that start already, though what was acknowledged below it is in these records alone.
    """
    rows = checkpoint.folds.get(QueuesFold.name)
    if rows is None:
        return
    fold = QueuesFold()
    fold.restore(rows)
    path = filenames.checkpoint_file(checkpoint.header.lsn)
    for what, topic in (*_of_topics(checkpoint, fold), *_of_group(checkpoint, fold, moved or {})):
        yield Finding(path, 0, what, affects=Affected(topic, 0))


def group_of_queues(checkpoint: Checkpoint) -> Group:
    """Return the group that acknowledges messages of queues as a checkpoint has it, without anything if it has none."""
    rows = checkpoint.folds.get(GroupsFold.name, [])
    row = next((each for each in rows if isinstance(each, GroupRow) and each.name == QUEUE_GROUP), None)
    return restored(row) if row is not None else Group(b"")


def _of_topics(checkpoint: Checkpoint, fold: QueuesFold) -> Iterator[tuple[str, str]]:
    numbers = {
        row.name: row.numbers for row in topic_rows(checkpoint) if row.name.startswith(QUEUE_TOPIC_PREFIX)
    }
    for queue in fold.queues.values():
        found = numbers.pop(queue.topic, None)
        if found is None:
            yield f"queue {queue.name!r} has topic {queue.topic!r}, and there is none", queue.topic
        elif found != list(queue.partitions):
            first, last = queue.partitions[0], queue.partitions[-1]
            said = f"number {first}" if first == last else f"numbers {first} to {last}"
            yield f"queue {queue.name!r} is partition {said}, its topic has {found}", queue.topic
    for exchange in fold.delayed.values():
        if waiting_queue_of(exchange.number) not in fold.queues:
            what = f"exchange {exchange.name!r} lets messages wait, and has no queue for them"
            yield what, waiting_queue_of(exchange.number)
    for topic in numbers:
        yield f"topic {topic!r} is a queue's by its name, and there is no queue for it", topic


def _of_group(
    checkpoint: Checkpoint, fold: QueuesFold, moved: Mapping[int, int]
) -> Iterator[tuple[str, str]]:
    group = group_of_queues(checkpoint)
    stores = {store.number: store for store in checkpoint.stores}
    for number in sorted(group.partitions() - fold.by_partition.keys()):
        store = stores.get(number)
        topic = store.topic if store is not None else f"partition number {number}"
        yield f"group {QUEUE_GROUP!r} has something of partition number {number}, which is no queue's", topic
    for queue in fold.queues.values():
        for priority, number in enumerate(queue.partitions):
            of = f", priority {priority}" if queue.settings.max_priority else ""
            for what in _acknowledged(number, group, stores.get(number), moved.get(number, 0)):
                yield f"queue {queue.name!r}{of}: {what}", queue.topic


def _acknowledged(number: int, group: Group, store: StoreState | None, moved: int) -> Iterator[str]:
    position, kept = group.position(number), group.settlements.get(number)
    if position is None:
        yield f"group {QUEUE_GROUP!r} has no position in it"
        return
    if store is None:
        return  # told by the check of the catalog
    end = max([position, *([kept.finished.end] if kept is not None else [])])
    if end > store.end_offset:
        yield f"messages up to offset {end - 1} are acknowledged, the log ends at {store.end_offset}"
    if position < store.start_offset and moved < store.start_offset:
        yield f"message {position} is not acknowledged, and the log starts at {store.start_offset}"
