"""The scan for the journal's end: which files are needed, where their records end, and whether that end is torn or
corrupt.

It only reads: a refusal leaves all evidence as it was. See ``docs/recovery.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from journal.constants import BLOCK
from journal.errors import NEXT_STEP, CorruptJournal
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint, CheckpointHeader
from journal.formats.witness import NOTHING, Witness
from journal.interfaces import IFilesystem
from journal.progress import Progress
from journal.records.journal_headers import FileHeader
from journal.vfs.file_window import window
from journal.wal.reader import FileEnd, FileReader, Group, file_start, journal_lsns
from journal.wal.writer import Journal


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A journal file after pass 1: its groups, the sound part of one that is torn at the end, and that end.

    ``end_lsn`` is where the file ends according to the next file, None for the newest.
    """

    path: str
    header: FileHeader
    groups: list[Group]
    end: FileEnd
    end_lsn: int | None

    def unproven(self, size: int) -> list[tuple[int, int]]:
        """Return (position, end) of the groups that no later force is known to cover; ``size`` is the file's."""
        proven = self.end.proven
        return [(g.position, min(g.end, size)) for g in self.groups if g.next_lsn - 1 > proven]


def scanned(reader: FileReader, end_lsn: int | None) -> ScannedFile:
    """Read all groups of a file."""
    *groups, end = reader.groups()
    return ScannedFile(reader.path, reader.header, cast(list[Group], groups), cast(FileEnd, end), end_lsn)


class JournalScan:
    """Pass 1 of a start. ``journal`` gets the groups that were found, ``notes`` get lines for people.

    ``witness`` is what is known of the journal's end outside of it.
    """

    def __init__(
        self,
        filesystem: IFilesystem,
        journal: Journal,
        witness: Witness,
        notes: list[str],
        progress: Progress,
    ) -> None:
        self._filesystem = filesystem
        self._journal = journal
        self._witness = witness
        self.notes = notes
        self._progress = progress
        self.dead: list[str] = []
        """Files below all needed ones; the older checkpoint may still need them."""

    def scan(self, checkpoint: Checkpoint | None) -> list[ScannedFile]:
        """Return all files that are needed above a checkpoint, oldest first.

        Raises :class:`CorruptJournal` for damage that no crash can have caused.
        """
        lsns = journal_lsns(self._filesystem)
        self._check_newest(lsns)
        headers = self._needed_headers(lsns, checkpoint)
        known = checkpoint.header if checkpoint is not None else None
        if own_witness(headers, known, self._witness) is not self._witness:
            self._witness = NOTHING
            self.notes.append(f"{filenames.WITNESS} is of another data directory; it is written anew")
        for header in headers:
            if says := stranger(header, known, self._witness):
                raise _another_directorys(header, says)
        scans: list[ScannedFile] = []
        for number, header in enumerate(headers):
            self._progress(f"reading journal file {number + 1} of {len(headers)}")
            following = headers[number + 1] if number + 1 < len(headers) else None
            scans.append(self._scan_file(header, following))
        last = scans[-1].end.next_lsn - 1 if scans else 0
        if checkpoint is not None and last < checkpoint.header.lsn:
            path = scans[-1].path if scans else filenames.JOURNAL_DIRECTORY
            raise CorruptJournal(
                f"the journal ends at LSN {last} in {path}, but the checkpoint says that it was forced to "
                f"{checkpoint.header.lsn}: records are missing. Nothing was changed. Restore them from a copy. "
                f"{NEXT_STEP}",
                path,
                scans[-1].end.position if scans else 0,
            )
        return scans

    def _check_newest(self, lsns: list[int]) -> None:
        """Check the witness: nothing in the journal would show that its newest file had ever existed."""
        newest = self._witness.newest
        if lsns and newest > lsns[-1]:
            path = filenames.journal_file(newest)
            raise CorruptJournal(
                f"{path} is missing, though {filenames.WITNESS} says that it was there and that all up to LSN "
                f"{self._witness.forced} had been forced: acknowledged messages and decisions from LSN {newest} on "
                f"would be lost. Nothing was changed. Restore the file from a copy. {NEXT_STEP}",
                path,
            )

    def _read_header(self, lsn: int) -> FileHeader:
        path = filenames.journal_file(lsn)
        header, damaged, _ = file_start(self._filesystem, path)
        if header.first_lsn != lsn:
            raise CorruptJournal(
                f"{path} says that its first LSN is {header.first_lsn}: it is another file under this name, and the "
                f"records from LSN {lsn} on are not in it. Nothing was changed. Give the files their names back, or "
                f"restore them from a copy. {NEXT_STEP}",
                path,
            )
        for number in damaged:
            self.notes.append(
                f"{path}: copy {number} of its header, at {number * BLOCK}, is damaged; the other one is used"
            )
        return header

    def _needed_headers(self, lsns: list[int], checkpoint: Checkpoint | None) -> list[FileHeader]:
        """Return the headers of files with records that may be needed, oldest first; read from the newest backwards.

        Files before them may exist or not, in any order: a power cut may have undone some of their removals.
        """
        if not lsns and (
            checkpoint is not None
            or self._witness.newest
            or self._filesystem.list_directory(filenames.PARTITION_DIRECTORY)
        ):
            raise CorruptJournal(
                f"there is no journal file in {filenames.JOURNAL_DIRECTORY}/, but there are a witness, partitions or "
                f"checkpoints: the journal is missing. Nothing was changed. Restore its files from a copy. {NEXT_STEP}",
                filenames.JOURNAL_DIRECTORY,
            )
        needed = 1 if checkpoint is None else checkpoint.header.needed_from
        headers: list[FileHeader] = []
        for number, lsn in reversed(list(enumerate(lsns))):
            header = self._read_header(lsn)
            headers.insert(0, header)
            if header.previous_end <= needed:
                self.dead = [filenames.journal_file(dead) for dead in lsns[:number]]
                return headers
        if headers and self._witness.checkpoint > (checkpoint.header.lsn if checkpoint is not None else 0):
            raise self._checkpoint_missing(headers[0], needed)
        if headers:
            raise _missing_before(headers[0], f"records from LSN {needed} on are needed")
        return []

    def _checkpoint_missing(self, oldest: FileHeader, needed: int) -> CorruptJournal:
        """Return the error for a missing checkpoint: all that the journal lacks is in that checkpoint."""
        path = filenames.checkpoint_file(self._witness.checkpoint)
        return CorruptJournal(
            f"{path} is missing or damaged, though {filenames.WITNESS} says that it was there. Without it records from "
            f"LSN {needed} on are needed, and the journal begins at LSN {oldest.first_lsn}: acknowledged messages and "
            f"decisions would be lost. Nothing was changed. Restore the checkpoint from a copy. {NEXT_STEP}",
            path,
        )

    def _scan_file(self, header: FileHeader, following: FileHeader | None) -> ScannedFile:
        path = filenames.journal_file(header.first_lsn)
        if following is not None and following.previous_first != header.first_lsn:
            raise _missing_before(following, f"its records up to LSN {following.previous_end - 1} are needed")
        end_lsn = None if following is None else following.previous_end
        with window(self._filesystem, path) as bytes_of:
            scan = scanned(FileReader(bytes_of, path, header, end_lsn), end_lsn)
        end, size = scan.end, bytes_of.size
        self._journal.adopt(header, path, [(group.header.first_lsn, group.position) for group in scan.groups])
        if proof := self._proof_of_damage(scan, size):
            raise CorruptJournal(
                f"{path} is damaged at {end.position}: {end.problem}, and {proof}. What follows LSN {end.next_lsn - 1} "
                "in this file cannot be trusted: acknowledged messages may be lost. Nothing was changed. Restore this "
                f"file from a copy. {NEXT_STEP}",
                path,
                end.position,
            )
        if end.is_torn and end_lsn is None:
            self.notes.append(f"{path} was torn at {end.position} ({end.problem}): never acknowledged")
        elif size < header.size:
            self.notes.append(
                f"{path} has {size} bytes, {header.size} when it was begun; all its records are there"
            )
        return scan

    def _proof_of_damage(self, scan: ScannedFile, size: int) -> str:
        """Return the proof that the scan ended before the file's records do; "" if there is none."""
        end = scan.end
        if end.proof or scan.end_lsn is not None:
            return end.proof
        if end.next_lsn <= self._witness.forced:
            return f"{filenames.WITNESS} says that all up to LSN {self._witness.forced} had been forced"
        if size < scan.header.size:
            return f"the file has {size} bytes of the {scan.header.size} with which it was begun"
        return "no crash damages a group's header, which lies in one sector" if end.header_is_damaged else ""


