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
    """What lies in ``partitions/`` beside and beyond what a checkpoint has."""

    def __init__(self, filesystem: IFilesystem, catalog: Catalog) -> None:
        self._filesystem = filesystem
        self._catalog = catalog
        self._found: dict[MessageStore, Strangers] = {}

    def compare(self, store: MessageStore) -> list[str]:
        """Look at the files of a log that a checkpoint has; return what should be told of them.

        Raises :class:`journal.errors.CorruptSegment`.
        """
        self._found[store] = found = store.compare()
        return [
            f"{path}: its header is damaged. Its messages can be read all the same; "
            "'txbroker repair' of the stopped broker writes it anew"
            for path in found.unmarked
        ]

    def cut(self) -> None:
        """Remove, durably, all that no checkpoint has, before the journal is replayed: a repair has kept a copy."""
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

        What a deleted topic has left is no log's: its number is below the next one. Files that are no longer than what
        was replayed are not read.
        """
        for store in self._catalog.stores.values():
            if store not in self._found:  # made above the checkpoint
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
        """Unlink the files of segments that are made again when they are flushed, but for those replay has made."""
        for store, found in self._found.items():
            made = {path for segment in store.segments for path in segment.paths} if found.late else set()
            for path in found.late:
                if path not in made:
                    self._filesystem.unlink(path)
        self._found.clear()

    def _unknown(self) -> list[tuple[int, str]]:
        """Numbers and directories of partitions that no topic has got so far."""
        root = filenames.PARTITION_DIRECTORY
        names = self._filesystem.list_directory(root)
        parsed = ((filenames.parse_partition_directory(name), f"{root}/{name}") for name in names)
        return [
            (partition.number, path)
            for partition, path in parsed
            if partition is not None and partition.number >= self._catalog.next_partition
        ]
