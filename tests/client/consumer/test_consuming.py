import pytest
from msgspec.structs import replace

from journal.formats.offset_set_bytes import MAX_SPAN, decode_offsets
from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.options import consumer_options
from txbroker.wire import messages
from txbroker.wire.codec import encode
from txbroker.wire.messages import Fetch, FetchedPartition, FetchOffsets


@pytest.fixture
def rig(filled_rig):
    return filled_rig


def consumer(rig, group=None, topics="t", follow=False, **choices):
    if group is not None:
        choices.setdefault(
            "partitions", [0] if topics == "t" else None
        )  # a consumer that claims, and is no member
    return ConsumerCore(rig.shared_fetch, consumer_options(topics, group, follow=follow, **choices), "me")


def drain(rig, core):
    values = []
    while True:
        delivery = core.look()
        rig.pump()
        if delivery is not None:
            values += [message.value for message in delivery.some()]
        elif core.finished:
            return values
        else:
            assert core._chunks or core._failure is not None or core.finished, (
                "the consumer is stuck"
            )  # what look() started has been answered by the pump


def test_it_reads_to_the_end_that_there_was_and_ends(rig):
    assert drain(rig, consumer(rig)) == [b"0", b"1", b"2", b"3", b"4"]


def test_it_starts_at_an_offset(rig):
    assert drain(rig, consumer(rig, start=3)) == [b"3", b"4"]


def test_latest_skips_what_is_there(rig):
    assert drain(rig, consumer(rig, start="latest")) == []


def test_a_group_goes_on_where_it_committed_after_claiming(rig, broker):
    broker.offsets[1] = 4
    core = consumer(rig, "g")
    assert drain(rig, core) == [b"4"]
    kinds = [type(request) for request in broker.requests]
    assert kinds.index(messages.ClaimPartitions) < kinds.index(FetchOffsets)


def test_a_commit_covers_what_was_handed_out_and_no_more(rig, broker):
    core = consumer(rig, "g")
    core.look()
    rig.pump()
    delivery = core.look()
    assert [delivery.one().value for _ in range(2)] == [b"0", b"1"]
    rig.run(core.commits.commit())
    assert broker.offsets == {1: 2}
    assert broker.requests[-1].offsets[0].generation == 1


def test_what_was_handed_out_is_finished_also_after_more_than_a_set_can_have(rig):
    """A consumer with a message that is tried again finishes offset by offset, and may read for months."""
    core = consumer(rig, "g", "t2", partitions=[0])
    core.look()
    rig.pump()
    position = core.positions[2]
    position.finish_singly()
    position.given.add_range(0, MAX_SPAN + 50)
    position.given.discard(MAX_SPAN + 20)
    offsets, [said] = core.commits.settlement()
    finished = decode_offsets(said.finished, said.base)
    assert (offsets, finished.first, finished.end) == ([], 50, MAX_SPAN + 50)
    assert [at.offset for at in core.commits.handed_out()] == [MAX_SPAN + 20]


def test_a_commit_without_a_group_is_misuse(rig):
    with pytest.raises(errors.Misuse):
        rig.run(consumer(rig).commits.commit())


def test_an_offset_that_a_transaction_holds_is_waited_for_and_told_once(rig, broker, caplog):
    held, scripted, hanging = [2], broker.on_fetch, []

    def before(request, data):
        if type(request) is FetchOffsets:
            pending = "7-1 (1:g:b)" if held else ""
            return messages.GroupOffsets(
                request.correlation, [messages.GroupOffset(1, 1, 1, "", pending)], b"g" * 16
            )
        return None

    def on_fetch(session, request, data):
        if request.readers[0].missing and held:
            hanging.append(request)
            return None
        fetched = scripted(session, request, data)
        if fetched is None:
            return None
        [part] = fetched[0].partitions
        offset = request.positions[0][1]
        base = min([offset, *(each[2] for each in request.readers[0].missing)])
        waiting = b"\x02" + bytes([1 << 2 - base]) if held else b""
        return messages.Fetched(request.correlation, [replace(part, waiting=waiting)]), fetched[1]

    broker.before, broker.on_fetch = before, on_fetch
    core = consumer(rig, "g")
    core.look()
    rig.pump()
    assert [message.value for message in core.look().some()] == [b"1"]
    rig.wait(3)
    assert core.look() is None
    [request] = hanging
    assert request.positions == [(1, 3, 3)], "nothing is read, and nothing asked again and again"
    assert request.readers == [messages.Reader("g", 0, [1], [(1, b"\x02\x01", 2)])]
    assert [record.getMessage() for record in caplog.records] == [
        "group g waits at t-0: its offset is held by the undecided transaction 7-1 (1:g:b)"
    ]
    held.clear()
    part = messages.FetchedPartition(1, 0, 3, 0, 5)
    rig.core.received(encode(messages.Fetched(request.correlation, [part])))
    assert drain(rig, core) == [b"2", b"3", b"4"]


