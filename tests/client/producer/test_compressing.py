"""Test what a client compresses, and that nothing else about a message changes.

Seen to fail: with a lone message compressed whatever its size, one that a topic just takes is refused; with a batch
compressed anew for a second try its checksum was another and the broker's count of bytes, too.
"""

import asyncio
import sys

import pytest
from crc32c import crc32c

from journal.formats import frame
from journal.formats.compression import CODECS, LEAST_BYTES, SIZE
from journal.formats.frame import (
    COMPRESSION,
    COMPRESSION_SHIFT,
    HEADER,
    HEADER_BYTES,
    INNER_HEADER_BYTES,
    WRAPPER,
)
from tests.client.rig import Rig, add, failed, send_as_adds
from tests.client.scripted_broker import ScriptedBroker
from txbroker import connect, errors
from txbroker.client import asyncio as client_asyncio
from txbroker.client import twisted
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.options import consumer_options
from txbroker.client.transactions.bulk import send_many
from txbroker.wire.messages import Commit, Fetch, Send

NAMES = [codec.name for codec in CODECS.values()]
by_name = pytest.mark.parametrize("name", NAMES)
NUMBERS = {codec.name: codec.number for codec in CODECS.values()}
LINES = [b"2013,1,1,517,515,2,830,819,11,UA,%d,N14228,EWR,IAH" % number for number in range(200)]


def rig_of(broker, name, **options):
    return Rig(broker, compression=name, **options)


def runs(broker, partition=1):
    return [run for _, run in broker.logs[partition]]


def codec_of(run):
    flag = HEADER.unpack_from(run)[6]
    return (flag & COMPRESSION) >> COMPRESSION_SHIFT


def send_all(rig, values):
    """The first goes alone; what follows waits for its answer, together."""
    batches = [rig.send(value)[0] for value in values]
    rig.pump()
    return batches


@by_name
def test_a_batch_goes_compressed_and_is_what_was_sent(broker, name):
    rig = rig_of(broker, name)
    batches = send_all(rig, LINES)
    first, second = runs(broker)
    assert (codec_of(first), codec_of(second)) == (0, NUMBERS[name])
    assert len(second) < sum(map(len, LINES)) // 2
    assert broker.values(1) == LINES
    assert batches[-1].base_offset == 1
    assert rig.producer.buffered == 0


@by_name
def test_a_lone_message_is_compressed_if_it_is_large(broker, name):
    rig = rig_of(broker, name)
    values = [b"x" * (LEAST_BYTES - INNER_HEADER_BYTES - more) for more in (1, 0)]
    for value in values:
        rig.send(value)
        rig.pump()
    small, large = runs(broker)
    assert (codec_of(small), codec_of(large)) == (0, NUMBERS[name])
    assert not HEADER.unpack_from(small)[6] & WRAPPER
    assert HEADER.unpack_from(large)[5] == 1, "a wrapper of one"
    assert broker.values(1) == values


@by_name
def test_what_does_not_get_smaller_goes_as_it_is(broker, name):
    rig = rig_of(broker, name)
    noise = b"".join(crc32c(b"%d" % number).to_bytes(4, "big") for number in range(5000))
    rig.send(noise)
    rig.pump()
    (run,) = runs(broker)
    assert frame.unstamped(run) == frame.encode(noise, 1)


@by_name
def test_a_message_that_a_topic_just_takes_is_taken_compressed_or_not(broker, name):
    """A wrapper has a header of its own: what opens to more than a topic takes would be refused."""
    rig = rig_of(broker, name)
    limit = rig.core.max_frame
    in_wrapper = limit - HEADER_BYTES - INNER_HEADER_BYTES
    for size in (in_wrapper, in_wrapper + 1, limit - HEADER_BYTES):
        rig.send(b"z" * size)
        rig.pump()
    assert [codec_of(run) for run in runs(broker)] == [NUMBERS[name], 0, 0]
    with pytest.raises(errors.MessageTooLarge):
        rig.send(b"z" * (limit - HEADER_BYTES + 1))


def test_small_messages_are_batched_by_their_bytes_before_compression(broker):
    rig = rig_of(broker, "zstd", batch_bytes=4000)
    send_all(rig, LINES)
    for run in runs(broker):
        assert sum(INNER_HEADER_BYTES + len(m.value) for m in frame.decode_run(run)) <= 4000


@by_name
def test_a_batch_sent_again_has_the_same_bytes(broker, name):
    rig = rig_of(broker, name)
    rig.send(b"warm")
    rig.pump()
    sent = []

    def swallow(request, data):
        if type(request) is Send:
            sent.append((request.sequence, bytes(data)))
            return broker.SWALLOW if len(sent) == 1 else None
        return None

    broker.before = swallow
    rig.send(b"\n".join(LINES))
    rig.pump()
    rig.cut()
    rig.connect()
    assert sent[0] == sent[1]
    assert codec_of(sent[0][1]) == NUMBERS[name]
    assert broker.values(1) == [b"warm", b"\n".join(LINES)]


@by_name
def test_reports_count_the_bytes_of_the_messages(broker, name):
    counts = []
    for compression in (None, name):
        rig = Rig(ScriptedBroker(), compression=compression, reports="t2", client="meter")
        send_all(rig, [*LINES, b"x" * 5000])
        (row,) = rig.producer.reports._sent.values()
        counts.append(row)
    assert counts[0] == counts[1] == [201, sum(map(len, LINES)) + 5000]


