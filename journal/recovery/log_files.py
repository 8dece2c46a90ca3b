"""The files of logs at a start: compared with the checkpoint, proven by the journal, or cut after a repair."""

from __future__ import annotations

from journal.formats import filenames
from journal.interfaces import IFilesystem
from journal.log.catalog import Catalog
from journal.log.message_store import MessageStore
from journal.log.proof import files_beyond, unproven
from journal.log.segment_list import Strangers
from journal.vfs.file_window import file_size


class LogFiles:
    """The files in ``partitions/`` beside and beyond those of a checkpoint."""

    def __init__(self, filesystem: IFilesystem, catalog: Catalog) -> None:
        self._filesystem = filesystem
        self._catalog = catalog
        self._found: dict[MessageStore, Strangers] = {}

    def compare(self, store: MessageStore) -> list[str]:
        """Compare the files of a log with the checkpoint; return lines to report.

        Raises :class:`journal.errors.CorruptSegment`.
        """
        self._found[store] = found = store.compare()
        return [
            f"{path}: its header is damaged. Its messages can be read all the same; "
            "'txbroker repair' of the stopped broker writes it anew"
            for path in found.unmarked
        ]

    def cut(self) -> None:
        """Remove, durably, all bytes that no checkpoint has, before the journal is replayed: a repair has kept
        a copy.
        """
        filesystem = self._filesystem
        for store, found in self._found.items():
            for beyond in found.beyond:
                if not beyond.is_whole:
                    file = filesystem.open(beyond.segment.path)
                    try:
                        file.truncate(beyond.position)
                        file.force()
                    finally:
                        file.close()
            for path in found.late:
                filesystem.unlink(path)
            if found.late:
                filesystem.force_directory(store.directory)
        for _, directory in self._unknown():
            for name in filesystem.list_directory(directory):
                filesystem.unlink(f"{directory}/{name}")
            filesystem.remove_directory(directory)
        filesystem.force_directory(filenames.PARTITION_DIRECTORY)
        self._found.clear()

    def check(self) -> None:
        """Raise :class:`journal.errors.UnprovenLog` for sound messages behind a log's end; after the replay.

        Files of a deleted topic belong to no log: its number is below the next one. Files that are no longer than the
        replayed log are not read.
        """
        for store in self._catalog.stores.values():
            if store not in self._found:  # it was made above the checkpoint
                self.compare(store)
            for beyond in self._found[store].beyond:
                path, base = beyond.segment.path, beyond.segment.base_offset
                if file_size(self._filesystem, path) <= store.proven_size(base):
                    continue
                if found := unproven(self._filesystem, beyond, store.end_offset):
                    raise found.refusal(store.end_offset)
        for number, directory in self._unknown():
            for beyond in files_beyond(number, directory, self._filesystem.list_directory(directory), ()):
                if found := unproven(self._filesystem, beyond, 0):
                    raise found.refusal(0)

    def drop_late(self) -> None:
        """Unlink the files of segments that are made again when they are flushed, except those that replay has made."""
        for store, found in self._found.items():
            made = {path for segment in store.segments for path in segment.paths} if found.late else set()
            for path in found.late:
                if path not in made:
                    self._filesystem.unlink(path)
        self._found.clear()

    def _unknown(self) -> list[tuple[int, str]]:
        """Return numbers and directories of partitions that belong to no topic so far."""
        root = filenames.PARTITION_DIRECTORY
        names = self._filesystem.list_directory(root)
        parsed = ((filenames.parse_partition_directory(name), f"{root}/{name}") for name in names)
        return [
            (partition.number, path)
            for partition, path in parsed
            if partition is not None and partition.number >= self._catalog.next_partition
        ]
