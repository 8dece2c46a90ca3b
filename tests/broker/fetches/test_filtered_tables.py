"""Test fetches for groups with a filter by tags: what tables of keys say where tags are, and what is not read."""

import random

import pytest

from journal.formats import frame
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.log import key_tables, tag_filter
from journal.vfs.filesystem import write_fully
from tests.broker.fetches.filter_scene import fetch, filter_by, finished, position, send, tagged
from tests.broker.fetches.group_scene import claim, finish, settled
from tests.support.broker_room import Room
from txbroker.broker.fetches import tagged_segments


@pytest.fixture
def room():
    return Room()


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr(tagged_segments, "APART", 1)
    monkeypatch.setattr(tagged_segments, "NEAR", 1)


@pytest.fixture
def read(monkeypatch):
    """The offsets of the frames that were examined."""
    found, examine = [], tag_filter.filtered

    def noted(frames, offset, wanted):
        found.extend(first for _, _, first, _ in frame.walk(frames))
        return examine(frames, offset, wanted)

    monkeypatch.setattr(tag_filter, "filtered", noted)
    return found


def fill(room, text):
    """Send messages of 10,000 bytes to a topic with segments of six of them."""
    [partition] = room.topic(segment_bytes=64 << 10)
    filter_by(room, "eu")
    for number, letter in enumerate(text):
        send(room, partition, letter, number, size=10_000)
        room.flush()
    return partition


def test_what_is_between_is_not_read(room, read):
    partition = fill(room, "--e--" * 6)
    generation = claim(room, partition)
    sealed = room.engine.catalog.stores[partition].sealed_segments[-1].end_offset
    assert sealed == 24
    assert fetch(room, partition, 0, generation)[:2] == ([2], 6)
    assert read == [2]
    found, offset = [2], 6
    while offset < 30:
        numbers, offset, _ = fetch(room, partition, offset, generation, wait=0)
        found += numbers
    assert found == [2, 7, 12, 17, 22, 27]
    assert [each for each in read if each < sealed] == [2, 7, 12, 17, 22]
    assert (position(room, partition), finished(room, partition)) == (
        2,
        "3-6, 8-11, 13-16, 18-21, 23-26, 28-29",
    )


def test_damage_in_what_is_between_is_not_met_and_at_a_match_it_is_told(room):
    partition = fill(room, "-e----" + "-e--e-" + "e")
    segments = room.engine.catalog.stores[partition].sealed_segments
    fetch(room, partition, 0, wait=0)
    fetch(room, partition, 6, wait=0)
    frame_bytes = len(tagged(0, size=10_000))
    for segment, place in zip(segments, (3, 4), strict=True):
        file = room.filesystem.open(segment.path)
        write_fully(file, SEGMENT_HEADER_BYTES + place * frame_bytes + 500, [b"oops"])
    assert fetch(room, partition, 0, wait=0) == ([1], 6, "0, 2-5")
    assert fetch(room, partition, 6, wait=0) == ([7], 10, "6, 8-9")
    assert fetch(room, partition, 10, wait=0) == "CorruptSegment"


def test_what_has_attempts_is_read_though_the_table_does_not_name_it(room):
    partition = fill(room, "-e--e-" + "e")
    generation = claim(room, partition)
    finish(room, settled(partition, unfinished=[(2, 1, 0, "why")], generation=generation))
    assert fetch(room, partition, 0, generation)[:2] == ([1, 2, 4], 6)


def test_a_segment_with_many_that_match_is_read_in_a_row(room, read, monkeypatch):
    monkeypatch.setattr(tagged_segments, "APART", 30_000)
    partition = fill(room, "eee---" + "e")
    assert fetch(room, partition, 0)[:2] == ([0, 1, 2], 6)
    assert read == [0, 1, 2, 3, 4, 5]


def test_from_its_second_half_on_a_segment_is_read_in_a_row(room, read):
    partition = fill(room, "e---e-" + "e")
    assert fetch(room, partition, 4)[:2] == ([4], 6)
    assert read == [4, 5]
    assert not room.filesystem.exists(room.engine.catalog.stores[partition].sealed_segments[0].keys_path)


def test_on_a_full_disk_no_table_is_made(room, monkeypatch):
    monkeypatch.setattr(key_tables, "make_table", None)
    partition = fill(room, "-e----" + "e")
    room.engine.full_at = 0
    assert fetch(room, partition, 0)[:2] == ([1], 6)


def test_what_has_any_tag_of_the_filter_is_found(room, read):
    partition = fill(room, "-e--u--b--" + "e")
    filter_by(room, "eu", "us")
    assert fetch(room, partition, 0)[:2] == ([1, 4], 6)
    assert read == [1, 4]


@pytest.mark.parametrize("seed", range(20))
def test_with_tables_the_same_comes_as_without(room, seed, monkeypatch):
    draw = random.Random(seed)
    monkeypatch.setattr(tagged_segments, "AT_ONCE", draw.choice([1, 2, 16]))
    monkeypatch.setattr(tagged_segments, "TOGETHER", draw.choice([1, 25_000]))
    text = "".join(draw.choice("eb-----u"[draw.randrange(2) :]) for _ in range(40))
    partition = fill(room, text)
    generation = claim(room, partition)
    found, offset = [], 0
    for _ in range(200):
        until = draw.choice([0, 0, offset + draw.randrange(1, 12)])
        numbers, offset, _ = fetch(room, partition, offset, generation, wait=0, until=until)
        found += numbers
        if offset == len(text):
            break
    assert found == [number for number, letter in enumerate(text) if letter in "eb"]
    finish(room, settled(partition, *found, generation=generation))
    assert position(room, partition) == len(text)
