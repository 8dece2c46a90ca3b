"""The check of checkpoints: their statements against each other, and the staged frames that they refer to."""

from __future__ import annotations

from collections.abc import Iterator

from journal.errors import InvalidFrame
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.formats.staged_header import STAGED_HEADER_BYTES, StagedHeader, staged_fault
from journal.interfaces import IFilesystem
from journal.log.catalog import head_of_catalog, topic_rows
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.transactions.outcome_archive import head_of
from journal.transactions.state import TransactionRow
from journal.transactions.table import live_rows
from journal.vfs.file_window import file_size, read_some
from journal.walks.findings import Affected, Finding, second_crc32c, unreadable
from journal.walks.frame_walk import messages_of
from journal.walks.segment_walk import partitions
from journal.words import count_text


def check_catalog(filesystem: IFilesystem, checkpoint: Checkpoint) -> Iterator[Finding]:
    """Check whether its topics, its partitions and the partitions' directories agree."""
    path = filenames.checkpoint_file(checkpoint.header.lsn)
    following = head_of_catalog(checkpoint).next_partition
    topics = topic_rows(checkpoint)
    wanted = {number: (topic.name, index) for topic in topics for index, number in enumerate(topic.numbers)}
    stored = {store.number: (store.topic, store.index) for store in checkpoint.stores}
    for number in sorted(wanted.keys() ^ stored.keys()):
        name, index = wanted.get(number) or stored[number]
        where = "its topic has it, it has no log" if number in wanted else "it has a log, no topic has it"
        yield Finding(path, 0, f"partition number {number}: {where}", affects=Affected(name, index))
    for number in sorted(
        number for number in wanted.keys() & stored.keys() if wanted[number] != stored[number]
    ):
        problem = (
            f"partition number {number} is {wanted[number]} by its topic and {stored[number]} by its log"
        )
        yield Finding(path, 0, problem, affects=Affected(*wanted[number]))
    beyond = [number for number in wanted if number >= following]
    if beyond:
        yield Finding(path, 0, f"partition {max(beyond)} is there, the next one would get number {following}")
    for row in topics:
        for store in checkpoint.stores:
            if (
                store.topic == row.name and store.settings != row.settings
            ):  # the settings that a start uses; those that the log has
                problem = f"settings {store.settings}, its topic has {row.settings}"
                yield Finding(path, 0, problem, affects=Affected(row.name, store.index))
    header, rows_live = checkpoint.header, live_rows(checkpoint)
    firsts = [row.entries[row.file_entries].lsn for row in rows_live if row.file_entries < len(row.entries)]
    if header.needed_from > (first := min([header.lsn + 1, *firsts])):
        yield Finding(
            path, 0, f"it says that records are needed from LSN {header.needed_from} on, it needs LSN {first}"
        )
    starts = [row.number for row in checkpoint.folds.get("starts", [])]
    if starts and starts[-1] != header.start:
        yield Finding(path, 0, f"it was written by start {header.start}, the last it knows is {starts[-1]}")
    if problem := check_head(checkpoint):
        yield Finding(path, 0, problem, affects=Affected(OUTCOMES_TOPIC, 0))
    held = {name.number: (name.topic, name.index) for name, _ in partitions(filesystem)}
    for number in sorted(number for number in held.keys() & stored.keys() if held[number] != stored[number]):
        problem = f"partition number {number} is {stored[number]} by the checkpoint and {held[number]} by its directory"
        yield Finding(path, 0, problem, affects=Affected(*stored[number]))


def check_staged(filesystem: IFilesystem, row: TransactionRow) -> tuple[int, Finding | None]:
    """Check the staged file of an undecided transaction against the checkpoint; return the bytes read and the
    finding.
    """
    if not row.file_entries:
        return 0, None
    path = filenames.staged_file(row.number.session, row.number.serial)
    affects = Affected(transaction=row.number, xid=row.xid)
    if not filesystem.exists(path):
        return 0, Finding(path, 0, f"the file is missing: {CANNOT_COMMIT}", affects=affects)
    try:
        return _check_frames(filesystem, path, row, affects)
    except OSError as error:
        return 0, unreadable(path, error, affects)


def _check_frames(
    filesystem: IFilesystem, path: str, row: TransactionRow, affects: Affected
) -> tuple[int, Finding | None]:
    checksum, size = 0, file_size(filesystem, path)
    first_bytes = read_some(filesystem, path, 0, STAGED_HEADER_BYTES)
    fault = staged_fault(first_bytes, StagedHeader(row.number, row.salt), second_crc32c)
    if fault is not None and fault.foreign:
        return size, Finding(path, 0, f"{fault.what}: {CANNOT_COMMIT}", affects=affects)
    for entry in row.entries[: row.file_entries]:
        data = read_some(filesystem, path, entry.position, entry.size)
        checksum = second_crc32c(data, checksum)
        try:
            sound = checksum == entry.checksum and messages_of(data, None) == entry.count
        except InvalidFrame:
            sound = False
        if not sound:
            staged = count_text(entry.count, "message")
            problem = f"the {entry.size} bytes are not the {staged} staged there: {CANNOT_COMMIT}"
            return size, Finding(path, entry.position, problem, affects=affects)
    if row.file_entries == len(row.entries) and checksum != row.totals.checksum:
        problem = f"what is staged is not what was sent ({row.totals}): {CANNOT_COMMIT}"
        return size, Finding(path, 0, problem, affects=affects)
    if fault is not None:
        return size, Finding(path, 0, f"{fault.what}; its frames are sound", affects=affects)
    return size, None


def check_head(checkpoint: Checkpoint) -> str:
    """Return what is wrong with a checkpoint's state of the outcome archive; empty if nothing."""
    head, frames = head_of(checkpoint)
    logs = [store for store in checkpoint.stores if store.topic == OUTCOMES_TOPIC]
    end = logs[0].end_offset if logs else 0
    if not logs and (head.on or frames):
        return "outcomes are archived, and there is no log for them"
    if head.on and head.next_offset != end + len(frames):
        return (
            f"{head.next_offset} outcomes have places in the archive, its log has {end}, {len(frames)} wait"
        )
    return ""


CANNOT_COMMIT = "the transaction cannot be committed as it was prepared, only rolled back"
