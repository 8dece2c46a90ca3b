import pytest
from msgspec.structs import replace

from journal.errors import CorruptSegment
from journal.formats import frame
from journal.formats.compression import compressor
from journal.formats.frame import decode_run
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.records.record import LogStartMoved
from journal.testing.memory import MemoryFile
from tests.support.broker_room import Peer, Room, frames, refused
from tests.support.engine_room import contents
from txbroker.wire import messages
from txbroker.wire.secret import SECRET_BYTES, Secret

MAX = 1 << 20


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


def values(room, partition):
    store = room.engine.catalog.stores[partition]
    return [message.value for message in decode_run(store.read(0, MAX))]


def producer(peer, name=""):
    opened = peer.ask(messages.OpenProducer, name)
    return {"producer_id": opened.producer_id, "epoch": opened.epoch}


def test_a_send_is_answered_once_forced_with_its_first_offset(room, partition):
    peer = room.peer()
    first = peer.tell(messages.Send, partition, data=frames(b"a", b"b"))
    second = peer.tell(messages.Send, partition, data=frames(b"c"))
    assert peer.answers == []
    room.engine.sync()
    assert peer.answer(first) == messages.Sent(first, 0)
    assert peer.answer(second) == messages.Sent(second, 2)
    assert values(room, partition) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("data", [b"", b"nonsense", frames(b"a")[:-1], frames(b"a") + b"x", bytes(36)])
def test_what_is_not_a_run_of_frames_is_refused_and_nothing_stored(room, partition, data):
    refused(room.peer().ask(messages.Send, partition, data=data), "InvalidFrame")
    assert room.engine.catalog.stores[partition].end_offset == 0


def test_an_unknown_partition_is_refused(room, partition):
    for number in (0, partition + 1, 1 << 60):
        refused(room.peer().send(number, b"a"), "UnknownPartition")
    for number in (-1, -99, -1 << 60):
        refused(room.peer().send(number, b"a"), "UnknownExchange")


def test_a_frame_over_the_limit_of_broker_or_topic_is_refused():
    room = Room(max_frame=2000)
    [wide] = room.topic("wide")
    [narrow] = room.topic("narrow", max_message_bytes=1000)
    peer = room.peer()
    assert "2000" in refused(peer.send(wide, b"x" * 2000), "MessageTooLarge")
    assert "1000" in refused(peer.send(narrow, b"x" * 1000), "MessageTooLarge")
    assert isinstance(peer.send(wide, b"x" * 1000), messages.Sent)


def test_a_repeated_send_is_answered_as_the_first_time_and_stored_once(room, partition):
    peer = room.peer()
    mine = producer(peer)
    assert peer.send(partition, b"a", b"b", **mine).base_offset == 0
    assert peer.send(partition, b"c", sequence=2, **mine).base_offset == 2
    assert peer.again().send(partition, b"a", b"b", **mine).base_offset == 0
    assert values(room, partition) == [b"a", b"b", b"c"]
    assert room.broker.sending.repeats == 1


@pytest.mark.parametrize("lowered", ["topic", "check"])
def test_a_repetition_of_what_the_topic_took_before_is_answered_as_the_first_time(lowered):
    room = Room()
    [partition] = room.topic(check_compressed=0)
    peer = room.peer()
    mine = producer(peer)
    data = frames(b"x" * 2000) if lowered == "topic" else wrong_wrapper()
    changes = {"max_message_bytes": 1000} if lowered == "topic" else {"check_compressed": 1}
    assert peer.ask(messages.Send, partition, data=data, **mine).base_offset == 0
    peer.ask(messages.AlterTopic, "orders", room.topic_id(), changes)
    peer = peer.again()
    assert peer.ask(messages.Send, partition, data=data, **mine).base_offset == 0
    error = "MessageTooLarge" if lowered == "topic" else "InvalidFrame"
    after = room.engine.catalog.stores[partition].end_offset
    refused(peer.ask(messages.Send, partition, data=data, **mine | {"sequence": after}), error)
    refused(peer.ask(messages.Send, partition, data=data), error)
    assert room.engine.catalog.stores[partition].end_offset == after


def wrong_wrapper():
    """A compressed wrapper that holds one message and says two."""
    inner = frame.encode_inner(0, b"x" * 2000, 1, None, None)
    compressing = compressor("zstd")
    return frame.encode_wrapper(compressing.pack(inner), 2, 1, compressing.number)


def test_a_repetition_waits_for_the_force_of_the_first(room, partition):
    peer = room.peer()
    mine = producer(peer)
    peer.tell(messages.Send, partition, data=frames(b"a"), **mine)
    other = peer.again()
    repeated = other.tell(messages.Send, partition, data=frames(b"a"), **mine)
    assert other.answers == []
    room.engine.sync()
    assert other.answer(repeated).base_offset == 0