@pytest.mark.parametrize(("where", "values"), [("earliest", [b"3", b"4"]), ("latest", [])])
def test_an_offset_that_retention_took_is_moved_as_told_and_said(rig, broker, caplog, where, values):
    def before(request, data):
        if type(request) is Fetch and request.positions[0][1] < 3:
            part = FetchedPartition(1, 0, 3, 3, 5, "OffsetOutOfRange", "gone")
            return messages.Fetched(request.correlation, [part])
        return None

    broker.before = before
    assert drain(rig, consumer(rig, start=0, out_of_range=where)) == values
    assert "offset 0 is out of range (3 to 5 are there)" in caplog.text


def test_an_offset_out_of_range_can_be_an_error_with_the_range(rig, broker):
    broker.before = lambda request, data: (
        messages.Fetched(request.correlation, [FetchedPartition(1, 0, 3, 3, 5, "OffsetOutOfRange", "gone")])
        if type(request) is Fetch
        else None
    )
    core = consumer(rig, out_of_range="raise")
    core.look()
    rig.pump()
    with pytest.raises(errors.OffsetOutOfRange) as caught:
        core.look()
    assert (caught.value.start, caught.value.end) == (3, 5)


def test_an_unknown_topic_is_said(rig):
    core = consumer(rig, topics=["t", "nope"])
    core.look()
    rig.pump()
    with pytest.raises(errors.UnknownTopic, match=r"'nope'.* Create it first"):
        core.look()


def test_reading_goes_on_over_a_lost_connection(rig, broker):
    broker.before = lambda request, data: broker.SWALLOW if type(request) is Fetch else None
    core = consumer(rig, follow=True)
    core.look()
    rig.pump()
    rig.cut()
    broker.before = lambda request, data: None
    rig.connect()
    assert [message.value for message in core.look().some()] == [b"0", b"1", b"2", b"3", b"4"]


def test_an_error_is_raised_once_and_the_next_look_tries_again(rig):
    core = consumer(rig, follow=True)
    rig.cut("down")
    core.look()
    rig.wait(31)
    with pytest.raises(errors.ConnectionUnavailable):
        core.look()
    rig.connect()
    core.look()
    rig.pump()
    assert core.look() is not None


def test_no_more_is_fetched_than_may_wait(rig, broker):
    core = consumer(rig, topics="t", follow=True, prefetch=1)
    core.look()
    rig.pump()
    fetches = len([request for request in broker.requests if type(request) is Fetch])
    rig.wait(20)
    assert len([request for request in broker.requests if type(request) is Fetch]) == fetches == 1


@pytest.mark.parametrize("wrong", [{"start": "middle"}, {"out_of_range": "ignore"}, {"topics": []}])
def test_wrong_choices_are_misuse(rig, wrong):
    with pytest.raises(errors.Misuse):
        consumer(rig, **wrong)


