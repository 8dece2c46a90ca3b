"""Turn every bit of every file: each that carries information is noticed, and the others are listed here.

They are listed, and asserted to carry nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import pytest

from journal.errors import CorruptData, CorruptJournal
from journal.formats.checkpoint import read_checkpoint
from tests.support.damage.damage_scene import GROUP_HEADER, case, groups, lsn_of, put, telling
from tests.support.damage.damaged_store import BIG
from tests.support.engine_room import Room, contents

STRIDE_IN_PAYLOAD = 499
"""Of the large payloads one bit in so many bytes is turned: they are covered by one checksum like the small ones."""


def is_hint(path: str) -> bool:
    """Whether a file only leads to what is checked: an entry that no look-up needed may be damaged unnoticed."""
    return path.endswith((".index", ".time"))


def bits(path: str) -> list[int]:
    """Every bit of the file that says something; of large payloads one now and then."""
    data = case().files[path]
    large = [range(at, at + len(BIG)) for at in places(data, BIG)]
    found = []
    for part in telling(path):
        for byte in part:
            if not any(byte in payload for payload in large):
                found += range(byte * 8, byte * 8 + 8)
            elif byte % STRIDE_IN_PAYLOAD == 0:
                found.append(byte * 8 + byte % 8)
    return found


def places(data: bytes, piece: bytes) -> Iterator[int]:
    at = data.find(piece)
    while at >= 0:
        yield at
        at = data.find(piece, at + len(piece))


def check_turned(path: str, bit: int) -> None:
    verdict = case().turned(path, bit)
    assert not verdict.silent or is_hint(path), f"bit {bit % 8} of byte {bit // 8} of {path}"
    if verdict.refused is not None:
        assert isinstance(verdict.refused, CorruptData)
        assert verdict.refused.path == path
        assert f"at {verdict.refused.position}" in str(verdict.refused)
    assert {error.path for error in verdict.errors} <= {path}


CHUNKS = 24


@pytest.mark.slow
@pytest.mark.parametrize(
    "chunk", [*range(2), *(pytest.param(chunk, marks=pytest.mark.deep) for chunk in range(2, CHUNKS))]
)
def test_every_bit_that_says_something_is_missed_when_it_is_turned(chunk):
    everything = [
        (path, bit) for path in sorted(case().files) if "checkpoints/" not in path for bit in bits(path)
    ]
    assert len(everything) > 15_000
    for path, bit in everything[chunk::CHUNKS]:
        check_turned(path, bit)


@pytest.mark.slow
def test_a_bit_here_and_there_is_missed_when_it_is_turned():
    for path in sorted(case().files):
        for bit in bits(path)[::203]:
            check_turned(path, bit)


@pytest.mark.slow
def test_every_turned_bit_of_a_checkpoint_is_seen_by_who_reads_it():
    for path in [path for path in case().files if path.endswith(".checkpoint")]:
        disk = case().store.disk()
        data = case().files[path]
        for bit in range(8 * len(data)):
            put(disk, path, bit // 8, bytes([data[bit // 8] ^ 1 << bit % 8]))
            with pytest.raises(CorruptJournal) as caught:
                read_checkpoint(disk, lsn_of(path))
            assert caught.value.path == path
            put(disk, path, bit // 8, data[bit // 8 : bit // 8 + 1])
        read_checkpoint(disk, lsn_of(path))


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1], ids=["older", "newest"])
def test_a_turned_bit_in_any_byte_of_a_checkpoint_is_made_up_for_and_told(which):
    path = sorted(path for path in case().files if path.endswith(".checkpoint"))[which]
    for byte in range(len(case().files[path])):
        verdict = case().turned(path, byte * 8 + byte % 8)
        assert verdict.refused is None
        assert any(path in note for note in verdict.notes)


def silent_bytes(path: str) -> list[range]:
    """What is left of a file when what says something is taken out."""
    found, position = [], 0
    for part in sorted(telling(path), key=lambda part: part.start):
        found.append(range(position, part.start))
        position = part.stop
    found.append(range(position, len(case().files[path])))
    return [part for part in found if part]


def test_the_bytes_that_carry_nothing_are_just_these():
    """Padding, headers of staged files, files that nothing needs, frames below a log's start but for their lengths.

    And append times, of which no start and no read depends on: verification and scrubbing look at them.
    """
    found = {re.sub(r"\d{5,}", "N", path) for path in case().files if silent_bytes(path)}
    assert found == {
        "ballast",
        "journal/N.journal",
        "journal/N.recycled",
        "journal/spare.next",
        "partitions/a-0.1/N.log",
        "partitions/a-1.2/N.log",
        "partitions/b-0.3/N.log",
        "partitions/gone-0.4/N.log",
        "partitions/twins-0.5/N.log",
        "partitions/twins-1.6/N.log",
        "staged/N-1.staged",
        "staged/N-2.staged",
    }
    whole = {path for path in case().files if case().files[path] and not telling(path)}
    assert {path for path in whole if path.endswith(".journal")} == set(case().journals) - set(case().needed)


def test_all_of_them_turned_at_once_change_nothing():
    for mask in (0x01, 0xFF):
        disk = case().store.disk()
        for path, data in case().files.items():
            for part in silent_bytes(path):
                put(disk, path, part.start, bytes(byte ^ mask for byte in data[part.start : part.stop]))
        assert case().judged(disk).silent


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(3))
def test_each_of_them_alone_changes_nothing(seed):
    random = Random(seed)
    for path in sorted(case().files):
        for part in silent_bytes(path):
            for _ in range(3):
                assert case().turned(path, random.randrange(part.start * 8, part.stop * 8)).silent


@pytest.mark.slow
def test_a_turned_bit_in_the_last_group_before_anything_proves_it_is_told_though_it_looks_like_a_tear():
    """The one case in which something acknowledged can be lost, by damage; a log line says where it was."""
    room = Room()
    room.topic()
    room.send(b"proven")
    room.send(b"the very last")
    [path] = [path for path in contents(room.inner) if path.endswith(".journal")]
    group = list(groups(contents(room.inner)[path]))[-1]
    for bit in range((group.start + GROUP_HEADER) * 8, group.stop * 8):
        disk = room.inner.crash_clone(0, survive=1.0)
        [old] = disk.open(path).read(bit // 8, 1)
        put(disk, path, bit // 8, bytes([old ^ 1 << bit % 8]))
        after = Room(disk)
        assert after.values() == [b"proven"]
        assert f"{path} was torn at {group.start}" in after.engine.report.notes[0]