def test_a_repetition_is_recognized_after_a_restart(room, partition):
    peer = room.peer()
    mine = producer(peer)
    peer.send(partition, b"a", **mine)
    room.restart()
    peer = peer.again()
    assert peer.send(partition, b"a", **mine).base_offset == 0
    assert peer.send(partition, b"b", sequence=1, **mine).base_offset == 1


def test_a_gap_is_refused_and_the_answer_has_the_sequence_expected(room, partition):
    peer = room.peer()
    mine = producer(peer)
    peer.send(partition, b"a", **mine)
    answer = peer.send(partition, b"c", sequence=2, **mine)
    refused(answer, "SequenceOutOfOrder")
    assert answer.numbers == {"expected": 1}


def test_a_name_fences_its_earlier_holder_and_the_nameless_never_meet(room, partition):
    peer = room.peer()
    old, new = producer(peer, "billing"), producer(peer, "billing")
    assert (new["producer_id"], new["epoch"]) == (old["producer_id"], old["epoch"] + 1)
    refused(peer.send(partition, b"a", **old), "ProducerFenced")
    assert isinstance(peer.send(partition, b"a", **new), messages.Sent)
    assert producer(peer)["producer_id"] != producer(peer)["producer_id"]


class TestWhoseAProducerIs:
    """Ids and sequences are small numbers: a stranger's send must not be acknowledged as mine, or be in its place."""

    def test_a_session_that_did_not_open_it_is_refused_and_nothing_stored(self, room, partition):
        peer, stranger = room.peer(), room.peer()
        mine = producer(peer)
        said = refused(stranger.send(partition, b"evil", **mine), "UnknownProducer")
        assert "another secret" in said
        assert "nothing was stored" in said
        peer.send(partition, b"a", **mine)
        refused(stranger.send(partition, b"a", **mine), "UnknownProducer")
        refused(stranger.send(partition, b"evil", sequence=1, **mine), "UnknownProducer")
        assert peer.send(partition, b"b", sequence=1, **mine).base_offset == 1
        assert values(room, partition) == [b"a", b"b"]

    def test_its_client_goes_on_over_connections_starts_and_checkpoints(self, room, partition):
        peer = room.peer()
        mine = producer(peer)
        for sequence in range(8):
            assert peer.send(partition, b"%d" % sequence, sequence=sequence, **mine).base_offset == sequence
            if sequence % 2:
                peer.leave()
            if sequence in (2, 3, 6):
                room.restart()
            if sequence == 5:
                room.engine.housekeeping.request_checkpoint()
                room.engine.housekeeping.run_inline()
            peer = peer.again()
        stranger = room.peer()
        refused(stranger.send(partition, b"evil", sequence=8, **mine), "UnknownProducer")

    def test_after_a_start_a_former_session_proves_nothing_without_its_secret(self, room, partition):
        peer = room.peer()
        mine = producer(peer)
        room.restart()
        for secret in (b"", b"x", bytes(SECRET_BYTES)):
            thief = Peer(room, after=replace(peer.former, secret=Secret(secret)))
            refused(thief.send(partition, b"evil", **mine), "UnknownProducer")
        assert isinstance(peer.again().send(partition, b"a", **mine), messages.Sent)

    def test_a_secret_of_no_use_is_not_gone_on_with(self, room):
        peer = room.peer()
        peer.leave()
        for secret in (b"", b"x", bytes(SECRET_BYTES + 1)):
            other = Peer(room, after=replace(peer.former, secret=Secret(secret)))
            assert len(other.former.secret.value) == SECRET_BYTES
        assert peer.again().former.secret == peer.former.secret

    def test_a_name_is_anybodys_and_who_had_it_before_is_fenced(self, room, partition):
        first, second = room.peer(), room.peer()
        old, new = producer(first, "billing"), producer(second, "billing")
        refused(first.send(partition, b"a", **old), "ProducerFenced")
        refused(first.send(partition, b"a", **new), "UnknownProducer")
        assert isinstance(second.send(partition, b"a", **new), messages.Sent)
        room.restart()
        refused(first.again().send(partition, b"a", **old), "ProducerFenced")
        assert isinstance(second.again().send(partition, b"b", sequence=1, **new), messages.Sent)

    @pytest.mark.slow
    def test_no_record_has_the_secret(self, room, partition):
        peer = room.peer()
        producer(peer)
        room.engine.housekeeping.request_checkpoint()
        room.engine.housekeeping.run_inline()
        written = b"".join(contents(room.filesystem).values())
        assert peer.former.secret.owner("anonymous") in written
        assert peer.former.secret.value not in written


