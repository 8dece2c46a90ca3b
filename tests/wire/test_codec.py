"""Test the wire's framing: cuts do not matter, and hostile bytes give one kind of error, in bounded memory.

Seen to fail: without RecursionError in `_message` a nested head escapes; with pieces kept in a list the 4 MiB sent
in bytes of two take 100 MiB; with `_needed` never raised the bytewise feed is quadratic.
"""

import functools
import itertools
import struct
import tracemalloc
import typing

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from journal.constants import MAX_FRAME, MAX_PARTITIONS_PER_TOPIC, MIB
from journal.formats.envelope import ID_BITS
from journal.formats.frame import encode
from journal.formats.frame_check import check_run
from journal.records.access_entries import (
    HASH_BYTES,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    AccessKey,
    Effect,
    Quotas,
    Resource,
    Right,
    Rule,
    ScramVerifier,
    TokenSubject,
    User,
    UserName,
)
from journal.records.group_entries import (
    MAX_ATTEMPTS,
    MAX_PAUSE,
    Ending,
    GroupPositions,
    GroupSettings,
    Offset,
    PartitionOffset,
    Retried,
    RetryRules,
    Settled,
    Unfinished,
)
from journal.records.queue_entries import (
    MAX_PRIORITY,
    Binding,
    Duration,
    ExchangeSettings,
    Priority,
    Queue,
    QueueSettings,
)
from journal.records.record import (
    NONCE_BYTES,
    Count,
    Nonce,
    Partitions,
    PartitionsAdded,
    Placement,
    Published,
    Run,
    Some,
)
from journal.records.schedule_records import Scheduled, ScheduledId, TakenBack
from journal.records.stream_entries import MAX_TABLE, STREAM_BYTES, Delivered, Number, StreamId, TableName
from tests.support.thoroughness import examples
from txbroker.errors import PeerViolation
from txbroker.wire import messages as commands
from txbroker.wire.codec import ArrayPieces, answer_decoder, encode_parts, request_decoder
from txbroker.wire.codec import encode as encode_message
from txbroker.wire.newer_request import NewerRequest

MAX_DATA = 16 * MIB
KINDS = [*typing.get_args(commands.AnyRequest), *typing.get_args(commands.AnyAnswer)]
HELLO = encode_message(commands.Hello(1, commands.MAGIC, list(commands.VERSIONS), "tester"))


def requests():
    """Any request with any fields, as msgspec's own types describe them."""
    kinds = [kind for kind in KINDS if issubclass(kind, commands.Request)]
    return st.one_of([values_of(kind) for kind in kinds])


Address = typing.get_type_hints(Published, include_extras=True)["address"]
Arguments = typing.get_type_hints(Binding, include_extras=True)["arguments"]
PARTS = (
    Run,
    Placement,
    PartitionOffset,
    PartitionsAdded,
    Unfinished,
    Retried,
    Settled,
    GroupPositions,
    GroupSettings,
    Delivered,
    TakenBack,
    QueueSettings,
    Queue,
    ExchangeSettings,
    Binding,
    commands.FetchedPartition,
    commands.Reader,
    commands.QueueInfo,
    commands.ExchangeInfo,
)
"""What records and messages have lists of; each after those that it has."""

NAMES = st.text("aZ09._-", min_size=1, max_size=4)
HASHES = st.binary(min_size=HASH_BYTES, max_size=HASH_BYTES)


NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1)
WORDS = st.text(max_size=4)


@functools.cache
def register_types():
    """Have hypothesis make what messages and records consist of within its bounds; once, it takes 0.1 s."""
    st.register_type_strategy(int, NUMBERS)
    st.register_type_strategy(str, WORDS)
    pauses = st.integers(0, MAX_PAUSE)
    attempts, endings = st.integers(1, MAX_ATTEMPTS), st.sampled_from(Ending)
    st.register_type_strategy(RetryRules, st.builds(RetryRules, attempts, pauses, pauses, endings, WORDS))
    register_access_entries(WORDS)
    for part in PARTS:
        st.register_type_strategy(part, values_of(part))


