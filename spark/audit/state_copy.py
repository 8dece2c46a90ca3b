"""A copy of a data directory's state, from which an audit goes on while a broker starts on the directory itself.

A lock for the length of an audit would keep a crashed broker from starting for minutes. For the copy it is held for as
long as copying takes: journal, checkpoints, staged files, witness and the like, which a start changes, and what lies
behind the ends of the logs, which a start cuts off and writes again. Up to the checkpoint a log's files are only ever
added to or removed, so these are no copies: ``partitions`` is a link.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from journal.errors import StorageUnavailable
from journal.formats import filenames
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from spark.audit.claims.directory import Directory, look
from spark.audit.claims.log_tails import Tail
from spark.audit.claims.slices import SLICE_BYTES

_COPIED = (filenames.JOURNAL_DIRECTORY, filenames.CHECKPOINT_DIRECTORY, filenames.STAGED_DIRECTORY)
_NOT_COPIED = (filenames.LOCK, filenames.BALLAST)
_PIECE = 1 << 20


def look_at_copy(data: str, place: str, slice_bytes: int = SLICE_BYTES) -> Directory:
    """Copy the state below ``place`` and look at it; a broker may start on ``data`` as soon as this returns.

    Until then the directory must be kept still. Raises StorageUnavailable if it cannot be copied.
    """
    root, ends = os.path.join(place, "data"), os.path.join(place, "tails")
    try:
        shutil.rmtree(place, ignore_errors=True)
        _copy_state(data, root)
        directory = look(root, slice_bytes)._replace(in_use=True, live=data, tails_root=ends)
        _copy_tails(data, ends, directory.tails)
    except OSError as error:
        raise StorageUnavailable(
            f"the state of {data} cannot be copied to {place}: {error.strerror} ({error.filename}); nothing was "
            "audited. Make room there, or leave out --copy-state, which keeps a broker from starting meanwhile"
        ) from error
    return directory


def _copy_state(data: str, state: str) -> None:
    os.makedirs(state, mode=0o700)
    for name in os.listdir(data):
        if name in _COPIED:
            os.mkdir(os.path.join(state, name))
            for inner in filter(_is_needed, os.listdir(os.path.join(data, name))):
                _copy(os.path.join(data, name, inner), os.path.join(state, name, inner))
        elif name not in _NOT_COPIED:
            _copy(os.path.join(data, name), os.path.join(state, name))


def _copy_tails(data: str, place: str, tails: Iterable[Tail]) -> None:
    """Copy what is behind the ends of logs, at the same positions in files of the same names, with the files'
    headers.
    """
    for tail in tails:
        path = Path(place, tail.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.path.join(data, tail.path), "rb") as source, path.open("wb") as target:
            target.write(source.read(SEGMENT_HEADER_BYTES))
            position = max(tail.position, SEGMENT_HEADER_BYTES)
            source.seek(position)
            target.seek(position)
            while position < tail.end and (piece := source.read(min(_PIECE, tail.end - position))):
                target.write(piece)
                position += len(piece)


def _is_needed(name: str) -> bool:
    """Return whether a file is needed: spare and recycled files are not, tens of megabytes each without content."""
    return not name.startswith("spare.") and filenames.parse_recycled_file(name) is None


def _copy(source: str, target: str) -> None:
    """Copy a file; for anything else in its place, such as a directory or a pipe, make a link."""
    if os.path.isfile(source) and not os.path.islink(source):
        shutil.copyfile(source, target)
    else:
        os.symlink(os.path.abspath(source), target)