def test_an_unknown_producer_is_refused(room, partition):
    refused(room.peer().send(partition, b"a", producer_id=99), "UnknownProducer")


@pytest.mark.parametrize("name", ["x" * 256, "a\nb", "\x7f"])
def test_a_producer_name_is_short_and_printable(room, name):
    refused(room.peer().ask(messages.OpenProducer, name), "InvalidName")


class TestAnotherContent:
    """A sequence that is used twice is told, as long as the broker has at hand what it was used for."""

    @pytest.fixture(params=["memory", "segment", "both"])
    def sent(self, request, room, partition):
        """A peer that has sent a, b and c in two requests; it and its producer."""
        peer = room.peer()
        mine = producer(peer)
        peer.send(partition, b"a", b"b", **mine)
        if request.param == "both":
            room.flush()
        peer.send(partition, b"c", sequence=2, **mine)
        if request.param == "segment":
            room.flush()
        return peer, mine

    def test_the_same_is_answered_as_the_first_time(self, room, partition, sent):
        peer, mine = sent
        assert peer.send(partition, b"a", b"b", **mine).base_offset == 0
        assert peer.send(partition, b"a", b"b", b"c", **mine).base_offset == 0
        assert peer.send(partition, b"b", b"c", sequence=1, **mine).base_offset == 1
        assert room.engine.catalog.stores[partition].end_offset == 3

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("sequence", "again"),
        [(0, [b"A"]), (0, [b"a", b"B"]), (1, [b"a"]), (2, [b"longer"]), (0, [b"a", b"b", b"C"])],
    )
    def test_another_content_is_refused_and_nothing_stored(self, room, partition, sent, sequence, again):
        peer, mine = sent
        said = refused(peer.send(partition, *again, sequence=sequence, **mine), "SequenceOutOfOrder")
        assert f"stored at offset {sequence}, with another content" in said
        assert room.engine.catalog.stores[partition].end_offset == 3
        assert isinstance(peer.send(partition, b"d", sequence=3, **mine), messages.Sent)

    def test_also_of_what_is_not_forced_yet(self, room, partition):
        peer = room.peer()
        mine = producer(peer)
        peer.tell(messages.Send, partition, data=frames(b"a"), **mine)
        same = peer.tell(messages.Send, partition, data=frames(b"a"), **mine)
        other = peer.tell(messages.Send, partition, data=frames(b"b"), **mine)
        room.engine.sync()
        assert peer.answer(same).base_offset == 0
        refused(peer.answer(other), "SequenceOutOfOrder")

    def test_what_would_wait_for_the_disk_is_not_compared(self, room, partition, monkeypatch):
        peer = room.peer()
        mine = producer(peer)
        peer.send(partition, b"a", **mine)
        room.flush()
        monkeypatch.setattr(MemoryFile, "read_now", lambda *_: None)
        assert peer.send(partition, b"A", **mine).base_offset == 0

    def test_what_retention_took_is_not_compared(self, room, partition):
        peer = room.peer()
        mine = producer(peer)
        peer.send(partition, b"a", **mine)
        peer.send(partition, b"b", sequence=1, **mine)
        room.flush()
        room.engine.accept(LogStartMoved(partition, 1, room.engine.now()))
        room.engine.sync()
        assert peer.send(partition, b"A", **mine).base_offset == 0
        refused(peer.send(partition, b"B", sequence=1, **mine), "SequenceOutOfOrder")

    def test_what_is_damaged_is_not_compared(self, room, partition):
        peer = room.peer()
        mine = producer(peer)
        peer.send(partition, b"a", **mine)
        room.flush()
        store = room.engine.catalog.stores[partition]
        [path] = [
            path
            for path in contents(room.filesystem)
            if path.startswith(store.directory) and path.endswith("log")
        ]
        file = room.filesystem.open(path)
        file.write_some(SEGMENT_HEADER_BYTES, [bytes(8)])
        with pytest.raises(CorruptSegment):
            store.read(0, MAX)
        assert peer.send(partition, b"A", **mine).base_offset == 0


def test_a_full_disk_refuses_new_messages_but_not_repetitions(room, partition):
    peer = room.peer()
    mine = producer(peer)
    peer.send(partition, b"a", **mine)
    room.engine.full_at = -1
    refused(peer.send(partition, b"b", sequence=1, **mine), "DiskFull")
    refused(peer.send(partition, b"b"), "DiskFull")
    refused(peer.ask(messages.OpenProducer), "DiskFull")
    refused(peer.ask(messages.CreateTopic, "t", 1, messages.TopicSettings()), "DiskFull")
    assert peer.send(partition, b"a", **mine).base_offset == 0
