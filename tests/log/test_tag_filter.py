"""Test the filter of frames by tags: what it lets through, how far it has looked, and what does not match."""

import random

import pytest

from journal.formats import compression, frame, frame_check
from journal.log import search, tag_filter
from journal.log.tag_filter import TagFilter, filtered
from journal.message_headers import TAG_HEADER
from journal.offset_set import OffsetSet


def tagged(place, *tags, size=0):
    return frame.encode_inner(place, bytes(size), 1, None, [(TAG_HEADER, tag) for tag in tags])


def single(*tags, size=0):
    return frame.encode_alone(tagged(0, *tags, size=size))


def batch(*messages, codec=None):
    inner = b"".join(tagged(place, *tags, size=300) for place, tags in enumerate(messages))
    if codec is None:
        return frame.encode_wrapper(inner, len(messages), 1)
    made = compression.compressor(codec)
    return frame.encode_wrapper(made.pack(inner), len(messages), 1, made.number)


def stamped(*runs, base=0):
    whole = bytearray(b"".join(runs))
    frame.stamp(memoryview(whole), base, 5)
    return bytes(whole)


def of(*offsets):
    found = OffsetSet()
    for offset in offsets:
        found.add(offset)
    return found


def wanted(*tags, kept=(), **bounds):
    return TagFilter(tags or (b"eu",), of(*kept), **bounds)


def told(found):
    """The first offsets of the frames that are let through, the end, and what does not match."""
    return [offset for _, _, offset, _ in frame.walk(found.data)], found.end, str(found.unmatched)


RUN = stamped(
    single(), single(b"eu"), batch((b"us",), (b"eu", b"us"), ()), batch((b"us",), ()), single(b"us"), base=10
)


@pytest.mark.parametrize("tag", [b"e", b"x", b"tag", b"txbroker.tag", b"u"])
def test_messages_are_not_decoded_for_a_tag_that_is_a_part_of_a_name_or_of_another_tag(tag, monkeypatch):
    run = stamped(single(b"us"), batch((b"us",), (b"eu",)), batch((b"us",), (b"eu",), codec="zstd"))
    monkeypatch.setattr(tag_filter, "decode_attribute", None)
    assert told(filtered(run, 0, wanted(tag))) == ([], 5, "0-4")


@pytest.mark.parametrize("length", [b"\xc4\x02", b"\xc5\x00\x02", b"\xc6\x00\x00\x00\x02"])
def test_a_tag_matches_whichever_way_its_length_is_encoded(length):
    attribute = b"\x92\xc0\x91\x92\xac" + TAG_HEADER.encode() + length + b"eu"
    assert frame.decode_attribute(attribute).headers == ((TAG_HEADER, b"eu"),)
    through = tag_filter._Through(0, wanted())
    assert through.may_match(attribute)
    assert through.matches(attribute, 0, len(attribute), 0)


@pytest.mark.parametrize("tag", [b"e", b"e" * 255, b"\n" * 10, b"(.|["])
def test_a_tag_may_have_any_length_and_any_bytes(tag):
    assert told(filtered(stamped(single(tag), single(b"us")), 0, wanted(tag))) == ([0], 2, "1")


def test_frames_with_a_match_are_let_through_and_what_is_less_than_half_of_a_batch_without_it():
    assert told(filtered(RUN, 10, wanted())) == ([11, 13], 18, "10, 12, 14-17")
    assert told(filtered(RUN, 10, wanted(b"us"))) == ([12, 15, 17], 18, "10-11, 14, 16")
    assert told(filtered(RUN, 10, wanted(b"us", b"eu"))) == ([11, 12, 15, 17], 18, "10, 14, 16")
    assert told(filtered(RUN, 10, wanted(b"nowhere"))) == ([], 18, "10-17")


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_a_message_from_a_batch_is_the_same_without_it(codec):
    inner = [
        frame.encode_inner(0, b"first", 5, b"key", [(TAG_HEADER, b"us")]),
        frame.encode_inner(1, None, 7, b"key", [("h", b"v"), (TAG_HEADER, b"eu")]),
        frame.encode_inner(2, bytes(500), 9),
    ]
    made = None if codec is None else compression.compressor(codec)
    packed = b"".join(inner) if made is None else made.pack(b"".join(inner))
    run = stamped(frame.encode_wrapper(packed, 3, 1, 0 if made is None else made.number), base=70)
    found = filtered(run, 70, wanted())
    stamps = (71).to_bytes(8) + (5).to_bytes(8)
    assert frame_check.check_run(found.data.replace(stamps, bytes(16))) == 1
    assert frame.decode_run(found.data) == [each for each in frame.decode_run(run) if each.offset == 71]