def stranger(header: FileHeader, checkpoint: CheckpointHeader | None, witness: Witness) -> str:
    """Return the path of the file which proves that a journal file is of another data directory; "" if none does.

    LSNs and start numbers begin alike everywhere. Salts are random: each start has its own.
    """
    if checkpoint is not None and (header.start, checkpoint.salt) == (checkpoint.start, header.salt):
        return ""
    if checkpoint is not None and header.start == checkpoint.start:
        return filenames.checkpoint_file(checkpoint.lsn)
    return filenames.WITNESS if header.first_lsn == witness.newest and header.salt != witness.salt else ""


def own_witness(
    headers: Sequence[FileHeader], checkpoint: CheckpointHeader | None, witness: Witness
) -> Witness:
    """Return the witness, or one without contents if it contradicts a file that the checkpoint knows."""
    for header in headers:
        if (
            checkpoint is not None
            and (header.start, header.salt) == (checkpoint.start, checkpoint.salt)
            and header.first_lsn == witness.newest
            and header.salt != witness.salt
        ):
            return NOTHING
    return witness


def _another_directorys(header: FileHeader, says: str) -> CorruptJournal:
    path = filenames.journal_file(header.first_lsn)
    return CorruptJournal(
        f"{path} is of another data directory than {says}: its salt is {header.salt:#010x}, another one is known for "
        "it there. Its records do not belong to what is here, and those that do are missing. Nothing was changed. Put "
        f"the files of one directory together, from one copy. {NEXT_STEP}",
        path,
    )


def _missing_before(following: FileHeader, why: str) -> CorruptJournal:
    path = filenames.journal_file(following.previous_first)
    return CorruptJournal(
        f"{path} is missing: {filenames.journal_file(following.first_lsn)} follows it, and {why}. Acknowledged "
        f"messages and decisions would be lost. Nothing was changed. Restore it from a copy. {NEXT_STEP}",
        path,
    )
