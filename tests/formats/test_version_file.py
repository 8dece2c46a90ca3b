"""Test the file ``txbroker.version``: what it says, and that damage makes it say nothing."""

from __future__ import annotations

import pytest

from journal.formats import filenames
from journal.formats.version import FORMAT, PROGRAM
from journal.formats.version_file import (
    MAX_BYTES,
    OURS,
    Written,
    is_damaged,
    pack_version,
    read_version,
    unpack_version,
    write_version,
)
from journal.testing import MemoryFilesystem
from journal.vfs.filesystem import write_fully


def test_it_is_text_for_people():
    first, second, third = pack_version(OURS).decode().splitlines()
    assert first == f"format {FORMAT}"
    assert second == f"txbroker {PROGRAM}"
    assert third.startswith("crc32c ")


@pytest.mark.parametrize("written", [OURS, Written(1, "0.3.0.dev0"), Written(999_999, "1" * 64)])
def test_what_is_written_is_read(written):
    packed = pack_version(written)
    assert len(packed) <= MAX_BYTES
    assert unpack_version(packed) == written


def test_any_turned_bit_makes_it_say_nothing():
    """One bit turns format 2 into 3: nobody may be sent away for that."""
    packed = pack_version(OURS)
    for bit in range(8 * len(packed)):
        turned = bytearray(packed)
        turned[bit // 8] ^= 1 << bit % 8
        assert unpack_version(bytes(turned)) is None, bit


@pytest.mark.parametrize(
    "data", [b"", bytes(50), b"3\n", pack_version(OURS)[:-1], pack_version(OURS) + b"\n"]
)
def test_what_is_not_whole_says_nothing(data):
    filesystem = MemoryFilesystem()
    file = filesystem.open(filenames.VERSION, create=True)
    write_fully(file, 0, [data])
    file.close()
    assert read_version(filesystem) is None
    assert is_damaged(filesystem)
    write_version(filesystem)
    assert read_version(filesystem) == OURS
    assert not is_damaged(filesystem)


def test_one_that_is_missing_is_no_damage():
    assert not is_damaged(MemoryFilesystem())


def test_it_is_not_written_again_if_it_says_the_same():
    filesystem = MemoryFilesystem()
    write_version(filesystem)
    filesystem.open(filenames.VERSION).force()
    before = filesystem.crash_clone(1)
    write_version(filesystem)
    assert read_version(before) == OURS
    assert read_version(filesystem.crash_clone(1)) == OURS
