"""Test the proof of blocks: what was read at once may end anywhere in them."""

import itertools

import pytest
from crc32c import crc32c

from journal.check import block_check
from journal.check.block_check import Block, failing
from journal.formats import frame
from journal.formats.index import Anchor
from journal.formats.segment_header import SEGMENT_HEADER_BYTES

SEED = 77
FRAMES = [bytearray(frame.encode(b"%d" % number * (1 + 7 * number), 1)) for number in range(12)]
for number, each in enumerate(FRAMES):
    frame.stamp(memoryview(each), number, 1)
LOG = bytes(SEGMENT_HEADER_BYTES) + b"".join(FRAMES)


def blocks():
    """A block for each frame."""
    places, position, running = [Anchor(0, SEGMENT_HEADER_BYTES, SEED)], SEGMENT_HEADER_BYTES, SEED
    for number, each in enumerate(FRAMES, 1):
        position, running = position + len(each), crc32c(bytes(each), running)
        places.append(Anchor(number, position, running))
    return [Block(*pair) for pair in itertools.pairwise(places)]


def found(log, monkeypatch, at_once):
    monkeypatch.setattr(block_check, "MIB", at_once)
    read = lambda position, size: log[position : position + size]  # noqa: E731
    return [block.start.offset for block in failing(read, blocks(), lambda size: None, crc32c)]


@pytest.mark.parametrize("at_once", range(17, 400))
def test_sound_blocks_are_sound_wherever_what_is_read_at_once_ends(monkeypatch, at_once):
    assert found(LOG, monkeypatch, at_once) == []


@pytest.mark.parametrize("at_once", [17, 60, 100, 399])
@pytest.mark.parametrize("number", range(12))
def test_a_block_with_a_changed_byte_is_found_alone(monkeypatch, number, at_once):
    log = bytearray(LOG)
    log[blocks()[number].start.position + 9] ^= 1
    assert found(bytes(log), monkeypatch, at_once) == [number]


@pytest.mark.parametrize("missing", [1, 20, 40])
def test_a_file_that_ends_too_early_is_found(monkeypatch, missing):
    assert found(LOG[:-missing], monkeypatch, 100)[-1] == 11