class TestGivenBack:
    """What a transaction has received and not committed."""

    def begin(self, rig, broker, follow=True):
        core = consumer(rig, "g", follow=follow)
        core.look()
        rig.pump()
        delivery = core.look()
        assert delivery.one().value == b"0"
        del broker.requests[:]
        return core, delivery

    def test_the_claim_is_looked_up_once_and_only_when_the_next_is_wanted(self, rig, broker):
        core, delivery = self.begin(rig, broker)
        core.give_back([delivery])
        rig.pump()
        assert broker.requests == []
        assert core.look() is None
        rig.pump()
        assert [message.value for message in core.look().some()] == [b"0", b"1", b"2", b"3", b"4"]
        assert core.look() is None
        rig.pump()
        asked = [request for request in broker.requests if type(request) is not Fetch]
        assert [type(request) for request in asked] == [FetchOffsets]

    def test_what_was_committed_costs_no_look(self, rig, broker):
        core, delivery = self.begin(rig, broker)
        delivery.settle()
        core.give_back([])
        assert core.look().one().value == b"1"
        rig.pump()
        assert [request for request in broker.requests if type(request) is not Fetch] == []

    def test_nothing_is_handed_out_before_the_answer_nor_after_a_failed_look(self, rig, broker):
        core, delivery = self.begin(rig, broker)
        broker.before = lambda request, data: (
            messages.Refused(request.correlation, "StorageUnavailable", "no disk")
            if type(request) is FetchOffsets
            else None
        )
        core.give_back([delivery])
        turn = core.join()
        assert not turn.done
        rig.pump()
        with turn, pytest.raises(errors.StorageUnavailable):
            core.look()
        assert core.look() is None
        broker.before = lambda request, data: None
        rig.pump()
        assert core.look().one().value == b"0"

    def test_at_the_end_it_comes_again_before_the_end_does(self, rig, broker):
        core, delivery = self.begin(rig, broker, follow=False)
        delivery.some()
        assert core.look() is None
        assert core.finished
        core.give_back([delivery])
        assert not core.finished
        assert core.look() is None
        rig.pump()
        assert [message.value for message in core.look().some()] == [b"0", b"1", b"2", b"3", b"4"]
        assert core.look() is None
        assert core.finished

    def test_what_failed_while_others_had_the_partition_is_forgotten_with_it(self, rig, broker):
        core, delivery = self.begin(rig, broker)
        delivery.some()
        assert core.look() is None
        rig.pump()
        [(_, hanging)] = broker.hanging
        broker.generations[1] = broker.offsets[1] = 4
        core.give_back([delivery])
        assert core.look() is None
        rig.core.received(encode(messages.Refused(hanging, "UnknownPartition", "gone")))
        rig.pump()
        assert [message.value for message in core.look().some()][-1:] == [b"4"]
        assert core.look() is None

    def test_what_fails_before_the_look_is_answered_gives_nobody_the_turn(self, rig, broker):
        """Seen to fail: the caller was given its turn for the failure, which was forgotten before it looked."""
        core, delivery = self.begin(rig, broker)
        delivery.some()
        assert core.look() is None
        rig.pump()
        [(_, hanging)] = broker.hanging
        broker.generations[1] = broker.offsets[1] = 4
        core.give_back([delivery])
        turn = core.join()
        rig.core.received(encode(messages.Refused(hanging, "UnknownPartition", "gone")))
        assert not turn.done
        rig.pump()
        with turn:
            assert core.look().one().value == b"4"

    def test_a_failure_counts_once_the_claim_is_found_to_stand(self, rig, broker):
        core, delivery = self.begin(rig, broker)
        delivery.some()
        assert core.look() is None
        rig.pump()
        [(_, hanging)] = broker.hanging
        core.give_back([delivery])
        turn = core.join()
        rig.core.received(encode(messages.Refused(hanging, "StorageUnavailable", "no disk")))
        assert not turn.done
        rig.pump()
        with turn:
            assert core.look().some()[0].value == b"0"
        with pytest.raises(errors.StorageUnavailable, match="no disk"):
            core.look()

    def test_closed_meanwhile_it_is_finished(self, rig, broker):
        core, delivery = self.begin(rig, broker)
        core.give_back([delivery])
        core.look()
        core.close()
        rig.pump()
        assert core.finished
        assert core.look() is None
