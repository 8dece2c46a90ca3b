"""Search in frames for messages by key, id or tag. It reads what a log has; no index is needed."""

from __future__ import annotations

from typing import Final, NamedTuple

from journal.constants import MIB
from journal.formats.frame import COMPRESSION, HEADER, Message, decode_run, open_wrapper
from journal.message_headers import TAG_HEADER

MOST_OPENED: Final = 16 * MIB
"""Compressed frames that open to so many bytes end a piece of work: about 20 ms."""

_unpack_header = HEADER.unpack_from


class Wanted(NamedTuple):
    """What a message has to have: this key, this id, this tag among its own. None is no condition."""

    key: bytes | None = None
    id: bytes | None = None
    tag: bytes | None = None

    def fits(self, message: Message) -> bool:
        """Whether a message has all of it."""
        return (
            (self.key is None or message.key == self.key)
            and (self.id is None or message.id == self.id)
            and (self.tag is None or (TAG_HEADER, self.tag) in message.headers)
        )


class Examined(NamedTuple):
    """The messages that were found, ascending. All messages below ``end`` were examined."""

    found: list[Message]
    end: int


def examine(frames: bytes, offset: int, wanted: Wanted) -> Examined:
    """Search a run of whole, checked frames for messages at ``offset`` and above.

    Key, id and tag lie in a frame as they are, so only frames that hold their bytes are decoded: 1 GB of messages of 1
    KiB takes 0.7 s, with reading them from the system's memory. It ends early after ``MOST_OPENED``. Raises
    :class:`journal.errors.CompressionUnavailable` and :class:`journal.errors.InvalidFrame` for a frame that cannot be
    opened.
    """
    parts = [part for part in wanted if part]
    is_plain = all(part in frames for part in parts)
    found: list[Message] = []
    position = opened = 0
    end, view = offset, memoryview(frames)
    while position < len(frames) and opened < MOST_OPENED:
        length, _, first, _, _, count, flag, _ = _unpack_header(frames, position)
        after = position + length
        if first + count <= offset:
            position = after
            continue
        if flag & COMPRESSION:
            inside = open_wrapper(view[position:after], f"the wrapper at offset {first}")
            opened += len(inside)
            may_fit = all(part in inside for part in parts)
        else:
            may_fit = is_plain and all(frames.find(part, position, after) >= 0 for part in parts)
        if may_fit:
            found += [each for each in decode_run(frames[position:after], offset) if wanted.fits(each)]
        position, end = after, first + count
    return Examined(found, end)
