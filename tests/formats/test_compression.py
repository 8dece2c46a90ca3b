"""Compressed batches: opened within bounds or refused in one way, whatever they say of themselves.

Seen to fail: with a size believed instead of compared, a batch holds fewer messages than it has offsets; without the
bound before opening, a request of 33 KiB takes 1 GiB; without that of a request, one of 2 KiB opens to 32 MiB.
"""

import contextlib
import struct
import sys
import threading

import lz4.block
import lz4.frame
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from journal.constants import KIB, MAX_FRAME, MAX_REQUEST_DATA, MIB
from journal.errors import CompressionUnavailable, InvalidFrame, InvalidSetting, MessageTooLarge
from journal.formats import compression, frame
from journal.formats.compression import LZ4, SIZE, ZSTD
from journal.formats.frame import (
    COMPRESSION_SHIFT,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    INNER_HEADER_BYTES,
    TOMBSTONE,
    VERSION,
    WRAPPER,
)
from journal.formats.frame_check import check_run
from journal.formats.frame_times import times_and_sizes

TIME = 1_357_034_400_000_000
CODECS = [ZSTD, LZ4]
by_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)


def run_of(*values):
    return b"".join(frame.encode_inner(n, value, TIME + n) for n, value in enumerate(values))


RUN = run_of(*[b"value %d" % n for n in range(100)])


def squeeze(codec, run):
    return (
        zstandard.ZstdCompressor().compress(run)
        if codec is ZSTD
        else lz4.block.compress(run, store_size=False)
    )


def wrapped(payload, count, number):
    return frame.encode_wrapper(payload, count, TIME, number)


def batch(codec, run=RUN, count=100, size=None):
    return wrapped(SIZE.pack(len(run) if size is None else size) + squeeze(codec, run), count, codec.number)


def stamped(run, base):
    copy = bytearray(run)
    frame.stamp(memoryview(copy), base, 1)
    return bytes(copy)


@pytest.mark.parametrize("name", ["zstd", "lz4"])
@pytest.mark.parametrize("level", [None, 1, 9])
def test_what_is_packed_is_a_wrapper_like_any_other(name, level):
    packer = compression.compressor(name, level)
    payload = packer.pack(RUN)
    data = wrapped(payload, 100, packer.number)
    assert len(data) < len(RUN) // 2
    assert check_run(data) == 100
    found = frame.decode_run(stamped(data, 1 << 40))
    assert found == frame.decode_run(stamped(wrapped(RUN, 100, 0), 1 << 40))
    assert [message.offset for message in found] == list(range(1 << 40, (1 << 40) + 100))


@by_codec
@pytest.mark.parametrize("start", [0, 1, 50, 99, 100, 101, 150, 200])
def test_reading_begins_in_the_middle_of_a_wrapper(codec, start):
    run = stamped(batch(codec) + frame.encode(b"single", TIME) + batch(codec), 0)
    assert frame.decode_run(run, start) == frame.decode_run(run)[start:]
    assert len(frame.decode_run(run)) == 201


@by_codec
def test_times_and_sizes_are_those_of_the_messages(codec):
    both = batch(codec) + frame.encode(b"four", TIME, key=b"k")
    assert list(times_and_sizes(both)) == [
        *times_and_sizes(wrapped(RUN, 100, 0)),
        *times_and_sizes(frame.encode(b"four", TIME, key=b"k")),
    ]


def test_what_would_not_be_worth_it_goes_as_it_is():
    for name in ("zstd", "lz4"):
        packer = compression.compressor(name)
        assert packer.pack(RUN[: compression.LEAST_BYTES - 1]) is None
        assert packer.pack(bytes(compression.LEAST_BYTES)) is not None
        noise = zstandard.ZstdCompressor().compress(
            b"".join(crc32c(b"%d" % n).to_bytes(4, "big") for n in range(4000))
        )
        assert packer.pack(noise) is None


@pytest.mark.parametrize(
    ("name", "level", "says"),
    [
        ("gzip", None, "'zstd', 'lz4' and None are known"),
        (b"zstd", None, "known"),
        ("zstd", 20, "-7 to 19"),
        ("zstd", "3", "-7 to 19"),
        ("zstd", True, "-7 to 19"),
        ("lz4", 13, "0 to 12"),
        ("lz4", -1, "0 to 12"),
        (None, 3, "compression None"),
    ],
)
def test_a_choice_that_there_is_not_is_refused(name, level, says):
    with pytest.raises(InvalidSetting, match=says):
        compression.compressor(name, level)


# -- what a hostile peer may send --------------------------------------------------------------------


