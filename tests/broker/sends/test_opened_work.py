"""Test that the work for a request's compressed frames is bounded, whatever they contain.

Seen to fail: with what is opened bounded in bytes alone, 21 KB of a request took a second of the reactor's time.
"""

import pytest

from journal.constants import KIB, MAX_FRAME, MAX_OPENED_HEADS, MAX_REQUEST_MESSAGES, MIB, OPENED_FRAME
from journal.errors import InvalidFrame, MessageTooLarge
from journal.formats import frame_check, frame_header
from journal.formats.compression import SIZE, compressor
from journal.formats.frame import HEADER_BYTES, INNER_HEADER_BYTES, encode, encode_inner, encode_wrapper
from journal.formats.frame_check import check_run
from txbroker.client.producer.batch import Batch

TIME = 1_357_034_400_000_000
ROOM = MAX_OPENED_HEADS - OPENED_FRAME
by_codec = pytest.mark.parametrize("name", ["zstd", "lz4"])


def batch(name, messages, said=None):
    """A compressed wrapper of messages, each a key or None, and headers; it says how many, or a lie."""
    packer = compressor(name)
    run = b"".join(encode_inner(n, b"", TIME, key, headers) for n, (key, headers) in enumerate(messages))
    return encode_wrapper(packer.pack(run), said or len(messages), TIME, packer.number)


def bare(count):
    return [(None, None)] * count


@pytest.fixture
def looked_at(monkeypatch):
    """How many inner messages, and how many attributes, are looked at."""
    seen = {"messages": 0, "attributes": 0}

    def counting(what, call):
        def count(*arguments):
            seen[what] += 1
            return call(*arguments)

        return count

    for reader in ("unpack_header", "unpack_inner"):
        monkeypatch.setattr(frame_header, reader, counting("messages", getattr(frame_header, reader)))
    monkeypatch.setattr(frame_check, "unpack_attribute", counting("attributes", frame_check.unpack_attribute))
    return seen


@by_codec
def test_a_request_may_hold_so_many_messages_compressed_and_none_more(name):
    most = ROOM // INNER_HEADER_BYTES
    assert check_run(batch(name, bare(most))) == most
    with pytest.raises(MessageTooLarge, match=r"up to 0 hold over 524288 bytes .* Send smaller batches"):
        check_run(batch(name, bare(most + 1)))


@by_codec
def test_what_says_too_many_messages_is_not_opened_and_what_lies_not_looked_at_to_its_end(name, looked_at):
    with pytest.raises(MessageTooLarge):
        check_run(batch(name, bare(100_000)))
    assert looked_at["messages"] <= 2
    with pytest.raises(InvalidFrame, match="says 5 messages, it holds 6"):
        check_run(batch(name, bare(100_000), said=5))
    assert looked_at["messages"] <= 12


@by_codec
def test_keys_and_headers_count_and_are_not_decoded_beyond_their_limit(name, looked_at):
    headers = {f"{n:04}": b"" for n in range(8 * KIB)}
    each = len(encode_inner(0, b"", TIME, None, headers))
    fits = ROOM // each
    assert check_run(batch(name, [(None, headers)] * fits)) == fits
    before = looked_at["attributes"]
    with pytest.raises(MessageTooLarge, match="headers and keys"):
        check_run(batch(name, [(None, headers)] * 100))
    assert looked_at["attributes"] - before == fits


