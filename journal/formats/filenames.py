"""Every file name of a data directory, both ways: nothing else makes or takes apart one.

::

    lock                                            held while the directory is open
    ballast                                         space given up so that recovery can finish on a full disk
    witness                                         how far the journal was forced, said outside of it
    journal/<first LSN>.journal
    journal/spare.next                              zero-filled and forced, ready to become a journal file
    journal/spare.filling                           a spare that is still being filled
    journal/spare.rolling                           the next journal file until its header has been forced
    journal/<first LSN>.recycled                    a dead journal file, to be the spare in its turn
    checkpoints/<LSN>.checkpoint                    with .tmp behind while it is being written
    staged/<session>-<serial>.staged                likewise
    partitions/<topic>-<index>.<number>/<base offset>.log, .index, .time
    repairs.json                                    what repairs have done here, oldest first
    repair.plan                                     a repair that has been decided and is being carried out
    repair.new/<number>                             files that it will put in place
    evidence-<when>/<path>                          what a repair has replaced or cut off, as it was

LSNs and offsets have 32 digits, so that names sort as their numbers do. What makes a name returns a path
relative to the data directory. What parses takes a bare name, as ``list_directory`` gives it, and returns
None for a name that this module would not have made, so a foreign file is never taken for one of ours.
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
JOURNAL_DIRECTORY = "journal"
CHECKPOINT_DIRECTORY = "checkpoints"
STAGED_DIRECTORY = "staged"
PARTITION_DIRECTORY = "partitions"
DIRECTORIES = (JOURNAL_DIRECTORY, CHECKPOINT_DIRECTORY, STAGED_DIRECTORY, PARTITION_DIRECTORY)
"""What a new data directory needs inside it."""

REPAIRS = "repairs.json"
REPAIR_PLAN = "repair.plan"
REPAIR_DIRECTORY = "repair.new"
EVIDENCE = "evidence"
"""What the names of the side folders begin with."""
REPAIR_FILES = (REPAIR_PLAN, REPAIR_PLAN + ".tmp", REPAIRS + ".tmp", REPAIR_DIRECTORY)
"""What a repair leaves only while it is at work."""

RESERVED_PREFIX = "txbroker."
"""Topics whose names begin so are the engine's own."""

IN_ROOT = frozenset((LOCK, BALLAST, WITNESS, REPAIRS, *REPAIR_FILES, *DIRECTORIES))
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
_segment = re.compile(_POSITION + r"\.(log|index|time)")


class SegmentKind(Enum):
    """What a file of a partition holds; the value is the extension."""

    LOG = "log"
    INDEX = "index"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class StagedName:
    """The transaction whose frames a staged file holds."""

    session: int
    serial: int


@dataclass(frozen=True, slots=True)
class PartitionName:
    """What a partition's directory is called after. ``number`` is never reused, the rest may be."""

    topic: str
    index: int
    number: int


@dataclass(frozen=True, slots=True)
class SegmentName:
    """One file of a partition."""

    base_offset: int
    kind: SegmentKind


def check_topic_name(name: str) -> None:
    """Raise :class:`InvalidName` unless ``name`` is 1 to 200 of ``A-Z a-z 0-9 . _ -``, and not a path."""
    if name in (".", "..") or not _topic.fullmatch(name):
        shown = repr(name if len(name) <= MAX_TOPIC_NAME else name[:40] + "...")
        raise InvalidName(
            f"{shown} ({len(name)} characters) cannot be a topic's name; nothing was made or changed. Use 1 "
            f"to {MAX_TOPIC_NAME} of the characters A-Z a-z 0-9 . _ - (and neither '.' nor '..')"
        )


def is_internal(topic: str) -> bool:
    """Whether a topic is the engine's own: nobody else makes it, fills it or deletes it."""
    return topic.startswith(RESERVED_PREFIX)


def journal_file(first_lsn: int) -> str:
    """The path of the journal file whose first record has that LSN."""
    return f"{JOURNAL_DIRECTORY}/{_position(first_lsn)}.journal"


def parse_journal_file(name: str) -> int | None:
    """The first LSN of a journal file; None for spares and foreign names."""
    match = _journal.fullmatch(name)
    return int(match[1]) if match else None


def recycled_file(first_lsn: int) -> str:
    """The path of a dead journal file, whose first LSN was that, while it waits to be the spare."""
    return f"{JOURNAL_DIRECTORY}/{_position(first_lsn)}.recycled"


def parse_recycled_file(name: str) -> int | None:
    """The first LSN that a recycled file had; None for foreign names."""
    match = _recycled.fullmatch(name)
    return int(match[1]) if match else None


def checkpoint_file(lsn: int) -> str:
    """The path of the checkpoint taken at that LSN."""
    return f"{CHECKPOINT_DIRECTORY}/{_position(lsn)}.checkpoint"


def parse_checkpoint_file(name: str) -> int | None:
    """The LSN of a finished checkpoint; None for temporary and foreign names."""
    match = _checkpoint.fullmatch(name)
    return int(match[1]) if match else None


def staged_file(session: int, serial: int) -> str:
    """The path of the staged frames of the transaction with that number."""
    return f"{STAGED_DIRECTORY}/{_number(session)}-{_number(serial)}.staged"


def parse_staged_file(name: str) -> StagedName | None:
    """The transaction of a finished staged file; None for temporary and foreign names."""
    match = _staged.fullmatch(name)
    return StagedName(int(match[1]), int(match[2])) if match else None


def temporary(path: str) -> str:
    """The name under which a checkpoint or staged file is written before it is renamed to ``path``."""
    return path + TEMPORARY


def is_temporary(name: str) -> bool:
    """Whether a name is an unfinished checkpoint or staged file, which recovery may remove."""
    finished = name.removesuffix(TEMPORARY)
    return finished != name and bool(_checkpoint.fullmatch(finished) or _staged.fullmatch(finished))


def partition_directory(topic: str, index: int, number: int) -> str:
    """The path of a partition's directory. Raises :class:`InvalidName` for a topic that cannot be."""
    check_topic_name(topic)
    return f"{PARTITION_DIRECTORY}/{topic}-{_number(index)}.{_number(number)}"


def parse_partition_directory(name: str) -> PartitionName | None:
    """What a partition's directory is called after; None for foreign names."""
    match = _partition.fullmatch(name)
    if match is None or match[1] in (".", ".."):
        return None
    return PartitionName(match[1], int(match[2]), int(match[3]))


def segment_file(directory: str, base_offset: int, kind: SegmentKind) -> str:
    """The path of one file of a partition; ``directory`` is what :func:`partition_directory` gave."""
    return f"{directory}/{_position(base_offset)}.{kind.value}"


def parse_segment_file(name: str) -> SegmentName | None:
    """The base offset and kind of a partition's file; None for foreign names."""
    match = _segment.fullmatch(name)
    return SegmentName(int(match[1]), SegmentKind(match[2])) if match else None


def evidence_directory(when: str, number: int) -> str:
    """The directory for what a repair replaces; ``when`` is as in ``20260101T120000Z``, ``number`` counts from 0."""
    return f"{EVIDENCE}-{when}" + (f"-{number}" if number else "")


def is_evidence(name: str) -> bool:
    """Whether a name is that of a repair's side folder."""
    return bool(_evidence.fullmatch(name))


def is_in_root(name: str) -> bool:
    """Whether a name in the data directory itself is one of ours."""
    return name in IN_ROOT or is_evidence(name)


def is_in_journal(name: str) -> bool:
    """Whether a name in the journal's directory is one of ours: a journal file, a recycled one or a spare."""
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