def register_access_entries(words):
    """Have users and rules made with what they may have."""
    identities, effects, resources = (
        st.text(min_size=1, max_size=4),
        st.sampled_from(Effect),
        st.sampled_from(Resource),
    )
    iterations = st.integers(LEAST_ITERATIONS, MOST_ITERATIONS)
    verifiers = st.builds(ScramVerifier, st.binary(min_size=16, max_size=64), iterations, HASHES, HASHES)
    subjects = st.builds(TokenSubject, identities, identities)
    ways, roles = (
        (st.lists(identities, max_size=2), st.lists(subjects, max_size=2)),
        st.lists(NAMES, max_size=2),
    )
    holders = NAMES | NAMES.map("role:{}".format)
    rights = st.lists(st.sampled_from(Right), max_size=3)
    st.register_type_strategy(TokenSubject, subjects)
    limits = st.none() | st.integers(1, 1 << 40)
    quotas = st.builds(Quotas, *[limits] * len(Quotas.__struct_fields__))
    st.register_type_strategy(Quotas, quotas)
    st.register_type_strategy(User, st.builds(User, NAMES, st.none() | verifiers, *ways, roles, quotas))
    st.register_type_strategy(
        Rule, st.builds(Rule, holders, effects, resources, words, st.booleans(), rights)
    )


@functools.cache
def values_of(kind):
    """Values of a message, a record or a part of one, as its annotations describe them."""
    if kind not in PARTS:
        register_types()
    hints = typing.get_type_hints(kind, include_extras=True).items()
    for _, hint in hints:
        for each in typing.get_args(hint):
            if isinstance(each, type) and issubclass(each, commands.Request):  # else a default may be made up
                st.register_type_strategy(each, values_of(each))
    nonces = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)
    counts, offsets = st.integers(0, (1 << 64) - 1), st.integers(0, 1 << 62)
    bounded = {Nonce: nonces, Count: counts, Some: st.integers(1, (1 << 64) - 1), Offset: offsets}
    bounded[Count | None] = st.none() | counts
    bounded[Duration | None] = st.none() | st.integers(0, 10 * MAX_PAUSE)
    bounded[Priority] = st.integers(0, MAX_PRIORITY)
    bounded[StreamId] = st.binary(min_size=STREAM_BYTES, max_size=STREAM_BYTES)
    bounded[TableName] = st.text(min_size=1, max_size=MAX_TABLE)
    bounded[Number] = st.integers(1, (1 << 64) - 1)
    bounded[Address] = st.integers(-(1 << 63), -2)
    scalars = st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False) | st.binary(max_size=3)
    bounded[Arguments] = st.lists(st.tuples(WORDS, scalars), max_size=2).map(tuple)
    bounded[Partitions] = st.integers(1, MAX_PARTITIONS_PER_TOPIC)
    places = st.tuples(st.integers(0, (1 << ID_BITS) - 1), counts)
    bounded |= {list[Scheduled]: st.lists(places, max_size=3), list[Count]: st.lists(counts, max_size=3)}
    bounded[list[ScheduledId]] = st.lists(st.integers(0, (1 << ID_BITS) - 1), max_size=3)
    bounded |= {UserName: NAMES, AccessKey: HASHES}
    known = {
        name: bounded[hint] if hint in bounded else st.from_type(hint)
        for name, hint in hints
        if name in kind.__struct_fields__
    }
    return st.builds(kind, **known)


MESSAGES = st.lists(st.tuples(st.deferred(requests), st.binary(max_size=30)), min_size=1, max_size=4)


def decoded(pieces, decoder=None):
    decoder = decoder or request_decoder(MAX_DATA)
    return [(head, bytes(data)) for piece in pieces for head, data in decoder.feed(piece)]


def raw(head, data=b"", total=None, head_length=None, data_length=None):
    """A message of these bytes whose lengths say what they are told to."""
    head_length = len(head) if head_length is None else head_length
    data_length = len(data) if data_length is None else data_length
    total = len(head) + len(data) + commands.OVERHEAD if total is None else total
    return struct.pack(">II", total, head_length) + head + struct.pack(">I", data_length) + data


@given(MESSAGES)
def test_one_byte_at_a_time_gives_what_all_at_once_gives(messages):
    stream = b"".join(encode_message(head, data) for head, data in messages)
    assert decoded([stream]) == messages
    assert decoded([stream[n : n + 1] for n in range(len(stream))]) == messages


@given(MESSAGES, st.lists(st.integers(0, 500), max_size=8))
def test_any_cut_gives_what_all_at_once_gives(messages, cuts):
    stream = b"".join(encode_message(head, data) for head, data in messages)
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    assert decoded([stream[a:b] for a, b in itertools.pairwise(edges)]) == messages


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_comes_back_as_it_was(kind):
    @settings(max_examples=examples(20))
    @given(values_of(kind), st.binary(max_size=5))
    def round_trip(head, data):
        decoder = (request_decoder if issubclass(kind, commands.Request) else answer_decoder)(MAX_DATA)
        assert decoded([encode_message(head, data)], decoder) == [(head, data)]

    round_trip()


