"""The table of the named points at which a drill kills the broker: ``--at POINT``."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from journal.records import record
from journal.testing.faults import CHANGES, Operation

RECOVERY: Final = "during-recovery"
MID_APPLY: Final = "mid-apply"
DISARMED: Final = "-"
"""The argument that the broker's entry gets instead of a point."""

POWER_CUTS: Final = "--power-cuts"
"""The argument that the broker's entry gets first if its death is to be a power cut."""

POWER_CUT: Final = "power-cut"
"""What it is told to die of one at once."""


class Moment(enum.Enum):
    """The moment of a call on a file at which the process is killed."""

    BEFORE = "before"
    HALF = "half"
    """The process is killed after half of a write."""
    AFTER = "after"


@dataclass(frozen=True)
class Point:
    """A point at which the broker is killed.

    The point is reached at a call of one of ``operations`` on a file that matches ``path`` (a glob; for a rename the
    old name). With ``records``, only if the group that is being forced holds a record of one of these kinds. ``thread``
    is a part of the thread's name. ``clean_stop`` says that a stop on request reaches the point, so that a drill need
    not wait for it.
    """

    name: str
    what: str
    operations: frozenset[Operation]
    path: str = "*"
    moment: Moment = Moment.AFTER
    records: tuple[type[record.AnyRecord], ...] = ()
    thread: str = ""
    clean_stop: bool = False


_JOURNAL: Final = "journal/*.journal"
_CHECKPOINT: Final = "checkpoints/*.checkpoint.tmp"
_FORCE: Final = frozenset({Operation.FORCE})
_WRITE: Final = frozenset({Operation.WRITE})
_RENAME: Final = frozenset({Operation.RENAME})


def _around_force(name: str, kind: type[record.AnyRecord], what: str) -> tuple[Point, Point]:
    before = f"a group with {what} is written, not yet forced"
    after = f"a group with {what} is forced, its answers are not sent"
    return (
        Point(f"before-{name}-force", before, _FORCE, _JOURNAL, Moment.BEFORE, (kind,)),
        Point(f"after-{name}-force", after, _FORCE, _JOURNAL, Moment.AFTER, (kind,)),
    )


_ALL: Final = (
    Point("mid-write", "half of a journal group is written", _WRITE, _JOURNAL, Moment.HALF),
    Point("before-force", "a journal group is written, not yet forced", _FORCE, _JOURNAL, Moment.BEFORE),
    Point("after-force", "a journal group is forced, its answers are not sent", _FORCE, _JOURNAL),
    *_around_force("prepare", record.TransactionPrepared, "a PREPARE"),
    *_around_force("commit", record.TransactionCommitted, "a COMMIT"),
    *_around_force("rollback", record.TransactionRolledBack, "a ROLLBACK"),
    Point(
        MID_APPLY,
        "some slices of a large commit (over 16 MiB) are in their partitions, others are not",
        frozenset(),
    ),
    Point(
        "during-roll",
        "the next journal file has its name, its directory is not forced",
        _RENAME,
        "journal/spare.rolling",
    ),
    Point(
        "during-flush",
        "half of what goes from memory to a segment is written",
        _WRITE,
        "partitions/*.log",
        Moment.HALF,
        clean_stop=True,
    ),
    Point(
        "after-flush",
        "a segment is forced, the broker's state does not know",
        _FORCE,
        "partitions/*.log",
        clean_stop=True,
    ),
    Point(
        "during-staging",
        "half of a prepared transaction's staged file is written",
        _WRITE,
        "staged/*",
        Moment.HALF,
        clean_stop=True,
    ),
    Point(
        "during-checkpoint",
        "half of a checkpoint's section is written",
        _WRITE,
        _CHECKPOINT,
        Moment.HALF,
        clean_stop=True,
    ),
    Point(
        "before-checkpoint-rename",
        "a checkpoint is forced under its temporary name",
        _RENAME,
        _CHECKPOINT,
        Moment.BEFORE,
        clean_stop=True,
    ),
    Point(
        "after-checkpoint-rename",
        "a checkpoint has its name, its directory is not forced",
        _RENAME,
        _CHECKPOINT,
        clean_stop=True,
    ),
    Point(
        "during-clean-up",
        "one of the files that no checkpoint needs any more is gone",
        frozenset({Operation.UNLINK}),
        clean_stop=True,
    ),
    Point(RECOVERY, "the start after a kill changes the nth thing on disk", CHANGES, thread="recovery"),
)

POINTS: Final = {point.name: point for point in _ALL}
"""Every point by name."""
