"""All file names of a data directory: only this module makes or parses them.

::

    lock                                            held while the directory is open
    ballast                                         space given up so that recovery can finish on a full disk
    txbroker.version                                the format's number, and which version of the program started here
        witness                                         how far the journal was forced, recorded outside of it
    journal/<first LSN>.journal
    journal/spare.next                              zero-filled and forced, ready to become a journal file
    journal/spare.filling                           a spare that is still being filled
    journal/spare.rolling                           the next journal file until its header has been forced
        journal/<first LSN>.recycled                    a dead journal file that waits to become the spare
    checkpoints/<LSN>.checkpoint                    with .tmp behind while it is being written
    staged/<session>-<serial>.staged                likewise
    partitions/<topic>-<index>.<number>/<base offset>.log, .index, .time, .keys
    transient/<number>/<base offset>.log, ...       messages of transient queues for which memory was short
    admin.sock                                      where its owner may do everything, while a broker runs
    repairs.json                                    what repairs have done here, oldest first
    repair.plan                                     a repair that has been decided and is being carried out
    repair.new/<number>                             files that it will put in place
    evidence-<when>/<path>                          what a repair has replaced or cut off, as it was
    restore.unfinished                              there while a backup is being restored to the directory

LSNs and offsets have 32 digits, so that names sort as their numbers do. Functions that make a name return a path
relative to the data directory. Functions that parse take a bare name, as ``list_directory`` returns it, and return None
for a name that this module would not have made, so a foreign file is never taken for a file of txbroker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from journal.constants import MAX_TOPIC_NAME
from journal.errors import InvalidName

LOCK = "lock"
BALLAST = "ballast"
WITNESS = "witness"
VERSION = "txbroker.version"
ADMIN_SOCKET = "admin.sock"
JOURNAL_DIRECTORY = "journal"
CHECKPOINT_DIRECTORY = "checkpoints"
STAGED_DIRECTORY = "staged"
PARTITION_DIRECTORY = "partitions"
TRANSIENT_DIRECTORY = "transient"
"""There once memory was short. Nothing there is forced, and no start reads it."""
DIRECTORIES = (JOURNAL_DIRECTORY, CHECKPOINT_DIRECTORY, STAGED_DIRECTORY, PARTITION_DIRECTORY)
"""The directories that a new data directory needs."""

REPAIRS = "repairs.json"
REPAIR_PLAN = "repair.plan"
REPAIR_DIRECTORY = "repair.new"
EVIDENCE = "evidence"
"""The beginning of the side folders' names."""
REPAIR_FILES = (REPAIR_PLAN, REPAIR_PLAN + ".tmp", REPAIRS + ".tmp", REPAIR_DIRECTORY)
"""Files that a repair leaves only while it runs."""

RESTORE = "restore.unfinished"
"""There while a backup is being restored to the directory."""

RESERVED_PREFIX = "txbroker."
"""The beginning of the names of the engine's own topics."""

IN_ROOT = frozenset(
    (
        LOCK,
        BALLAST,
        WITNESS,
        VERSION,
        ADMIN_SOCKET,
        REPAIRS,
        RESTORE,
        *REPAIR_FILES,
        *DIRECTORIES,
        TRANSIENT_DIRECTORY,
    )
)
"""All fixed names in the data directory itself."""

SPARE_NEXT = f"{JOURNAL_DIRECTORY}/spare.next"
SPARE_FILLING = f"{JOURNAL_DIRECTORY}/spare.filling"
SPARE_ROLLING = f"{JOURNAL_DIRECTORY}/spare.rolling"

DIGITS = 32
TEMPORARY = ".tmp"

_NUMBER = "(0|[1-9][0-9]*)"
_POSITION = f"([0-9]{{{DIGITS}}})"
_TOPIC = f"[A-Za-z0-9._-]{{1,{MAX_TOPIC_NAME}}}"
_topic = re.compile(_TOPIC)
_journal = re.compile(_POSITION + r"\.journal")
_recycled = re.compile(_POSITION + r"\.recycled")
_checkpoint = re.compile(_POSITION + r"\.checkpoint")
_staged = re.compile(_NUMBER + "-" + _NUMBER + r"\.staged")
_partition = re.compile(f"({_TOPIC})-{_NUMBER}" + r"\." + _NUMBER)
_evidence = re.compile(EVIDENCE + r"-[0-9]{8}T[0-9]{6}Z(-[0-9]+)?")
_segment = re.compile(_POSITION + r"(?:-([1-9][0-9]*))?\.(log|index|time|keys)")


class SegmentKind(Enum):
    """The contents of a partition's file; the value is the extension."""

    LOG = "log"
    INDEX = "index"
    TIME = "time"
    KEYS = "keys"


@dataclass(frozen=True, slots=True)
class StagedName:
    """The transaction whose frames a staged file holds."""

    session: int
    serial: int


@dataclass(frozen=True, slots=True)
class PartitionName:
    """The parts of a partition directory's name. ``number`` is never reused, the others may be."""

    topic: str
    index: int
    number: int


@dataclass(frozen=True, slots=True)
class SegmentName:
    """The parts of a segment file's name. ``epoch`` counts the compactions that made it, 0 for none."""

    base_offset: int
    kind: SegmentKind
    epoch: int = 0