def test_a_message_of_pieces_has_the_bytes_of_one_made_whole():
    head = commands.Sent(1, 7)
    assert b"".join(encode_parts(head, [b"ab", b"", b"c"])) == encode_message(head, b"abc")
    assert b"".join(encode_parts(head, [])) == encode_message(head)


def test_data_stay_as_they_were_however_much_follows():
    decoder = request_decoder(MAX_DATA)
    message = encode_message(commands.Send(1, 1), b"first")
    found = decoder.feed(message[:9]) + decoder.feed(message[9:] + message[:20])
    (_, data) = found[0]
    for _ in range(3):
        decoder.feed(message[20:] + message[:20])
    assert bytes(data) == b"first"


def test_a_frame_of_16_MiB_passes_and_one_byte_more_of_data_does_not():
    frame = encode(b"x" * (MAX_FRAME - 44), 1)
    message = encode_message(commands.Send(1, 1), frame)
    pieces = [message[n : n + 65536] for n in range(0, len(message), 65536)]
    decoder = request_decoder(MAX_DATA)
    found = [each for piece in pieces for each in decoder.feed(piece)]
    assert [head for head, _ in found] == [commands.Send(1, 1)]
    assert check_run(found[0][1]) == 1
    with pytest.raises(PeerViolation, match="16777216 of data are allowed"):
        request_decoder(MAX_DATA).feed(encode_message(commands.Ping(1), bytes(MAX_DATA + 1))[:8])
    claim = struct.pack(">I", commands.MAX_HEAD + MAX_DATA + commands.OVERHEAD + 1)
    with pytest.raises(PeerViolation, match="17825801 bytes"):
        request_decoder(MAX_DATA).feed(claim)


HEAD = HELLO[8:-4]
NESTED = b"\x96\x01\x01\xa1a\x90\xa1a" + b"\x91" * 100_000 + b"\x01"
LIES = {
    "nothing in it": raw(b"", total=8),
    "total of zero": bytes(4),
    "total of 4 GiB": b"\xff" * 4,
    "a head of 4 GiB": raw(HEAD, head_length=0xFFFFFFFF),
    "a head one longer than there is room": raw(HEAD, head_length=len(HEAD) + 1),
    "a head shorter than it is": raw(HEAD, head_length=len(HEAD) - 1),
    "a head over a mebibyte": raw(b"", total=MAX_DATA, head_length=commands.MAX_HEAD + 1),
    "data longer than they are": raw(HEAD, data_length=1),
    "data of 4 GiB": raw(HEAD, data_length=0xFFFFFFFF),
    "data shorter than they are": raw(HEAD, b"abc", data_length=2),
    "an empty head": raw(b"", b"abc"),
    "no array": raw(b"\x01"),
    "no tag": raw(b"\x90"),
    "an answer sent to a broker": encode_message(commands.Done(1)),
    "a field missing": raw(b"\x92\x01\x01"),
    "a field of another type": raw(b"\x94\x01\x01\x01\x90"),
    "a list of 2^32 versions": raw(b"\x94\x01\x01\xa8txbroker\xdd\xff\xff\xff\xff\x01"),
    "a text of 2 GiB": raw(b"\x94\x01\x01\xdb\x80\0\0\0abc"),
    "a text that is no UTF-8": raw(b"\x94\x01\x01\xa1\xff\x90"),
    "a correlation beyond 64 bits": raw(b"\x92\x02\xcb\x7f\xf0\0\0\0\0\0\0"),
    "nesting without end": raw(NESTED),
    "bytes after the head": raw(HEAD + b"\xc0"),
    "another protocol": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("size", [3, 1 << 20])
def test_a_lie_is_a_violation_and_nothing_is_taken_after_it(name, size):
    decoder = request_decoder(MAX_DATA)
    data = LIES[name]
    with pytest.raises(PeerViolation) as caught:
        decoded([data[n : n + size] for n in range(0, len(data), size)], decoder)
    with pytest.raises(PeerViolation, match=r".") as again:
        decoder.feed(HELLO)
    assert str(again.value) == str(caught.value)


@pytest.mark.parametrize(
    ("start", "words"),
    [(raw(HEAD, total=7)[:4], "7 bytes"), (raw(HEAD, total=99, head_length=92)[:8], "its head has 92")],
)
def test_a_length_that_cannot_be_is_refused_when_it_is_there_not_when_all_has_come(start, words):
    with pytest.raises(PeerViolation, match=words):
        decoded([start[:3], start[3:]])


def test_a_request_with_a_field_from_a_later_version_is_not_read_without_it():
    assert decoded([raw(b"\x93\x02\x07\xa5later")]) == [(NewerRequest(7, 2, 1), b"")]


def test_an_answer_with_a_field_from_a_later_version_is_read_without_it():
    tag = commands.Done.__struct_config__.tag
    [(answer, _)] = answer_decoder(1 << 20).feed(raw(bytes((0x93, tag)) + b"\x07\xa5later"))
    assert answer == commands.Done(7)


def outcome_of(data):
    """Whatever the bytes are: messages, or a violation that stays; never anything else."""
    try:
        found = decoded([data])
    except PeerViolation:
        return None
    for head, _ in found:
        assert isinstance(head, commands.Request)
    return found


@given(st.binary(max_size=100))
@example(b"\0" * 50)
@example(b"\xff" * 50)
def test_garbage_is_a_violation_or_waits_for_more(data):
    outcome_of(data)


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=4),
    st.binary(max_size=4),
)
LISTS = st.lists(LEAVES, max_size=4)
MAPS = st.dictionaries(st.text(max_size=3) | st.integers(0, 9), LEAVES, max_size=2)
FIELDS = LEAVES | LISTS | st.lists(LISTS, max_size=2) | MAPS


