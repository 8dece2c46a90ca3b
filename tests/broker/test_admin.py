import pytest
from crc32c import crc32c

from journal.constants import MAX_REQUEST_ENTRIES
from journal.formats.frame import decode_run
from journal.records.group_entries import PartitionOffset
from journal.transaction_states import State, Totals, TransactionNumber
from journal.xid import Xid
from tests.support.broker_room import Room, frames, refused
from txbroker.broker.admin import IN_A_STEP
from txbroker.wire import messages
from txbroker.wire.messages import TopicSettings

XID = Xid(1, b"x", b"")


@pytest.fixture
def room():
    return Room()


def names(room, *wanted):
    return [topic.name for topic in room.peer().ask(messages.DescribeTopics, list(wanted) or None).topics]


def prepare(peer, partition, xid=XID, serial=1):
    data = frames(b"a")
    peer.tell(messages.Add, serial, partition, data=data)
    assert isinstance(peer.ask(messages.Prepare, serial, xid, Totals(1, 1, crc32c(data))), messages.Done)


class TestTopics:
    def test_a_new_topic_is_described_and_outlives_a_restart(self, room):
        made = room.peer().ask(messages.CreateTopic, "b", 2, TopicSettings(retention_age=5))
        room.topic("a")
        room.restart()
        topics = room.peer().ask(messages.DescribeTopics).topics
        assert [topic.name for topic in topics] == ["a", "b"]
        assert topics[1] == made.topics[0]
        assert [(p.index, p.number) for p in topics[1].partitions] == [(0, 1), (1, 2)]
        assert topics[1].settings.retention_age == 5

    def test_only_the_wanted_ones_are_described_and_unknown_ones_left_out(self, room):
        for name in ("a", "b", "c"):
            room.topic(name)
        assert names(room, "c", "a", "nope") == ["a", "c"]
        assert room.peer().ask(messages.DescribeTopics, []).topics == []

    def test_a_description_counts_what_is_there(self, room):
        [partition] = room.topic()
        room.peer().send(partition, b"a", b"b")
        room.flush()
        [described] = room.peer().ask(messages.DescribeTopics).topics[0].partitions
        size = len(frames(b"a", b"b"))
        assert described == messages.PartitionInfo(0, partition, 0, 2, size, 1)

    def test_a_description_takes_many_steps_and_says_where_the_logs_ended_at_one_moment(self, room):
        partitions = room.topic(partitions=3 * IN_A_STEP)
        peer, other, steps = room.peer(), room.peer(), []
        peer.session.wake = lambda: None
        room.broker.stepwise.goes_on = lambda: steps.append(None) or False
        asked = peer.tell(messages.DescribeTopics)
        other.send(partitions[0], b"a")
        other.send(partitions[-1], b"a")
        while peer.session.due:
            peer.session.go_on()
        assert len(steps) == 3
        [topic] = peer.answer(asked).topics
        assert [part.number for part in topic.partitions] == partitions
        assert {part.high_watermark for part in topic.partitions} == {0}

    def test_a_description_names_at_most_as_many_topics_as_any_request(self, room):
        many = [str(number) for number in range(MAX_REQUEST_ENTRIES + 1)]
        refused(room.peer().ask(messages.DescribeTopics, many), "LimitExceeded")
        assert room.peer().ask(messages.DescribeTopics, many[1:]).topics == []

    @pytest.mark.parametrize(
        ("name", "partitions", "settings", "error"),
        [
            ("../etc", 1, TopicSettings(), "InvalidName"),
            ("", 1, TopicSettings(), "InvalidName"),
            ("t", 0, TopicSettings(), "InvalidSetting"),
            ("t", -1, TopicSettings(), "InvalidSetting"),
            ("t", 10_001, TopicSettings(), "InvalidSetting"),
            ("t", 1_001, TopicSettings(), "LimitExceeded"),
            ("t", 1, TopicSettings(force_messages=0), "InvalidSetting"),
            ("t", 1, TopicSettings(max_message_bytes=1 << 29), "InvalidSetting"),
            ("orders", 1, TopicSettings(), "TopicExists"),
        ],
    )
    def test_a_topic_that_cannot_be_is_refused(self, room, name, partitions, settings, error):
        room.topic()
        refused(room.peer().ask(messages.CreateTopic, name, partitions, settings), error)
        assert names(room) == ["orders"]

    def test_topics_are_bounded(self):
        room = Room(max_topics=1)
        room.topic("a")
        refused(room.peer().ask(messages.CreateTopic, "b", 1, TopicSettings()), "LimitExceeded")
        room.peer().ask(messages.DeleteTopic, "a", room.topic_id("a"))
        room.topic("b")

    def test_a_deleted_topic_is_gone_and_its_numbers_are_not_used_again(self, room):
        [old] = room.topic()
        first = room.topic_id()
        assert isinstance(room.peer().ask(messages.DeleteTopic, "orders", first), messages.Done)
        refused(room.peer().ask(messages.DeleteTopic, "orders", first), "UnknownTopic")
        [new] = room.topic()
        assert new > old
        refused(room.peer().send(old, b"a"), "UnknownPartition")

    def test_a_topic_made_anew_is_not_deleted_by_who_means_the_one_before(self, room):
        room.topic()
        first = room.topic_id()
        assert isinstance(room.peer().ask(messages.DeleteTopic, "orders", first), messages.Done)
        [partition] = room.topic()
        second = room.topic_id()
        room.peer().send(partition, b"acknowledged")
        room.restart()
        text = refused(room.peer().ask(messages.DeleteTopic, "orders", first), "UnknownTopic")
        assert "was made since" in text
        room.engine.housekeeping.checkpoint_inline()
        room.restart()
        refused(room.peer().ask(messages.DeleteTopic, "orders", first), "UnknownTopic")
        [topic] = room.peer().ask(messages.DescribeTopics).topics
        assert (topic.id, topic.partitions[0].high_watermark) == (second, 1)
        assert isinstance(room.peer().ask(messages.DeleteTopic, "orders", second), messages.Done)

    def test_an_id_that_is_too_short_to_be_nobody_elses_is_refused(self, room):
        for given in (b"", b"x" * 15, b"x" * 17):
            refused(room.peer().ask(messages.CreateTopic, "b", 1, TopicSettings(), given), "InvalidName")
        assert names(room) == []

    def test_a_topic_that_a_transaction_has_messages_for_is_not_deleted(self, room):
        [partition] = room.topic()
        prepare(room.peer(), partition)
        refused(room.peer().ask(messages.DeleteTopic, "orders", room.topic_id()), "TransactionConflict")
        room.peer().ask(messages.Commit, xid=XID)
        assert isinstance(room.peer().ask(messages.DeleteTopic, "orders", room.topic_id()), messages.Done)

    def test_offsets_are_found_by_the_time_on_the_wall(self, room):
        one, two = room.topic(partitions=2)
        times = []
        for value in (b"a", b"b"):
            times.append(room.clock.wall())
            room.peer().send(one, value)
            room.clock.advance(1000)
        for wall, offset in ((0, 0), (times[0], 0), (times[0] + 1, 1), (times[1], 1), (times[1] + 1, 2)):
            answer = room.peer().ask(messages.OffsetsForTime, [one, two], wall)
            assert answer.offsets == [(one, offset), (two, 0)]
        refused(room.peer().ask(messages.OffsetsForTime, [99], 0), "UnknownPartition")