@by_codec
def test_the_frames_of_a_request_share_the_room_and_each_takes_some(name):
    half = batch(name, bare(ROOM // INNER_HEADER_BYTES // 2))
    assert check_run(half) == ROOM // INNER_HEADER_BYTES // 2
    with pytest.raises(MessageTooLarge):
        check_run(half * 3)
    small = batch(name, [(b"k" * 500, None)])
    fits = MAX_OPENED_HEADS // (OPENED_FRAME + len(encode_inner(0, b"", TIME, b"k" * 500)))
    assert check_run(small * fits) == fits
    with pytest.raises(MessageTooLarge, match="256 a frame"):
        check_run(small * (fits + 1))


@by_codec
def test_the_room_can_be_used_to_its_last_byte(name):
    def keyed(size):
        more = len(encode_inner(0, b"", TIME, b"k" * size)) - size
        return batch(name, [(b"k" * (size - more), None)])

    fifty = batch(name, bare(50))
    for before, behind, count in ((ROOM, b"", 1), (ROOM - OPENED_FRAME - 50 * INNER_HEADER_BYTES, fifty, 51)):
        assert check_run(keyed(before) + behind) == count
        with pytest.raises(MessageTooLarge):
            check_run(keyed(before + 1) + behind)


@by_codec
def test_values_do_not_count(name):
    packer, value = compressor(name), bytes(MAX_FRAME - HEADER_BYTES - INNER_HEADER_BYTES)
    data = encode_wrapper(packer.pack(encode_inner(0, value, TIME)), 1, TIME, packer.number)
    assert check_run(data) == 1


@by_codec
def test_a_topic_that_believes_its_producers_has_no_such_limit(name):
    assert check_run(batch(name, bare(100_000)), opens=False) == 100_000


@pytest.mark.parametrize("how", ["alone", "in a wrapper", "compressed", "believed"])
def test_a_request_has_at_most_so_many_messages_and_those_behind_are_not_looked_at(how, looked_at):
    def run(count):
        if how == "alone":
            return encode(b"", TIME) * count
        inner = b"".join(encode_inner(n, b"", TIME) for n in range(count))
        return encode_wrapper(inner, count, TIME) if how == "in a wrapper" else batch("zstd", bare(count))

    assert check_run(run(100), opens=how != "believed", most=100) == 100
    before = looked_at["messages"]
    with pytest.raises(MessageTooLarge, match="hold over 100 messages, the limit of one request"):
        check_run(run(101) + run(5000), opens=how != "believed", most=100)
    assert looked_at["messages"] - before <= 101


def test_frames_that_are_not_compressed_have_no_such_limit():
    count = 50_000
    run = b"".join(encode_inner(n, b"", TIME) for n in range(count))
    assert check_run(encode_wrapper(run, count, TIME)) == count


@pytest.mark.parametrize(
    ("messages", "is_compressed"),
    [
        ([(b"k" * (ROOM // 4 - 2 * INNER_HEADER_BYTES), None)] * 4, True),
        ([(b"k" * (ROOM // 4 - INNER_HEADER_BYTES + 1), None)] * 4, False),
        ([(b"k" * (ROOM - KIB), None)], True),
        ([(b"k" * ROOM, None)], False),
    ],
)
def test_the_client_sends_as_it_is_what_a_broker_would_not_open(messages, is_compressed):
    made = Batch(1.0)
    for key, headers in messages:
        assert made.add(b"", TIME, key, headers, MAX_FRAME) >= 0
    data = made.seal(compressor("zstd"))
    assert (len(data) < made.size // 2) is is_compressed
    assert check_run(data) == len(messages)


def test_large_values_are_compressed_however_large_the_batch_is():
    made = Batch(1.0)
    for _ in range(8):
        made.add(bytes(MIB), TIME, b"key", None, MAX_FRAME)
    data = made.seal(compressor("zstd"))
    assert len(data) < MIB
    assert check_run(data) == 8
    assert data[HEADER_BYTES : HEADER_BYTES + 4] == SIZE.pack(made.size)


def test_the_client_has_no_more_messages_in_a_batch_than_a_broker_takes():
    made = Batch(1.0)
    for _ in range(MAX_REQUEST_MESSAGES):
        assert made.add(b"", TIME, None, None, MAX_FRAME) >= 0
    assert made.add(b"", TIME, None, None, MAX_FRAME) == -1
    assert check_run(made.seal(), most=MAX_REQUEST_MESSAGES) == MAX_REQUEST_MESSAGES