@given(
    st.integers(0, 130),
    st.lists(FIELDS, max_size=9),
    st.binary(max_size=5),
)
def test_heads_of_the_wrong_shape_are_violations_or_requests(tag, fields, data):
    outcome_of(raw(msgspec.msgpack.encode([tag, *fields]), data))


@given(MESSAGES, st.data())
def test_a_changed_byte_in_valid_messages_makes_a_violation_or_other_messages(messages, data):
    stream = bytearray(b"".join(encode_message(head, part) for head, part in messages))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    outcome_of(bytes(stream))


@given(MESSAGES, st.data())
def test_bytes_put_in_or_left_out_make_a_violation_or_other_messages(messages, data):
    stream = b"".join(encode_message(head, part) for head, part in messages)
    start = data.draw(st.integers(0, len(stream)))
    end = data.draw(st.integers(start, len(stream)))
    outcome_of(stream[:start] + data.draw(st.binary(max_size=10)) + stream[end:])


def peak_of(feed):
    tracemalloc.start()
    try:
        feed()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_claiming_much_reserves_nothing():
    claims = [
        struct.pack(">II", MAX_DATA, 100) + b"\x96",
        raw(b"\x94\x01\x01\xdb\x80\0\0\0abc"),
        raw(b"\x94\x01\x01\xa8txbroker\xdd\xff\xff\xff\xff\x01"),
    ]

    def feed():
        for claim in claims:
            outcome_of(claim)

    assert peak_of(feed) < MIB


@pytest.mark.slow
def test_a_message_in_tiny_pieces_takes_no_more_than_its_size_and_a_half():
    size = MIB // 4
    message = encode_message(commands.Send(1, 1), bytes(size))
    decoder = request_decoder(MAX_DATA)

    def feed():
        for n in range(0, len(message) - 2, 2):
            assert not decoder.feed(message[n : n + 2])

    assert peak_of(feed) < 1.5 * size


def test_a_peer_of_another_protocol_is_told_by_its_first_bytes() -> None:
    with pytest.raises(PeerViolation, match=r"begins with b'HTTP': is txbroker what speaks there\?"):
        answer_decoder(MAX_DATA).feed(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(
    ("count", "at_a_time"),
    [
        *itertools.product([0, 1, 15, 16, 300], [1, 15, 16, 256, 100_000]),
        *itertools.product([65_535, 65_536, 70_000], [256, 100_000]),
    ],
)
def test_an_array_in_pieces_has_the_bytes_that_it_has_in_one(count, at_a_time):
    found, wanted = ArrayPieces(), [(number, 2 * number) for number in range(count)]
    for first in range(0, count, at_a_time):
        found.add(wanted[first : first + at_a_time])
    assert encode_message(commands.Offsets(1, found.joined())) == encode_message(commands.Offsets(1, wanted))
