"""Test pause, resume and seek of a consumer at the moments that matter, with a scripted broker."""

import pytest

from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.options import consumer_options
from txbroker.client.consumer.seek import seek
from txbroker.client.core.positions import position_at
from txbroker.client.core.promise import start
from txbroker.wire import messages
from txbroker.wire.codec import encode
from txbroker.wire.messages import CommitOffsets, Fetch


@pytest.fixture
def rig(filled_rig):
    return filled_rig


def consumer(rig, group=None, topics="t", follow=True, **choices):
    if group is not None:
        choices.setdefault("partitions", [0])
    core = ConsumerCore(rig.shared_fetch, consumer_options(topics, group, follow=follow, **choices), "me")
    core.look()
    rig.pump()
    return core


def values(core, rig):
    """What comes now."""
    found = []
    while (delivery := core.look()) or (rig.pump(), delivery := core.look())[-1]:
        found += [message.value for message in delivery.some()]
    return found


def one(core):
    return core.look().one().value


def fetched(broker):
    """The partitions of the last fetch."""
    return [
        number for number, _, _ in [each for each in broker.requests if type(each) is Fetch][-1].positions
    ]


def swallow_commits(broker):
    broker.before = lambda request, data: broker.SWALLOW if type(request) is CommitOffsets else None


def swallowed(broker):
    return [each for each in broker.requests if type(each) is CommitOffsets][-1]


def refuse_commits(broker, error):
    broker.before = lambda request, data: (
        messages.Refused(request.correlation, error, "no") if type(request) is CommitOffsets else None
    )


GROUPS = pytest.mark.parametrize("group", [None, "g"])


class TestPause:
    @GROUPS
    def test_what_was_read_ahead_comes_after_it_and_nothing_twice(self, rig, group):
        core = consumer(rig, group)
        assert one(core) == b"0"
        core.pause(core.positions[1])
        assert values(core, rig) == []
        core.resume(core.positions[1])
        assert values(core, rig) == [b"1", b"2", b"3", b"4"]

    def test_a_delivery_that_is_being_handed_out_ends(self, rig):
        core = consumer(rig)
        delivery = core.look()
        delivery.one()
        core.pause(core.positions[1])
        assert delivery.one() is None
        assert core.current is None

    @GROUPS
    def test_nothing_of_it_is_fetched_and_the_others_go_on(self, rig, broker, group):
        core = consumer(rig, group, topics=["t", "t2"])
        values(core, rig)
        core.pause(core.positions[1])
        rig.pump()
        assert sorted(fetched(broker)) == ([2, 3] if group is None else [2])
        rig.send(b"later")
        rig.run(rig.producer.route("t2"))
        rig.send(b"other", "t2", key=b"c")
        rig.pump()
        assert 1 not in fetched(broker)
        assert b"later" not in values(core, rig)
        core.resume(core.positions[1])
        rig.pump()
        assert b"later" in values(core, rig)

    @GROUPS
    def test_the_answer_to_a_fetch_that_was_under_way_is_dropped(self, rig, broker, group):
        core = ConsumerCore(rig.shared_fetch, consumer_options("t", group, partitions=[0], max_bytes=1), "me")
        broker.before = lambda request, data: broker.SWALLOW if type(request) is Fetch else None
        core.look()
        rig.pump()
        core.pause(core.positions[1])
        broker.before = lambda request, data: None
        rig.cut()
        rig.connect()
        assert values(core, rig) == []
        assert not core._ahead.undecoded
        core.resume(core.positions[1])
        assert values(core, rig)[:2] == [b"0", b"1"]

    def test_what_was_left_out_behind_it_comes_anew_with_the_rest_and_of_no_fetch_under_way(self, rig):
        core = consumer(rig, "g", order="key")
        assert [one(core), one(core)] == [b"0", b"1"]
        left = core.positions[1].left
        left.put_back(1, None)
        left.put_back(3, None)
        core.pause(core.positions[1])
        assert [left.has(offset) for offset in (1, 3)] == [True, False]
        core.resume(core.positions[1])
        assert sorted(values(core, rig)) == [b"1", b"2", b"3", b"4"]

    def test_a_member_that_pauses_everything_asks_for_nothing(self, rig, broker):
        core = consumer(rig, "g")
        core.pause(core.positions[1])
        rig.pump()
        before = len(broker.requests)
        rig.wait(20)
        core.look()
        rig.pump()
        assert [each for each in broker.requests[before:] if type(each) is Fetch] == []

    def test_what_was_handed_out_is_committed_and_no_more(self, rig, broker):
        core = consumer(rig, "g")
        assert [one(core), one(core)] == [b"0", b"1"]
        core.pause(core.positions[1])
        rig.run(core.commits.commit())
        assert broker.offsets == {1: 2}

    @GROUPS
    def test_without_following_it_is_not_taken_for_read(self, rig, group):
        core = consumer(rig, group, follow=False)
        assert one(core) == b"0"
        core.pause(core.positions[1])
        turn = core.join()
        rig.wait(20)
        assert not turn.done
        assert not core.finished
        assert not core.whole
        core.resume(core.positions[1])
        rig.pump()
        with turn:
            assert values(core, rig) == [b"1", b"2", b"3", b"4"]
        assert core.finished

    def test_at_its_end_it_keeps_nobody_waiting(self, rig):
        core = consumer(rig, follow=False)
        values(core, rig)
        core.pause(core.positions[1])
        assert core.finished

    def test_what_waits_for_it_to_go_on_is_given_it_at_once(self, rig, broker):
        """A fetch for another partition is under way, and would last for ``max_wait``."""
        core = consumer(rig, topics=["t", "t2"])
        core.pause(core.positions[1])
        values(core, rig)
        core.resume(core.positions[1])
        rig.pump()
        assert core.look() is not None

    def test_that_is_so_too_after_an_interrupt_before_that_fetch_was_cancelled(self, rig, monkeypatch):
        core = consumer(rig, topics=["t", "t2"])
        core.pause(core.positions[1])
        values(core, rig)

        def interrupted(request, data=b""):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(rig.core, "post", interrupted)
            with pytest.raises(KeyboardInterrupt):
                core.resume(core.positions[1])
        core.resume(core.positions[1])
        rig.pump()
        assert core.look() is not None


