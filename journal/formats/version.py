"""The version of the formats of a data directory, and of this program.

The file ``txbroker.version`` has the format's. A directory of a version that is not known is refused by name, with all
its files as they were. ``docs/upgrading.md`` says when the number is raised.
"""

from __future__ import annotations

from typing import Final

FORMAT: Final = 3
"""The version that is written."""
OLDEST_FORMAT: Final = 2
"""The oldest version that is read: that of the first release."""
KNOWN: Final = f"reads formats {OLDEST_FORMAT} to {FORMAT} and writes {FORMAT}"
"""What errors say of these."""
LAYOUT: Final = 2
"""The last byte of every file's magic, and a byte of every frame: the version in which the layout of files and frames
changed last. What has changed since are the fields of records and of rows in checkpoints.
"""

PROGRAM: Final = "0.3.0.dev0"
"""The version of this program, of all its distributions; `.ci/set-version` states it where files need it beside."""


def magic(name: bytes) -> bytes:
    """The bytes with which files of this kind begin."""
    return name + bytes((LAYOUT,))


def version_of(data: bytes, known: bytes) -> int:
    """The format version of a file that begins so, where ``known`` is its kind's magic; 0 for another kind of file."""
    return data[len(known) - 1] if len(data) >= len(known) and data.startswith(known[:-1]) else 0
