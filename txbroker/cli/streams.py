"""The standard streams of the command line: a stream that cannot be written raises an error of its own kind."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputLost(OSError):
    """A standard stream cannot be written: its disk is full, or failing."""


class ReaderLeft(OutputLost):
    """The reader of the output has ended, as ``head`` does."""


class _Raw(io.FileIO):
    """A file descriptor that raises :class:`OutputLost` for every failed write."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            lost = ReaderLeft if isinstance(error, BrokenPipeError) else OutputLost
            # Without a number: click handles that of a broken pipe itself, and ends with 1.
            raise lost(error.strerror or str(error)) from error


def watch_streams() -> None:
    """From now on stdout and stderr raise :class:`OutputLost`; a closed one counts as one without a reader."""
    sys.stdout = _watched(sys.stdout)
    sys.stderr = _watched(sys.stderr)


def _watched(stream: TextIO | None) -> TextIO:
    if stream is None:
        return open(os.devnull, "w")
    raw = _Raw(stream.fileno(), "w", closefd=False)
    lines = stream.isatty() or stream is sys.stderr
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=lines, write_through=lines
    )


def drop_what_is_lost() -> None:
    """Discard what a stream still holds and cannot write, or Python ends with a code of its own for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
