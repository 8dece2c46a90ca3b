"""The version of the formats of a data directory, and of this program.

The format's is the last byte of every file's magic, and a byte of every frame. A directory of a version that is not
known is refused by name, with all its files as they were. ``docs/upgrading.md`` says when the number is raised.
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = 2
"""The version that is written and read."""

PROGRAM: Final = "0.3.0.dev0"
"""The version of this program, of all its distributions; `.ci/set-version` states it where files need it beside."""


def magic(name: bytes) -> bytes:
    """The bytes with which files of this kind begin."""
    return name + bytes((FORMAT,))


def version_of(data: bytes, known: bytes) -> int:
    """The format version of a file that begins so, where ``known`` is its kind's magic; 0 for another kind of file."""
    return data[len(known) - 1] if len(data) >= len(known) and data.startswith(known[:-1]) else 0
