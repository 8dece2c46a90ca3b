import pytest

from tests.client.rig import Rig
from txbroker import commands, errors
from txbroker.client.consumer_options import consumer_options
from txbroker.client.consuming import ConsumerCore
from txbroker.commands import Fetch, FetchedPartition, FetchOffsets


@pytest.fixture
def rig(broker):
    rig = Rig(broker)
    for number in range(5):
        rig.send(b"%d" % number)
        rig.pump()
    return rig


def consumer(rig, group=None, topics="t", follow=False, **choices):
    return ConsumerCore(rig.core, consumer_options(topics, group, follow=follow, **choices), "me")


def drain(rig, core):
    values = []
    while True:
        delivery = core.look()
        rig.pump()
        if delivery is not None:
            values += [message.value for message in delivery.rest()]
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
    assert kinds.index(commands.ClaimPartitions) < kinds.index(FetchOffsets)


def test_a_commit_covers_what_was_handed_out_and_no_more(rig, broker):
    core = consumer(rig, "g")
    core.look()
    rig.pump()
    delivery = core.look()
    assert [delivery.one().value for _ in range(2)] == [b"0", b"1"]
    rig.run(core.commit())
    assert broker.offsets == {1: 2}
    assert broker.requests[-1].offsets[0].generation == 1


def test_a_commit_without_a_group_is_misuse(rig):
    with pytest.raises(errors.Misuse):
        rig.run(consumer(rig).commit())


def test_an_offset_that_a_transaction_holds_is_waited_for_and_told_once(rig, broker, caplog):
    held = ["7-1 (1:g:b)"]

    def before(request, data):
        if type(request) is FetchOffsets:
            return commands.GroupOffsets(
                request.correlation, [commands.GroupOffset(1, 2, 1, "", held[0] if held else "")], b"g" * 16
            )
        return None

    broker.before = before
    core = consumer(rig, "g")
    core.look()
    rig.pump()
    rig.wait(3)
    assert core.look() is None
    assert not [request for request in broker.requests if type(request) is Fetch]
    assert [record.getMessage() for record in caplog.records] == [
        "group g waits at t-0: its offset is held by the undecided transaction 7-1 (1:g:b)"
    ]
    held.clear()
    rig.wait(1)
    assert drain(rig, core) == [b"2", b"3", b"4"]


@pytest.mark.parametrize(("where", "values"), [("earliest", [b"3", b"4"]), ("latest", [])])
def test_an_offset_that_retention_took_is_moved_as_told_and_said(rig, broker, caplog, where, values):
    def before(request, data):
        if type(request) is Fetch and request.positions[0][1] < 3:
            part = FetchedPartition(1, 0, 3, 5, "OffsetOutOfRange", "gone")
            return commands.Fetched(request.correlation, [part])
        return None

    broker.before = before
    assert drain(rig, consumer(rig, start=0, out_of_range=where)) == values
    assert "offset 0 is out of range (3 to 5 are there)" in caplog.text


def test_an_offset_out_of_range_can_be_an_error_with_the_range(rig, broker):
    broker.before = lambda request, data: (
        commands.Fetched(request.correlation, [FetchedPartition(1, 0, 3, 5, "OffsetOutOfRange", "gone")])
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
    assert [message.value for message in core.look().rest()] == [b"0", b"1", b"2", b"3", b"4"]


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
