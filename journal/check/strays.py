"""Files that no part of the broker has made, or that nothing refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.interfaces import IFilesystem
from journal.walks.findings import Affected, Finding
from journal.walks.segment_walk import partitions

FOREIGN = "not one of the broker's files; it is left alone"


def strays(filesystem: IFilesystem, checkpoint: Checkpoint | None, created: set[int]) -> Iterator[Finding]:
    """Yield names without a meaning here. ``created`` are partitions made above the checkpoint."""
    for name in filesystem.list_directory(""):
        if not filenames.is_in_root(name):
            yield Finding(name, 0, FOREIGN, True)
    yield from _in(filesystem, filenames.JOURNAL_DIRECTORY, filenames.is_in_journal)
    yield from _in(filesystem, filenames.CHECKPOINT_DIRECTORY, _is_checkpoint)
    yield from _in(filesystem, filenames.STAGED_DIRECTORY, _is_staged)
    yield from _in(filesystem, filenames.PARTITION_DIRECTORY, filenames.parse_partition_directory)
    known = created | {store.number for store in checkpoint.stores} if checkpoint is not None else None
    for partition, path in partitions(filesystem):
        if known is not None and partition.number not in known:
            affects = Affected(partition.topic, partition.index)
            yield Finding(
                path,
                0,
                "no topic has this partition (any more); a later checkpoint removes it",
                True,
                affects,
            )
        yield from _in(filesystem, path, filenames.parse_segment_file)


def _in(filesystem: IFilesystem, directory: str, is_ours: Callable[[str], object]) -> Iterator[Finding]:
    if not filesystem.exists(directory):
        yield Finding(directory, 0, "the directory is missing; a start makes it again", True)
        return
    for name in filesystem.list_directory(directory):
        if not is_ours(name):
            yield Finding(f"{directory}/{name}", 0, FOREIGN, True)


def _is_checkpoint(name: str) -> bool:
    return filenames.parse_checkpoint_file(name) is not None or filenames.is_temporary(name)


def _is_staged(name: str) -> bool:
    return filenames.parse_staged_file(name) is not None or filenames.is_temporary(name)
