"""Test zeros in place of messages, and wrong indexes: nothing is invented, and nothing skipped without a message."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

from journal.formats.index import OFFSET_ENTRY
from journal.formats.segment_header import seed_of
from spark.source.logs import MessagesLost
from tests.spark.directories import fill, segments
from tests.spark.source.test_planning import options_of, read

pytestmark = pytest.mark.slow

COUNT = 3000


@pytest.fixture(params=[True, False], ids=["batches", "single messages"])
def path(tmp_path, request):
    fill(tmp_path / "d", COUNT, wrapped=request.param)
    return tmp_path / "d"


def offsets(path, **options):
    return [row["offset"] for row in read(options_of(path, **options))]


@pytest.mark.parametrize("place", ["a page", "the start", "the end", "all of it"])
def test_zeros_in_a_segment_are_a_loss_with_a_name_and_no_messages(path, place):
    second, third = segments(path)[1:3]
    size = second.stat().st_size
    begin, end = {"a page": (8192, 12288), "the start": (0, 4096), "the end": (size - 4096, size),
                  "all of it": (0, size)}[place]  # fmt: skip
    with second.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))
    with pytest.raises(MessagesLost, match=f"partitions/t-0.1/{second.name} is damaged at byte") as caught:
        offsets(path)
    first, behind = int(second.stem), int(third.stem)
    assert first <= caught.value.first <= caught.value.last < behind
    found = offsets(path, failOnDataLoss="false")
    assert found == sorted(set(found))
    assert set(range(first)) | set(range(behind, COUNT)) <= set(found)
    assert caught.value.first not in found


@pytest.mark.parametrize(
    "what", ["empty", "half an entry", "zeros", "another segment's", "astray", "missing"]
)
def test_an_index_that_lies_loses_no_message_wherever_a_read_begins(path, what):
    first, second, *_ = [file.with_suffix(".index") for file in segments(path)]
    data = second.read_bytes()
    assert len(data) >= 2 * OFFSET_ENTRY.size
    if what == "missing":
        second.unlink()
    else:
        second.write_bytes(
            {
                "empty": b"", "half an entry": data[: OFFSET_ENTRY.size + 7], "zeros": bytes(len(data)),
                "another segment's": first.read_bytes(), "astray": astray(data, second.with_suffix(".log")),
            }[what]
        )  # fmt: skip
    base = int(second.stem)
    for start in (base, base + 1, base + 350, base + 700):
        wanted = list(range(start, COUNT))
        assert offsets(path, startingOffsets=f'{{"t": {{"0": {start}}}}}', minPartitions="7") == wanted


def astray(data: bytes, log: Path) -> bytes:
    """Entries with checksums that fit, a byte behind where their frames begin."""
    seed = seed_of(int.from_bytes(log.read_bytes()[48:56], "big"))
    made = b""
    for at in range(0, len(data), OFFSET_ENTRY.size):
        offset, position, running, _ = OFFSET_ENTRY.unpack_from(data, at)
        key = OFFSET_ENTRY.pack(offset, position + 1, running, 0)[:-4]
        made += key + int(crc32c(key, seed)).to_bytes(4, "big")
    return made