class TestTransactions:
    def test_pages_follow_each_other(self, room):
        [partition] = room.topic()
        peer = room.peer()
        for serial in range(1, 6):
            prepare(peer, partition, Xid(1, b"%d" % serial, b""), serial)
        found, after, pages = [], (0, 0), 0
        while True:
            page = peer.ask(messages.ListTransactions, [], after, 2)
            found += [each.serial for each in page.transactions]
            pages += 1
            if not page.more:
                break
            last = page.transactions[-1]
            after = (last.session, last.serial)
        assert (found, pages) == ([1, 2, 3, 4, 5], 3)

    @pytest.mark.slow
    def test_a_page_that_would_be_too_large_is_cut(self, room):
        topics = [room.topic("t" * 190 + str(number))[0] for number in range(300)]
        peer = room.peer()
        for serial in range(1, 21):
            for partition in topics:
                peer.tell(messages.Add, serial, partition, data=frames(b"a"))
        page = peer.ask(messages.ListTransactions)
        assert page.more
        assert 1 < len(page.transactions) < 20
        following = peer.ask(
            messages.ListTransactions, [], (peer.session.number, page.transactions[-1].serial)
        )
        assert following.transactions[0].serial == page.transactions[-1].serial + 1

    def test_an_operator_sees_what_it_is_about(self, room):
        [partition] = room.topic()
        peer = room.peer()
        peer.tell(messages.AddOffsets, 1, "g", [PartitionOffset(partition, 0)])
        peer.tell(messages.Add, 1, partition, data=frames(b"a", b"b"))
        room.clock.advance(5)
        [info] = room.peer().ask(messages.ListTransactions).transactions
        assert TransactionNumber(info.session, info.serial) == (peer.session.number, 1)
        assert (info.state, info.age) == (State.ACTIVE, 5)
        assert (info.principal, info.owner, info.address) == ("anonymous", "tester", "10.0.0.1:5")
        assert (info.messages, info.bytes) == (2, len(frames(b"a", b"b")))
        assert (info.topics, info.groups) == (["orders"], ["g"])

    def test_showing_gives_the_first_frames(self, room):
        one, two = room.topic(partitions=2)
        peer, other = room.peer(), room.peer()
        peer.tell(messages.Add, 1, one, data=frames(b"a"))
        peer.tell(messages.Add, 1, two, data=frames(b"b", b"c"))
        peer.tell(messages.AddOffsets, 1, "g", [PartitionOffset(one, 0)])
        shown = other.ask(messages.ShowTransaction, peer.session.number, 1)
        assert shown.parts == [(one, len(frames(b"a"))), (two, len(frames(b"b", b"c")))]
        assert [m.value for m in decode_run(other.data[-1])] == [b"a", b"b", b"c"]
        assert shown.offsets == [("g", PartitionOffset(one, 0))]
        shown = other.ask(messages.ShowTransaction, peer.session.number, 1, max_bytes=1)
        assert shown.parts == [(one, len(frames(b"a")))]

    def test_showing_an_ended_one_says_how(self, room):
        [partition] = room.topic()
        prepare(room.peer(), partition)
        room.peer().ask(messages.Commit, xid=XID, operator=True, by="ann", why="stuck")
        shown = room.peer().ask(messages.ShowTransaction, xid=XID)
        assert (shown.transaction.state, shown.transaction.by) == (State.COMMITTED, "ann")
        assert shown.transaction.by_principal == "anonymous"
        assert (shown.transaction.topics, shown.parts) == (["orders"], [])

    def test_showing_an_unknown_one_is_refused(self, room):
        refused(room.peer().ask(messages.ShowTransaction, 1, 7), "UnknownTransaction")
        refused(room.peer().ask(messages.ShowTransaction, xid=XID), "UnknownTransaction")