class TestSeek:
    @GROUPS
    @pytest.mark.parametrize(("offset", "found"), [(0, [b"0", b"1"]), (3, [b"3", b"4"]), (5, [])])
    def test_reading_goes_on_there(self, rig, broker, group, offset, found):
        core = consumer(rig, group)
        assert [one(core), one(core)] == [b"0", b"1"]
        rig.run(seek(core, "t", 0, offset, None))
        assert broker.offsets == ({} if group is None else {1: offset})
        assert values(core, rig)[:2] == found

    @GROUPS
    @pytest.mark.parametrize(
        ("named", "found"), [("earliest", [b"0", b"1", b"2", b"3", b"4"]), ("latest", [])]
    )
    def test_the_ends_of_the_partition_have_names(self, rig, broker, group, named, found):
        core = consumer(rig, group)
        one(core)
        rig.run(seek(core, "t", 0, named, None))
        assert values(core, rig) == found

    def test_a_commit_covers_what_came_since(self, rig, broker):
        core = consumer(rig, "g")
        assert len(values(core, rig)) == 5
        rig.run(seek(core, "t", 0, 1, None))
        rig.run(core.commits.commit())
        assert broker.offsets == {1: 1}
        assert one(core) == b"1"
        rig.run(core.commits.commit())
        assert broker.offsets == {1: 2}

    def test_the_position_is_fenced_by_the_generation(self, rig, broker):
        core = consumer(rig, "g")
        rig.run(seek(core, "t", 0, 1, None))
        assert [each.generation for each in swallowed(broker).offsets] == [1]

    def test_until_the_answer_nothing_comes_and_nothing_old_is_committed(self, rig, broker):
        core = consumer(rig, "g")
        assert [one(core), one(core)] == [b"0", b"1"]
        swallow_commits(broker)
        task = start(seek(core, "t", 0, 4, None))
        rig.pump()
        assert values(core, rig) == []
        assert core.commits.handed_out() == []
        rig.core.received(encode(messages.Done(swallowed(broker).correlation)))
        task.result()
        assert values(core, rig) == [b"4"]

    @pytest.mark.parametrize("error", ["OffsetOutOfRange", "GenerationFenced", "OffsetPending"])
    def test_refused_nothing_has_changed(self, rig, broker, error):
        core = consumer(rig, "g")
        assert [one(core), one(core)] == [b"0", b"1"]
        refuse_commits(broker, error)
        with pytest.raises(errors.by_name(error)):
            rig.run(seek(core, "t", 0, 4, None))
        assert [(each.partition, each.offset) for each in core.commits.handed_out()] == [(1, 2)]
        assert values(core, rig) == [b"2", b"3", b"4"]

    def test_with_an_outcome_that_is_not_known_it_goes_on_there(self, rig, broker):
        core = consumer(rig, "g")
        assert len(values(core, rig)) == 5
        swallow_commits(broker)
        task = start(seek(core, "t", 0, 3, None))
        rig.pump()
        rig.wait(31)
        with pytest.raises(errors.OutcomeUnknown):
            task.result()
        assert core.commits.handed_out() == []
        assert values(core, rig) == [b"3", b"4"]

    def test_given_up_it_goes_on_by_itself(self, rig, broker):
        core = consumer(rig, "g")
        one(core)
        swallow_commits(broker)
        task = start(seek(core, "t", 0, 4, None))
        rig.pump()
        task.cancel()
        assert values(core, rig) == []
        rig.core.received(encode(messages.Done(swallowed(broker).correlation)))
        assert values(core, rig) == [b"4"]

    def test_a_second_one_comes_after_the_first(self, rig, broker):
        core = consumer(rig, "g")
        one(core)
        swallow_commits(broker)
        first = start(seek(core, "t", 0, 4, None))
        rig.pump()
        second = start(seek(core, "t", 0, 2, None))
        rig.pump()
        assert [each.offset for each in swallowed(broker).offsets] == [4]
        refused = encode(messages.Refused(swallowed(broker).correlation, "OffsetPending", "no"))
        broker.before = lambda request, data: None
        rig.core.received(refused)
        rig.pump()
        assert (first.done, second.done) == (True, True)
        second.result()
        assert values(core, rig) == [b"2", b"3", b"4"]

    @GROUPS
    def test_the_answer_to_a_fetch_that_was_under_way_is_dropped(self, rig, broker, group):
        core = ConsumerCore(rig.shared_fetch, consumer_options("t", group, partitions=[0]), "me")
        broker.before = lambda request, data: broker.SWALLOW if type(request) is Fetch else None
        core.look()
        rig.pump()
        task = start(seek(core, "t", 0, 4, None))
        broker.before = lambda request, data: None
        rig.cut()
        rig.connect()
        task.result()
        assert values(core, rig) == [b"4"]

    @GROUPS
    def test_a_paused_partition_stays_paused(self, rig, group):
        core = consumer(rig, group)
        core.pause(core.positions[1])
        rig.run(seek(core, "t", 0, 3, None))
        assert values(core, rig) == []
        core.resume(core.positions[1])
        assert values(core, rig) == [b"3", b"4"]

    def test_paused_while_it_is_refused_it_is_paused_after_it(self, rig, broker):
        core = consumer(rig, "g")
        refuse_commits(broker, "OffsetPending")
        task = start(seek(core, "t", 0, 3, None))
        core.pause(core.positions[1])
        rig.pump()
        assert task.error is not None
        assert core.positions[1].paused

    @GROUPS
    def test_without_following_it_ends_at_the_same_end(self, rig, group):
        core = consumer(rig, group, follow=False)
        assert len(values(core, rig)) == 5
        assert core.finished
        rig.run(seek(core, "t", 0, 3, None))
        assert not core.finished
        rig.send(b"later")
        rig.pump()
        assert values(core, rig) == [b"3", b"4"]
        assert core.finished

    @GROUPS
    def test_read_again_it_is_whole_as_before(self, rig, group):
        core = consumer(rig, group)
        values(core, rig)
        assert core.whole
        rig.run(seek(core, "t", 0, 3, None))
        assert not core.whole
        assert values(core, rig) == [b"3", b"4"]
        assert core.whole

    def test_without_following_it_does_not_end_before_the_answer(self, rig, broker):
        core = consumer(rig, "g", follow=False)
        one(core)
        refuse_commits(broker, "OffsetPending")
        start(seek(core, "t", 0, 5, None))
        assert not core.finished
        rig.pump()
        assert values(core, rig) == [b"1", b"2", b"3", b"4"]

    def refused_after(self, rig, broker, change):
        """Refuse a seek after something has changed."""
        core = consumer(rig, "g")
        one(core)
        swallow_commits(broker)
        task = start(seek(core, "t", 0, 3, None))
        rig.pump()
        change(core)
        refused = messages.Refused(swallowed(broker).correlation, "GenerationFenced", "no")
        rig.core.received(encode(refused))
        assert isinstance(task.error, errors.GenerationFenced)
        return core

    def test_refused_because_the_partition_was_lost_it_does_not_bring_it_back(self, rig, broker):
        core = self.refused_after(rig, broker, lambda core: core.lose([1], "it was given to another"))
        assert core.positions == {}

    def test_refused_while_the_group_asks_it_back_it_is_still_given_back(self, rig, broker):
        core = self.refused_after(rig, broker, lambda core: core.withhold([1], "the group asks it back"))
        assert core.positions[1].ended == "the group asks it back"

    def test_in_a_transaction_it_is_misuse(self, rig, broker):
        core = consumer(rig, "g")
        with pytest.raises(errors.Misuse, match=r"seek\(\) in t-0 between tpc_begin"):
            rig.run(seek(core, "t", 0, 3, rig.transaction()))
        assert broker.offsets == {}
        assert len(values(core, rig)) == 5


@pytest.mark.parametrize("place", [("t", 1), ("t2", 0), ("no", 0)])
def test_a_partition_that_is_not_read_is_a_wrong_value(rig, place):
    core = consumer(rig, "g")
    with pytest.raises(
        errors.WrongValue, match=f"the partition to pause is {place[0]}-{place[1]}; it must be"
    ):
        position_at(core.positions.values(), *place, "pause")
    with pytest.raises(errors.WrongValue, match="nothing has changed"):
        rig.run(seek(core, *place, 0, None))


def test_so_is_one_that_the_group_asks_back(rig):
    core = consumer(rig, "g")
    core.withhold([1], "the group asks it back")
    with pytest.raises(errors.WrongValue):
        rig.run(seek(core, "t", 0, 0, None))