def check_topic_name(name: str) -> None:
    """Raise :class:`InvalidName` unless ``name`` is 1 to 200 of ``A-Z a-z 0-9 . _ -``, and neither ``.`` nor ``..``."""
    if name in (".", "..") or not _topic.fullmatch(name):
        shown = repr(name if len(name) <= MAX_TOPIC_NAME else name[:40] + "...")
        raise InvalidName(
            f"{shown} ({len(name)} characters) cannot be a topic's name; nothing was made or changed. Use 1 "
            f"to {MAX_TOPIC_NAME} of the characters A-Z a-z 0-9 . _ - (and neither '.' nor '..')"
        )


def is_internal(topic: str) -> bool:
    """Return whether a topic is the engine's own: no client may make it, fill it or delete it."""
    return topic.startswith(RESERVED_PREFIX)


def journal_file(first_lsn: int) -> str:
    """Return the path of the journal file whose first record has that LSN."""
    return f"{JOURNAL_DIRECTORY}/{_position(first_lsn)}.journal"


def parse_journal_file(name: str) -> int | None:
    """Return the first LSN of a journal file; None for spares and foreign names."""
    match = _journal.fullmatch(name)
    return int(match[1]) if match else None


def recycled_file(first_lsn: int) -> str:
    """Return the path of a dead journal file that waits to become the spare; its first LSN was ``first_lsn``."""
    return f"{JOURNAL_DIRECTORY}/{_position(first_lsn)}.recycled"


def parse_recycled_file(name: str) -> int | None:
    """Return the first LSN that a recycled file had; None for foreign names."""
    match = _recycled.fullmatch(name)
    return int(match[1]) if match else None


def checkpoint_file(lsn: int) -> str:
    """Return the path of the checkpoint taken at that LSN."""
    return f"{CHECKPOINT_DIRECTORY}/{_position(lsn)}.checkpoint"


def parse_checkpoint_file(name: str) -> int | None:
    """Return the LSN of a finished checkpoint; None for temporary and foreign names."""
    match = _checkpoint.fullmatch(name)
    return int(match[1]) if match else None


def staged_file(session: int, serial: int) -> str:
    """Return the path of the staged frames of the transaction with that number."""
    return f"{STAGED_DIRECTORY}/{_number(session)}-{_number(serial)}.staged"


def parse_staged_file(name: str) -> StagedName | None:
    """Return the transaction of a finished staged file; None for temporary and foreign names."""
    match = _staged.fullmatch(name)
    return StagedName(int(match[1]), int(match[2])) if match else None


def temporary(path: str) -> str:
    """Return the name under which a checkpoint or staged file is written before it is renamed to ``path``."""
    return path + TEMPORARY


def is_temporary(name: str) -> bool:
    """Return whether a name is an unfinished checkpoint or staged file, which recovery may remove."""
    finished = name.removesuffix(TEMPORARY)
    return finished != name and bool(_checkpoint.fullmatch(finished) or _staged.fullmatch(finished))


def partition_directory(topic: str, index: int, number: int) -> str:
    """Return the path of a partition's directory. Raises :class:`InvalidName` for an impossible topic name."""
    check_topic_name(topic)
    return f"{PARTITION_DIRECTORY}/{topic}-{_number(index)}.{_number(number)}"


def transient_directory(number: int) -> str:
    """Return the path of the directory of a transient queue's log."""
    return f"{TRANSIENT_DIRECTORY}/{_number(number)}"


def parse_partition_directory(name: str) -> PartitionName | None:
    """Return the parts of a partition directory's name; None for foreign names."""
    match = _partition.fullmatch(name)
    if match is None or match[1] in (".", ".."):
        return None
    return PartitionName(match[1], int(match[2]), int(match[3]))


def segment_file(directory: str, base_offset: int, kind: SegmentKind, epoch: int = 0) -> str:
    """Return the path of one file of a partition; ``directory`` is a result of :func:`partition_directory`."""
    name = f"{_position(base_offset)}-{epoch}" if epoch else _position(base_offset)
    return f"{directory}/{name}.{kind.value}"


def parse_segment_file(name: str) -> SegmentName | None:
    """Return the parts of the name of a partition's file; None for foreign names."""
    match = _segment.fullmatch(name)
    return SegmentName(int(match[1]), SegmentKind(match[3]), int(match[2] or 0)) if match else None


def evidence_directory(when: str, number: int) -> str:
    """Return the directory for files that a repair replaces; ``when`` is like ``20260101T120000Z``, ``number``
    from 0.
    """
    return f"{EVIDENCE}-{when}" + (f"-{number}" if number else "")


def is_evidence(name: str) -> bool:
    """Return whether a name is that of a repair's side folder."""
    return bool(_evidence.fullmatch(name))


def is_in_root(name: str) -> bool:
    """Return whether a name in the data directory itself is one of txbroker's."""
    return name in IN_ROOT or is_evidence(name)


def is_in_journal(name: str) -> bool:
    """Return whether a name in the journal's directory is a journal file, a recycled one or a spare."""
    return (
        parse_journal_file(name) is not None
        or parse_recycled_file(name) is not None
        or f"{JOURNAL_DIRECTORY}/{name}" in (SPARE_NEXT, SPARE_FILLING, SPARE_ROLLING)
    )


def _position(value: int) -> str:
    digits = f"{_number(value):0>{DIGITS}}"
    if len(digits) > DIGITS:
        raise ValueError(f"{value} has more than {DIGITS} digits")
    return digits


def _number(value: int) -> str:
    if value < 0:
        raise ValueError(f"{value} is negative, a file name holds only numbers from 0 on")
    return str(value)
