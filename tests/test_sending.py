import pytest

from journal.frame import decode_run
from tests.broker_room import Room, frames, refused
from txbroker import commands

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
    opened = peer.ask(commands.OpenProducer, name)
    return {"producer_id": opened.producer_id, "epoch": opened.epoch}


def test_a_send_is_answered_once_forced_with_its_first_offset(room, partition):
    peer = room.peer()
    first = peer.tell(commands.Send, partition, data=frames(b"a", b"b"))
    second = peer.tell(commands.Send, partition, data=frames(b"c"))
    assert peer.answers == []
    room.engine.sync()
    assert peer.answer(first) == commands.Sent(first, 0)
    assert peer.answer(second) == commands.Sent(second, 2)
    assert values(room, partition) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("data", [b"", b"nonsense", frames(b"a")[:-1], frames(b"a") + b"x", bytes(36)])
def test_what_is_not_a_run_of_frames_is_refused_and_nothing_stored(room, partition, data):
    refused(room.peer().ask(commands.Send, partition, data=data), "InvalidFrame")
    assert room.engine.catalog.stores[partition].end_offset == 0


def test_an_unknown_partition_is_refused(room, partition):
    for number in (0, -1, partition + 1, 1 << 60):
        refused(room.peer().send(number, b"a"), "UnknownPartition")


def test_a_frame_over_the_limit_of_broker_or_topic_is_refused():
    room = Room(max_frame=2000)
    [wide] = room.topic("wide")
    [narrow] = room.topic("narrow", max_message_bytes=1000)
    peer = room.peer()
    assert "2000" in refused(peer.send(wide, b"x" * 2000), "MessageTooLarge")
    assert "1000" in refused(peer.send(narrow, b"x" * 1000), "MessageTooLarge")
    assert isinstance(peer.send(wide, b"x" * 1000), commands.Sent)


def test_a_repeated_send_is_answered_as_the_first_time_and_stored_once(room, partition):
    peer = room.peer()
    mine = producer(peer)
    assert peer.send(partition, b"a", b"b", **mine).base_offset == 0
    assert peer.send(partition, b"c", sequence=2, **mine).base_offset == 2
    assert room.peer().send(partition, b"a", b"b", **mine).base_offset == 0
    assert values(room, partition) == [b"a", b"b", b"c"]
    assert room.broker.sending.repeats == 1


def test_a_repetition_waits_for_the_force_of_the_first(room, partition):
    peer, other = room.peer(), room.peer()
    mine = producer(peer)
    peer.tell(commands.Send, partition, data=frames(b"a"), **mine)
    repeated = other.tell(commands.Send, partition, data=frames(b"a"), **mine)
    assert other.answers == []
    room.engine.sync()
    assert other.answer(repeated).base_offset == 0


def test_a_repetition_is_recognized_after_a_restart(room, partition):
    peer = room.peer()
    mine = producer(peer)
    peer.send(partition, b"a", **mine)
    room.restart()
    peer = room.peer()
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
    assert isinstance(peer.send(partition, b"a", **new), commands.Sent)
    assert producer(peer)["producer_id"] != producer(peer)["producer_id"]


def test_an_unknown_producer_is_refused(room, partition):
    refused(room.peer().send(partition, b"a", producer_id=99), "UnknownProducer")


@pytest.mark.parametrize("name", ["x" * 256, "a\nb", "\x7f"])
def test_a_producer_name_is_short_and_printable(room, name):
    refused(room.peer().ask(commands.OpenProducer, name), "InvalidName")


def test_at_the_limit_idle_producers_go_before_new_ones_are_refused():
    room = Room(max_producers=2, producer_idle=1_000_000)
    peer = room.peer()
    first, second = producer(peer, "a"), producer(peer, "b")
    refused(peer.ask(commands.OpenProducer, "c"), "LimitExceeded")
    room.clock.advance(500_000)
    assert producer(peer, "b")["producer_id"] == second["producer_id"]
    room.clock.advance(500_001)
    assert producer(peer, "c")["producer_id"] > second["producer_id"]
    assert first["producer_id"] not in room.broker.producers.producers


def test_pairs_of_producer_and_partition_are_bounded():
    room = Room(max_producer_partitions=1)
    one, two = room.topic(partitions=2)
    peer = room.peer()
    mine = producer(peer)
    peer.send(one, b"a", **mine)
    refused(peer.send(two, b"a", **mine), "LimitExceeded")
    assert isinstance(peer.send(one, b"b", sequence=1, **mine), commands.Sent)


def test_a_full_disk_refuses_new_messages_but_not_repetitions(room, partition):
    peer = room.peer()
    mine = producer(peer)
    peer.send(partition, b"a", **mine)
    room.engine.full_at = -1
    refused(peer.send(partition, b"b", sequence=1, **mine), "DiskFull")
    refused(peer.send(partition, b"b"), "DiskFull")
    refused(peer.ask(commands.OpenProducer), "DiskFull")
    refused(peer.ask(commands.CreateTopic, "t", 1, commands.TopicSettings()), "DiskFull")
    assert peer.send(partition, b"a", **mine).base_offset == 0