def zstd_frame(content_size, blocks, descriptor=0xE0, rest=b""):
    """A Zstandard frame written by hand: single segment, content size of 8 bytes."""
    head = b"\x28\xb5\x2f\xfd" + bytes([descriptor]) + rest
    return head + (content_size.to_bytes(8, "little") if content_size is not None else b"") + blocks


def repeated(octet, times, size=128 * KIB):
    """Blocks that repeat one octet ``size`` times each."""
    block = [struct.pack("<I", (size << 3) | (1 << 1))[:3] + octet] * times
    last = bytes([block[-1][0] | 1]) + block[-1][1:]
    return b"".join([*block[:-1], last])


def stored(content):
    return struct.pack("<I", (len(content) << 3) | 1)[:3] + content


SKIPPABLE = b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + b"skip"
GIB = 1 << 30
Z, L = squeeze(ZSTD, RUN), squeeze(LZ4, RUN)
SMALL = run_of(b"a")
NESTED = run_of(b"a") + wrapped(run_of(b"b"), 1, 0)

REFUSED = {
    "no size": (b"", 1, 1, "says no size"),
    "half a size": (b"\0\0\0", 1, 1, "says no size"),
    "a size and nothing": (SIZE.pack(100), 1, 1, "says no size"),
    "codec 3": (SIZE.pack(len(RUN)) + Z, 100, 3, r"way 3.*known are 1 \(zstd\), 2 \(lz4\)"),
    "codec 15": (SIZE.pack(len(RUN)) + Z, 100, 15, "way 15"),
    "zstd said to be lz4": (SIZE.pack(len(RUN)) + Z, 100, 2, "lz4"),
    "lz4 said to be zstd": (SIZE.pack(len(RUN)) + L, 100, 1, "does not begin as a Zstandard frame"),
    "wrong magic": (SIZE.pack(len(RUN)) + b"\x27" + Z[1:], 100, 1, "does not begin as a Zstandard frame"),
    "a truncated zstd frame": (SIZE.pack(len(RUN)) + Z[:-1], 100, 1, "cannot be opened by zstd"),
    "half of its header": (SIZE.pack(len(RUN)) + Z[:5], 100, 1, "cannot be opened by zstd"),
    "a truncated lz4 block": (SIZE.pack(len(RUN)) + L[:-1], 100, 2, "lz4"),
    "a skippable frame before it": (SIZE.pack(len(RUN)) + SKIPPABLE + Z, 100, 1, "does not begin"),
    "a skippable frame behind it": (SIZE.pack(len(RUN)) + Z + SKIPPABLE, 100, 1, "unused data"),
    "a skippable frame alone": (SIZE.pack(36) + SKIPPABLE, 1, 1, "does not begin"),
    "two frames": (SIZE.pack(2 * len(RUN)) + Z + Z, 200, 1, "states 4390, the wrapper 8780"),
    "two frames, one size": (SIZE.pack(len(RUN)) + Z + Z, 100, 1, "unused data"),
    "two blocks": (SIZE.pack(len(RUN)) + L + L, 100, 2, "cannot be opened by lz4"),
    "an lz4 frame": (SIZE.pack(len(RUN)) + lz4.frame.compress(RUN), 100, 2, "cannot be opened by lz4"),
    "a size too small": (SIZE.pack(len(RUN) - 1) + Z, 100, 1, "states 4390, the wrapper 4389"),
    "a size too large": (SIZE.pack(len(RUN) + 1) + Z, 100, 1, "states 4390, the wrapper 4391"),
    "an lz4 size too small": (SIZE.pack(len(RUN) - 1) + L, 100, 2, "cannot be opened by lz4"),
    "an lz4 size too large": (SIZE.pack(len(RUN) + 1) + L, 100, 2, "opens to 4391 bytes, it opens to 4390"),
    "no content size": (
        SIZE.pack(len(SMALL)) + zstd_frame(None, stored(SMALL), 0, b"\x58"), 1, 1, "states no size",
    ),
    "a dictionary": (
        SIZE.pack(len(SMALL)) + zstd_frame(len(SMALL), stored(SMALL), 0xE1, b"\x07"), 1, 1, "dictionary 7",
    ),
    "a window of 128 MiB": (
        SIZE.pack(len(SMALL)) + zstd_frame(len(SMALL), stored(SMALL)[:-1], 0xC0, b"\x88"), 1, 1, "too much memory",
    ),
    "a frame that holds more than it states": (
        SIZE.pack(1000) + zstd_frame(1000, repeated(b"\0", 8192)), 1, 1, "cannot be opened by zstd",
    ),
    "a frame that states more than it holds": (
        SIZE.pack(1000) + zstd_frame(1000, stored(SMALL)), 1, 1, "cannot be opened by zstd",
    ),
    "a bomb with a small size": (
        SIZE.pack(1000) + zstd_frame(GIB, repeated(b"\0", 8192)), 1, 1, "states 1073741824, the wrapper 1000",
    ),
    "an lz4 bomb with a small size": (
        SIZE.pack(1000) + lz4.block.compress(bytes(MIB), store_size=False), 1, 2, "cannot be opened by lz4",
    ),
    "too many messages": (SIZE.pack(len(RUN)) + Z, 101, 1, "says 101 messages, it holds 100"),
    "too few messages": (SIZE.pack(len(RUN)) + Z, 99, 1, "says 99 messages, it holds 100"),
    "no messages": (SIZE.pack(len(RUN)) + Z, 0, 1, "says 0 messages"),
    "more messages than there is room for": (SIZE.pack(len(RUN)) + Z, 122, 1, "122 messages in 4390 bytes"),
    "nothing but zeros": (SIZE.pack(MIB) + squeeze(ZSTD, bytes(MIB)), 1, 1, "frame 0 in the wrapper"),
    "a wrapper in it": (SIZE.pack(len(NESTED)) + squeeze(LZ4, NESTED), 2, 2, "frame 1 in the wrapper"),
    "itself in it": (
        SIZE.pack(len(batch(ZSTD))) + squeeze(ZSTD, batch(ZSTD)), 1, 1, "frame 0 in the wrapper",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_compressed_batch_that_is_not_as_it_says_is_refused_and_named(name):
    payload, count, number, words = REFUSED[name]
    data = frame.encode(b"sound", TIME) + wrapped(payload, count, number)
    with pytest.raises(InvalidFrame, match=words) as caught:
        check_run(data)
    assert "at 49" in str(caught.value)
    assert str(caught.value).endswith("; nothing was stored")


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - {"no messages"}))
def test_a_reader_of_one_that_was_stored_unopened_gets_the_same_kind_of_error(name):
    payload, count, number, _ = REFUSED[name]
    with pytest.raises(InvalidFrame):
        frame.decode_run(wrapped(payload, count, number))


