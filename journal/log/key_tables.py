"""The use of a segment's table of keys: read and proven, or made anew from the frames. It runs on a reader's thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from journal.constants import MIB
from journal.errors import RequestRefused
from journal.formats.checksum import Checksum
from journal.formats.frame import (
    COMPRESSION,
    HEADER,
    HEADER_BYTES,
    INNER_HEADER_BYTES,
    WRAPPER,
    decode_attribute,
    open_wrapper,
    walk_inner,
)
from journal.formats.key_table import (
    MOST_ENTRIES,
    KeyEntries,
    KeyTable,
    Source,
    hash_of_id,
    hash_of_key,
    hash_of_tag,
    open_table,
)
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.interfaces import IFilesystem
from journal.log.search import Wanted
from journal.log.segment import BrokenChain, Read, Segment, read_run
from journal.message_headers import ID_HEADER, TAG_HEADER
from journal.vfs.file_window import file_size, opened, read_some

MOST_AT_ONCE = 4096
"""Most offsets that are looked up at once: 2 ms."""

_PIECE = 4 * MIB
_unpack_header = HEADER.unpack_from


class LookedUp(NamedTuple):
    """The offsets of a segment's messages that may have what is wanted; None if no table says so.

    ``end`` is the offset after what was looked up: that of the segment, unless there are too many at once. ``made`` are
    the bytes of a table that had to be made, to be kept, b"" if none was.
    """

    offsets: list[int] | None
    end: int = 0
    made: bytes = b""


def look_up(
    filesystem: IFilesystem, segment: Segment, offset: int, wanted: Wanted, makes: bool = True
) -> LookedUp:
    """Look a key, an id or a tag up in the table of a segment that is not written any more, from ``offset`` on.

    A missing or unsound table is made anew if ``makes``. Without one, and where the segment is damaged or gone, the
    segment itself has to be searched, which tells of the damage.
    """
    table, made = _table(filesystem, segment, makes)
    if table is None:
        return LookedUp(None, 0, made)
    found = table.offsets(hash_of(wanted), offset, MOST_AT_ONCE)
    return LookedUp(found, segment.end_offset if len(found) < MOST_AT_ONCE else found[-1] + 1, made)


def look_up_tags(
    filesystem: IFilesystem, segment: Segment, tags: Iterable[bytes], most: int, makes: bool = True
) -> LookedUp:
    """Look tags up, as :func:`look_up` does: all offsets of messages that may have one, ascending.

    If there are more than ``most`` there are none, as without a table: the segment is to be read.
    """
    table, made = _table(filesystem, segment, makes)
    if table is None:
        return LookedUp(None, 0, made)
    found: set[int] = set()
    for tag in tags:
        found.update(table.offsets(hash_of_tag(tag), segment.base_offset, most + 1))
    return LookedUp(sorted(found) if len(found) <= most else None, segment.end_offset, made)


def _table(filesystem: IFilesystem, segment: Segment, makes: bool) -> tuple[KeyTable | None, bytes]:
    """Return the table of a segment, if it is of use, and its bytes if it had to be made."""
    made = b""
    try:
        table = read_table(filesystem, segment)
        if table is None and makes:
            with opened(filesystem, segment.path) as file:
                made = make_table(file.read, segment)
            table = open_table(made, source_of(segment))
    except (OSError, BrokenChain, RequestRefused):
        return None, b""
    return (table if table is not None and table.is_complete else None), made


def hash_of(wanted: Wanted) -> int:
    """Return the hash to look up: of the id, which is the rarest one, else of the key, else of the tag."""
    if wanted.id is not None:
        return hash_of_id(wanted.id)
    if wanted.tag is not None and wanted.key is None:
        return hash_of_tag(wanted.tag)
    return hash_of_key(wanted.key or b"")


def source_of(segment: Segment) -> Source:
    """Return what a table of the segment has to name."""
    return Source(segment.base_offset, segment.end_offset, segment.size, segment.checksum, segment.seed)


def read_table(filesystem: IFilesystem, segment: Segment, checksum: Checksum = crc32c) -> KeyTable | None:
    """Return the table of a segment as it is on the disk; None if it is missing or not sound."""
    if not filesystem.exists(segment.keys_path):
        return None
    data = read_some(filesystem, segment.keys_path, 0, file_size(filesystem, segment.keys_path))
    return open_table(data, source_of(segment), checksum)


def make_table(read: Read, segment: Segment) -> bytes:
    """Return the table of a segment, made of its frames, each with its checksum checked: 1 µs a message.

    Raises :class:`BrokenChain` at damage, and what :func:`open_wrapper` raises.
    """
    entries = KeyEntries(segment.base_offset)
    offset, position = segment.base_offset, SEGMENT_HEADER_BYTES
    while offset < segment.end_offset and len(entries) <= MOST_ENTRIES:
        frames, offset = read_run(read, segment, offset, position, _PIECE)
        position += len(frames)
        _collect(frames, entries)
    return entries.packed(source_of(segment))


def _collect(frames: bytes, entries: KeyEntries) -> None:
    """Add the keys, ids and tags of a run of stamped frames."""
    position = 0
    while position < len(frames):
        length, _, offset, _, _, _, flag, attribute = _unpack_header(frames, position)
        begin, position = position, position + length
        if flag & COMPRESSION:
            frame = memoryview(frames)[begin:position]
            _collect_inner(open_wrapper(frame, f"the wrapper at offset {offset}"), offset, entries)
        elif flag & WRAPPER:
            _collect_inner(frames[begin + HEADER_BYTES : position], offset, entries)
        elif attribute:
            _add(frames[begin + HEADER_BYTES : begin + HEADER_BYTES + attribute], offset, entries)


def _collect_inner(frames: bytes, offset: int, entries: KeyEntries) -> None:
    """Add those of the frames in a wrapper, of which the first has that offset."""
    for number, (position, _, attribute) in enumerate(walk_inner(frames)):
        if attribute:
            content = position + INNER_HEADER_BYTES
            _add(frames[content : content + attribute], offset + number, entries)


def _add(attribute: bytes, offset: int, entries: KeyEntries) -> None:
    found = decode_attribute(attribute)
    if found.key is not None:
        entries.add(hash_of_key(found.key), offset)
    id = None
    for name, value in found.headers:
        if name == ID_HEADER:
            id = value
        elif name == TAG_HEADER:
            entries.add(hash_of_tag(value), offset)
    if id is not None:
        entries.add(hash_of_id(id), offset)