@by_name
def test_a_transactions_frames_go_as_they_are_compressed_added_or_carried_and_totals_are_of_what_was_added(
    broker, name
):
    rig = rig_of(broker, name)
    transaction = rig.transaction()
    staged = []
    broker.before = lambda request, data: staged.append(bytes(data)) if data else None
    for line in LINES:
        rig.run(add(transaction, line))
    send_as_adds(transaction)
    rig.pump()
    rig.run(send_many(transaction, "t", LINES, timestamps=[10**15] * len(LINES)))
    rig.run(transaction.commit())
    commit = next(request for request in broker.requests if type(request) is Commit)
    assert {codec_of(run) for run in staged} == {NUMBERS[name]}
    added, carried = staged[:-1], staged[-1]
    assert added
    assert (commit.totals.messages, commit.totals.requests) == (
        400 - len(frame.decode_run(carried)),
        len(added),
    )
    assert commit.totals.checksum == crc32c(b"".join(added))
    assert broker.values(1) == LINES * 2


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"compression": "snappy"}, "'zstd', 'lz4' and None are known"),
        ({"compression": "zstd", "compression_level": 99}, "-7 to 19"),
        ({"compression_level": 3}, "compression None"),
    ],
)
def test_a_wrong_choice_is_refused_before_anything_is_opened(choice, says):
    """In every client, and without a broker: nothing listens there."""
    nowhere = "tcp:127.0.0.1:1"
    with pytest.raises(errors.InvalidSetting, match=says):
        connect(nowhere, timeout=0.1, **choice)
    with pytest.raises(errors.InvalidSetting, match=says):
        failed(twisted.connect(nowhere, reactor=object(), **choice))


@by_name
def test_a_missing_package_is_said_when_the_client_connects(name, monkeypatch):
    codec = next(codec for codec in CODECS.values() if codec.name == name)
    monkeypatch.setitem(sys.modules, codec.module, None)
    nowhere = "tcp:127.0.0.1:1"
    for api in (
        lambda: connect(nowhere, timeout=0.1, compression=name),
        lambda: asyncio.run(client_asyncio.connect(nowhere, timeout=0.1, compression=name)),
        lambda: failed(twisted.connect(nowhere, reactor=object(), compression=name)),
    ):
        with pytest.raises(errors.CompressionUnavailable, match=rf"nothing was opened.*txbroker\[{name}\]"):
            api()


# -- reading -----------------------------------------------------------------------------------------


def reader(rig, **choices):
    core = ConsumerCore(rig.shared_fetch, consumer_options("t", None, follow=False, **choices), "me")
    core.look()
    rig.pump()
    return core


def taken(core, rig):
    found = []
    while not core.finished:
        delivery = core.look()
        rig.pump()
        if delivery is not None:
            found += [message.offset for message in delivery.some()]
    return found


@by_name
def test_a_consumer_begins_in_the_middle_of_a_batch(broker, name):
    rig = rig_of(broker, name)
    send_all(rig, LINES)
    assert taken(reader(rig, start=77), rig) == list(range(77, 200))


@by_name
def test_a_consumer_opens_no_more_than_may_wait_and_one_batch(broker, name):
    """50 KiB on the wire are 20 MB here: what is not asked for yet stays as it came."""
    rig = rig_of(broker, name, batch_bytes=0)
    send_all(rig, [bytes(900_000)] * 24)
    core = reader(rig, prefetch=3 << 20)
    fetches = sum(type(request) is Fetch for request in broker.requests)
    assert 3 << 20 <= core._ahead.size < (3 << 20) + (2 << 20)
    assert taken(core, rig) == list(range(24))
    assert sum(type(request) is Fetch for request in broker.requests) == fetches == 1


def test_what_cannot_be_opened_is_an_error_at_its_place_and_all_before_it_is_read(broker):
    rig = rig_of(broker, "zstd")
    broker.append(1, memoryview(frame.encode(b"before", 1)))
    broken = frame.encode_wrapper(SIZE.pack(100) + b"not what it says it is", 2, 1, 1)
    broker.append(1, memoryview(broken))
    core = reader(rig)
    assert [message.value for message in core.look().some()] == [b"before"]
    for _ in range(2):  # and again, for whoever goes on asking
        with pytest.raises(errors.InvalidFrame, match="the wrapper at offset 1 cannot be opened by zstd"):
            taken(core, rig)


def test_a_consumer_without_the_package_says_so_and_goes_on_once_it_is_there(broker, monkeypatch):
    rig = rig_of(broker, "lz4")
    send_all(rig, LINES)
    core = reader(rig, start=100)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "lz4.block", None)
        core = reader(rig, start=100)
        with pytest.raises(errors.CompressionUnavailable, match=r"offset 1 is compressed: .*txbroker\[lz4\]"):
            taken(core, rig)
    assert taken(core, rig) == list(range(100, 200))


@by_name
def test_a_read_gives_about_as_many_bytes_as_were_asked_for_and_not_all_that_comes_out(broker, name):
    rig = rig_of(broker, name, batch_bytes=0)
    send_all(rig, [bytes(900_000)] * 10)
    for wanted, given in ((1, 2), (1 << 20, 2), (3 << 20, 4), (100 << 20, 10)):
        found = rig.run(rig.operations.read("t", 0, 0, wanted, 0.0))
        assert [message.offset for message in found] == list(range(given))