@by_codec
@pytest.mark.parametrize(
    "flag", [VERSION, VERSION | TOMBSTONE, VERSION | WRAPPER | TOMBSTONE, VERSION | WRAPPER | 4]
)
def test_nothing_but_a_wrapper_may_be_compressed(codec, flag):
    payload = SIZE.pack(len(RUN)) + squeeze(codec, RUN)
    packed = HEADER.pack(
        HEADER_BYTES + len(payload), 0, 0, 0, TIME, 100, flag | codec.number << COMPRESSION_SHIFT, 0
    )
    data = packed[:4] + crc32c(packed[CRC_START:] + payload).to_bytes(4, "big") + packed[8:] + payload
    for reader in (check_run, frame.decode_run):
        with pytest.raises(InvalidFrame):
            reader(data)


def peak_memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * KIB for line in status if line.startswith("VmHWM"))


BOMBS = {
    "zstd": (1, zstd_frame(GIB, repeated(b"\0", 8192))),
    "lz4": (2, lz4.block.compress(bytes(64 * MIB), store_size=False)),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("size", [GIB, 0xFFFFFFFF, MAX_FRAME + 1])
def test_a_bomb_is_refused_before_any_of_it_is_opened(name, size):
    number, content = BOMBS[name]
    data = wrapped(SIZE.pack(size) + content, 1, number)
    before = peak_memory()
    with pytest.raises(
        MessageTooLarge, match=rf"at 0 opens to {size + HEADER_BYTES} bytes, the limit is 16777216"
    ):
        check_run(data)
    with pytest.raises(InvalidFrame, match=f"opens to {size} bytes, no frame has over"):
        frame.decode_run(data)
    assert peak_memory() - before < 8 * MIB


@by_codec
@pytest.mark.parametrize("opens", [True, False])
def test_a_topics_limit_is_for_what_comes_out_too(codec, opens):
    data, opened = batch(codec), HEADER_BYTES + len(RUN)
    assert check_run(data, opened, opens) == 100
    with pytest.raises(MessageTooLarge, match=f"opens to {opened} bytes, the limit is {opened - 1}"):
        check_run(data, opened - 1, opens)


@by_codec
def test_what_one_request_opens_to_is_bounded_too(codec):
    large = batch(codec, run_of(bytes(MAX_REQUEST_DATA // 2 - INNER_HEADER_BYTES)), 1)
    assert check_run(large * 2) == 2
    with pytest.raises(
        MessageTooLarge, match=f"open to over {MAX_REQUEST_DATA} bytes, the limit of one request"
    ):
        check_run(large * 2 + batch(codec))
    assert check_run(large * 2 + batch(codec), opens=False) == 102


@by_codec
def test_a_topic_may_have_the_count_believed_as_far_as_it_can_be_true(codec):
    lies = SIZE.pack(len(RUN)) + b"no such thing"
    assert check_run(wrapped(lies, 121, codec.number), opens=False) == 121
    for count in (0, 122):
        with pytest.raises(InvalidFrame, match=f"says {count} messages in 4390 bytes"):
            check_run(wrapped(lies, count, codec.number), opens=False)
    with pytest.raises(InvalidFrame, match="way 7"):
        check_run(wrapped(lies, 1, 7), opens=False)


def check_either_way(data):
    """Whatever the bytes are: they are refused by name, or are what a later reader takes them for."""
    try:
        count = check_run(data, 20_000)
    except (InvalidFrame, MessageTooLarge):
        with contextlib.suppress(InvalidFrame):
            frame.decode_run(data)
        return
    found = frame.decode_run(stamped(data, 1000))
    assert [message.offset for message in found] == list(range(1000, 1000 + count))


@st.composite
def hostile_batches(draw):
    codec = draw(st.sampled_from(CODECS))
    run = draw(
        st.sampled_from([RUN, SMALL, NESTED, run_of(*[b"v"] * 30), bytes(100)]) | st.binary(max_size=60)
    )
    packed = bytearray(squeeze(codec, run))
    for _ in range(draw(st.integers(0, 2))):
        packed[draw(st.integers(0, len(packed) - 1))] ^= draw(st.integers(1, 255))
    cut = draw(st.sampled_from([None, None, None]) | st.integers(0, len(packed)))
    size = draw(st.just(len(run)) | st.integers(0, 20_000) | st.integers(0, 0xFFFFFFFF))
    count = draw(st.sampled_from([0, 1, 2, 30, 100]) | st.integers(0, 0xFFFFFFFF))
    number = draw(st.just(codec.number) | st.integers(0, 15))
    return wrapped(SIZE.pack(size) + bytes(packed[:cut]), count, number)


@given(st.lists(hostile_batches(), min_size=1, max_size=3).map(b"".join))
def test_compressed_batches_that_lie_under_a_right_checksum_are_refused_or_true(data):
    check_either_way(data)


# -- pieces, threads, packages -----------------------------------------------------------------------


@by_codec
def test_of_a_run_that_opens_to_much_a_piece_at_a_time_is_decoded(codec):
    values = [b"%d" % n + bytes(300 * KIB) for n in range(6)]
    run = stamped(
        b"".join(batch(codec, run_of(value), 1) for value in values) + frame.encode(b"last", TIME), 5
    )
    pieces = list(frame.decode_pieces(run))
    assert [[message.offset for message in piece] for piece, _ in pieces] == [[5, 6, 7, 8], [9, 10, 11]]
    assert [MIB < size < 2 * MIB for _, size in pieces] == [True, False]
    assert [message for piece, _ in pieces for message in piece] == frame.decode_run(run)
    assert [piece[0].offset for piece, _ in frame.decode_pieces(run, 10)] == [10]


def test_without_compressed_frames_a_run_is_one_piece():
    run = stamped(frame.encode(bytes(900 * KIB), TIME) * 4, 0)
    [(messages, size)] = frame.decode_pieces(run)
    assert (len(messages), size) == (4, len(run))
    assert list(frame.decode_pieces(run, 4)) == []


def test_threads_open_at_the_same_time():
    wrong = []

    def work(codec, text):
        run = run_of(*[text * 40] * 50)
        data = batch(codec, run, 50)
        for _ in range(300):
            if {message.value for message in frame.decode_run(data)} != {text * 40}:
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(codec, text)) for codec in CODECS for text in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@by_codec
def test_a_missing_package_is_named_with_what_to_install(codec, monkeypatch):
    monkeypatch.setitem(sys.modules, codec.module, None)
    advice = rf"pip install 'txbroker\[{codec.name}\]'"
    data = batch(codec)
    with pytest.raises(CompressionUnavailable, match=f"at 0 is compressed; nothing was stored: .*{advice}"):
        check_run(data)
    with pytest.raises(CompressionUnavailable, match=f"the wrapper at offset 7 is compressed: .*{advice}"):
        frame.decode_run(stamped(data, 7))
    with pytest.raises(CompressionUnavailable, match=f"nothing was opened: .*{advice}"):
        compression.compressor(codec.name)
    assert check_run(data, opens=False) == 100, "who does not open it does not need the package"
