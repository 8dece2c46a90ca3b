"""The check of a checkpoint's rows: each must have the form in which its fold keeps it, even if all checksums agree."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from crc32c import crc32c

from journal.errors import CorruptJournal, InvalidFrame
from journal.folds.table import FOLDS
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint, Rows, read_checkpoint, walk_sections
from journal.formats.checkpoint_rows import RowReader, RowsEnded
from journal.interfaces import IFilesystem


def read_sound(filesystem: IFilesystem, lsn: int, checksum: Callable[[bytes], int] = crc32c) -> Checkpoint:
    """Read a checkpoint as :func:`journal.formats.checkpoint.read_checkpoint`, with rows as the types of their folds.

    Raises :class:`CorruptJournal` for rows of no known form, too.
    """
    checkpoint = read_checkpoint(filesystem, lsn, checksum)
    for name in checkpoint.folds.keys() & FOLDS.keys():
        reader = RowReader(checkpoint.folds[name])
        try:
            FOLDS[name].read(reader)
        except (msgspec.ValidationError, InvalidFrame) as error:
            number = len(reader.typed) + 1
            what = f"row {number} of its {name} is of a form that is not known here: {error}"
        except RowsEnded:
            number = len(reader.typed)
            what = f"its {name} end with row {number}, more must follow"
        else:
            checkpoint.folds[name] = reader.typed
            continue
        path = filenames.checkpoint_file(lsn)
        at = _position(filesystem, path, name, number)
        raise CorruptJournal(f"{path} is damaged at {at}: {what}. Nothing was changed", path, at)
    return checkpoint


def typed_rows(fold: str, rows: list[Any]) -> list[Any]:
    """Return rows as the types that their fold gives them, as far as they are of these; the others as they are."""
    reader = RowReader(rows)
    if fold in FOLDS:
        with suppress(
            msgspec.ValidationError, InvalidFrame, RowsEnded
        ):  # told of the section, by who verifies it
            FOLDS[fold].read(reader)
    return [*reader.typed, *rows[len(reader.typed) :]]


def _position(filesystem: IFilesystem, path: str, fold: str, number: int) -> int:
    """Return the position of the section that has this row of a fold."""
    before = 0
    for position, section in walk_sections(filesystem, path):
        if isinstance(section, Rows) and section.fold == fold:
            before += len(section.rows)
            if number <= before:
                return position
    return 0
