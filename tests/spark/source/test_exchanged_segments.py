"""Test bytes of one log in another's file, sound and of offsets that fit: no reader serves them, and audits name them.

Seen to fail, each in a copy: with blocks not compared by the reader, by the audit, or headers not looked at.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from journal.formats import frame
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from spark.source.logs import MessagesLost
from tests.spark.audit.audited import Making, copied, violations
from tests.spark.damages.forger import flip, log_file, store_of
from tests.spark.source.test_planning import options_of, read

COUNT = 64
PAGE = 4096


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Two partitions with as many messages of a page each, in segments of sixteen."""
    made = Making(tmp_path_factory.mktemp("sound") / "data", segment_bytes=16 * PAGE)
    for number in range(COUNT):
        for partition in (0, 1):
            value = b"%d of %d." % (number, partition)
            made.send(partition, value.ljust(PAGE - frame.HEADER_BYTES, b"."))
    return made.close()


@pytest.fixture
def path(sound, tmp_path):
    return copied(sound, tmp_path / "data")


def file_of(path: Path, partition: int, segment: int = 0) -> Path:
    store = store_of(path, "a", partition)
    return path / log_file(store, store.segments[segment])


def served(path: Path, **options) -> list[tuple[int, int]]:
    """(partition, offset) of what a read gives; each must be what was sent there."""
    found = []
    for row in read(options_of(path, subscribe="a", **options)):
        place = row["partition"], row["offset"]
        assert row["value"].startswith(b"%d of %d." % (place[1], place[0])), f"another's message at {place}"
        found.append(place)
    return found


def all_but(partition: int, gone: range) -> list[tuple[int, int]]:
    return [(p, offset) for p in (0, 1) for offset in range(COUNT) if not (p == partition and offset in gone)]


def test_what_was_sent_is_served_and_found_sound(path):
    assert served(path) == all_but(0, range(0))
    assert violations(path) == []


@pytest.mark.parametrize("page", [0, 1, 6, 14])
def test_a_page_of_another_log_costs_its_block_and_nothing_else(path, page):
    at = SEGMENT_HEADER_BYTES + page * PAGE
    data = bytearray(file_of(path, 0).read_bytes())
    data[at : at + PAGE] = file_of(path, 1).read_bytes()[at : at + PAGE]
    file_of(path, 0).write_bytes(bytes(data))
    with pytest.raises(MessagesLost, match="fail their checksum") as caught:
        served(path)
    gone = range(caught.value.first, caught.value.last + 1)
    assert page in gone
    assert len(gone) <= 5, "what lies between two entries of the index"
    assert served(path, failOnDataLoss="false") == all_but(0, gone)
    [found] = [fact for fact in violations(path) if fact.kind == "damaged frame"]
    assert "every frame fulfils its own" in found.text
    assert (found.topic, found.partition, found.first, found.last) == ("a", 0, gone[0], gone[-1])


def test_a_segment_of_another_partition_is_served_by_none(path):
    shutil.copy(file_of(path, 1), file_of(path, 0))
    with pytest.raises(
        MessagesLost, match="it is the segment of partition number 3 from offset 0 on"
    ) as caught:
        served(path)
    gone = range(caught.value.first, caught.value.last + 1)
    assert gone == range(16)
    assert served(path, failOnDataLoss="false") == all_but(0, gone)
    assert any("it is the segment of partition number 3" in fact.text for fact in violations(path))


def test_a_damaged_header_costs_no_message_and_is_told_by_the_audit(path):
    store = store_of(path, "a", 0)
    flip(path, log_file(store, store.segments[1]), 20)
    assert served(path) == all_but(0, range(0))
    [found] = violations(path)
    assert (found.partition, found.path, found.text) == (
        0, log_file(store, store.segments[1]), "its header is damaged",
    )  # fmt: skip