def test_messages_below_the_offset_say_nothing_also_in_a_batch():
    assert told(filtered(RUN, 13, wanted())) == ([13], 18, "14-17")
    assert told(filtered(RUN, 14, wanted())) == ([], 18, "14-17")


def test_what_is_kept_is_let_through_though_it_does_not_match():
    assert told(filtered(RUN, 10, wanted(kept=(10, 16)))) == ([10, 11, 13, 15], 18, "12, 14-15, 17")
    assert told(filtered(stamped(single(), single()), 0, wanted(kept=(1,)))) == ([1], 2, "0")


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_batches_are_opened_a_piece_at_a_time(codec, monkeypatch):
    run = stamped(*[batch((b"eu",), (b"us",), codec=codec) for _ in range(4)])
    assert told(filtered(run, 0, wanted())) == ([0, 2, 4, 6], 8, "1, 3, 5, 7")
    monkeypatch.setattr(tag_filter, "MOST_OPENED", 1000)
    assert told(filtered(run, 0, wanted())) == ([0, 2], 4, "1, 3")
    assert tag_filter.MOST_OPENED < search.MOST_OPENED


def test_what_cannot_be_opened_is_let_through():
    broken = bytearray(batch((b"us",), (b"us",), codec="zstd"))
    broken[-4:] = b"oops"
    assert told(filtered(stamped(single(), bytes(broken), single()), 0, wanted())) == ([1], 4, "0, 3")


def test_it_ends_before_the_first_frame_that_is_one_too_many():
    run = stamped(*[single(b"eu" if number % 2 else b"us", size=100) for number in range(8)])
    size = len(run) // 8
    assert told(filtered(run, 0, wanted(room=2 * size))) == ([1, 3], 5, "0, 2, 4")
    assert told(filtered(run, 0, wanted(room=1))) == ([1], 3, "0, 2")
    assert told(filtered(run, 0, wanted(until=4))) == ([1, 3], 4, "0, 2")
    assert told(filtered(run, 4, wanted(until=5))) == ([], 5, "4")
    assert told(filtered(run, 4, wanted(b"no", until=5))) == ([], 8, "4-7")


def test_it_is_as_decoding_everything_says():
    draw = random.Random(1)
    for _ in range(200):
        runs, tags = [], []
        while len(tags) < 40:
            some = [
                tuple(draw.sample([b"eu", b"us", b"x"], draw.randrange(3)))
                for _ in range(draw.randrange(1, 4))
            ]
            runs.append(
                single(*some[0]) if len(some) == 1 else batch(*some, codec=draw.choice([None, "zstd"]))
            )
            tags += some
        run = stamped(*runs)
        begin, kept = draw.randrange(40), draw.sample(range(40), 2)
        found = filtered(run, begin, wanted(b"eu", b"x", kept=kept))
        matches = [n for n in range(begin, len(tags)) if {b"eu", b"x"} & set(tags[n]) or n in kept]
        others = [n for n in range(begin, len(tags)) if n not in matches]
        assert (found.end, str(found.unmatched)) == (len(tags), str(of(*others)))
        assert set(matches) <= {each.offset for each in frame.decode_run(found.data)}
        whole = {(offset, count) for _, _, offset, count in frame.walk(found.data)}
        assert all(any(n in range(first, first + count) for n in matches) for first, count in whole)
