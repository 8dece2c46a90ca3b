"""The rows of a checkpoint's folds: each must be of the form in which its fold keeps it, whatever checksums say."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from crc32c import crc32c

from journal.errors import CorruptJournal, InvalidFrame
from journal.formats import filenames, outcome_entry
from journal.formats.checkpoint import Checkpoint, Rows, read_checkpoint, walk_sections
from journal.formats.frame import HEADER_BYTES
from journal.formats.outcome import Outcome
from journal.formats.record import Owner
from journal.interfaces import IFilesystem
from journal.log import catalog
from journal.log.starts import StartRow
from journal.transactions import outcome_archive
from journal.transactions.outcomes import MarkRow
from journal.transactions.state import TransactionRow

Count = Annotated[int, msgspec.Meta(ge=0)]
Ranges = list[tuple[str, int, int]]
"""Topic, first partition, end."""


class SequencesRow(msgspec.Struct, array_like=True, frozen=True):
    """What one producer has sent to one partition; see ``journal.folds.producers``."""

    partition: int
    next: int
    end: int
    starts: list[Count]
    bases: list[Count]


class ProducersHead(msgspec.Struct, array_like=True, frozen=True):
    """The first row of the producers."""

    next_id: int
    ranges: Ranges


class ProducerRow(msgspec.Struct, array_like=True, frozen=True):
    """A producer; ``used`` is journal time."""

    id: int
    epoch: int
    name: str
    used: int
    sequences: list[SequencesRow]
    owner: Owner


class GroupsHead(msgspec.Struct, array_like=True, frozen=True):
    """The first row of the consumer groups: that many groups follow, then what transactions hold."""

    last_generation: int
    ranges: Ranges
    groups: Count


class GroupRow(msgspec.Struct, array_like=True, frozen=True):
    """(partition, offset, metadata) and (partition, generation, member); see ``journal.folds.groups``."""

    name: str
    id: bytes
    positions: list[tuple[int, int, str]]
    claims: list[tuple[int, int, str]]


class HeldRow(msgspec.Struct, array_like=True, frozen=True):
    """The offsets of an undecided transaction: (group, id for a new one, partition, offset, generation, metadata)."""

    session: int
    serial: int
    prepared: bool
    offsets: list[tuple[str, bytes, int, int, int, str]]


class Form(NamedTuple):
    """What the next row must be. ``may_end``: there need be no more."""

    type: Any
    may_end: bool


Forms = Generator[Form, Any, None]
"""Yields the form of each row, and is sent the row."""


def _of_transactions() -> Forms:
    live = yield Form(Count, False)
    for _ in range(live):
        yield Form(TransactionRow, False)
    yield Form(MarkRow, False)
    yield from _all(Outcome)


def _of_groups() -> Forms:
    head = yield Form(GroupsHead, False)
    for _ in range(head.groups):
        yield Form(GroupRow, False)
    yield from _all(HeldRow)


def _of_starts() -> Forms:
    before = yield Form(StartRow, False)
    while True:
        start = yield Form(StartRow, True)
        if start.number <= before.number:
            raise msgspec.ValidationError(f"start {start.number} comes after start {before.number}")
        before = start


def _headed(head: Any, rows: Any) -> Callable[[], Forms]:
    def forms() -> Forms:
        yield Form(head, False)
        yield from _all(rows)

    return forms


def _all(rows: Any) -> Forms:
    while True:
        yield Form(rows, True)


FORMS: Final[dict[str, Callable[[], Forms]]] = {
    "transactions": _of_transactions,
    "catalog": _headed(catalog.HeadRow, catalog.TopicRow),
    "starts": _of_starts,
    "archive": _headed(outcome_archive.HeadRow, bytes),
    "producers": _headed(ProducersHead, ProducerRow),
    "groups": _of_groups,
    "identity": lambda: _all(str),
}


def read_sound(filesystem: IFilesystem, lsn: int, checksum: Callable[[bytes], int] = crc32c) -> Checkpoint:
    """As :func:`journal.formats.checkpoint.read_checkpoint`; raises :class:`CorruptJournal` for rows of no known form,
    too.
    """
    checkpoint = read_checkpoint(filesystem, lsn, checksum)
    if _wrong((0, Rows(*each)) for each in checkpoint.folds.items()):
        path = filenames.checkpoint_file(lsn)
        at, what = _wrong(_placed(filesystem, path)) or (0, "its rows are of no known form")
        raise CorruptJournal(f"{path} is damaged at {at}: {what}. Nothing was changed", path, at)
    return checkpoint


def _placed(filesystem: IFilesystem, path: str) -> Iterator[tuple[int, Rows]]:
    for position, section in walk_sections(filesystem, path):
        if isinstance(section, Rows):
            yield position, section


def _wrong(runs: Iterable[tuple[int, Rows]]) -> tuple[int, str] | None:
    """Position and problem of the first row that is not as it must be, of folds that are known here."""
    waiting: dict[str, tuple[Forms, Form]] = {}
    last: dict[str, tuple[int, int]] = {}
    for position, run in runs:
        if run.fold not in FORMS:
            continue
        if run.fold not in waiting:
            forms = FORMS[run.fold]()
            waiting[run.fold] = forms, next(forms)
        for row in run.rows:
            forms, form = waiting[run.fold]
            number = last[run.fold][1] + 1 if run.fold in last else 1
            last[run.fold] = position, number
            try:
                waiting[run.fold] = forms, forms.send(_read(row, form.type))
            except (msgspec.ValidationError, InvalidFrame) as error:
                return (
                    position,
                    f"row {number} of its {run.fold} is of a form that is not known here: {error}",
                )
    for fold, (position, number) in last.items():
        if not waiting[fold][1].may_end:
            return position, f"its {fold} end with row {number}, more must follow"
    return None


def _read(row: Any, kind: Any) -> Any:
    found = msgspec.convert(row, kind)
    if kind is bytes:
        outcome_entry.unpack(found[HEADER_BYTES:])
    return found
