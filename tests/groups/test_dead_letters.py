"""Test dead letters: the source is finished and the target has the message by one record, or neither.

Seen to fail: with the target's record and the group's apart, with a letter dropped that cannot be moved yet, without
the look at an earlier start's letters, and with the details not compared after the read.
"""

import random

import pytest

from journal.formats import frame
from journal.formats.offset_set_bytes import decode_offsets
from journal.records.group_entries import (
    Ending,
    GroupPositions,
    GroupSettings,
    PartitionOffset,
    Retried,
    RetryRules,
    Settled,
)
from journal.records.record import LogStartMoved, TopicDeleted, TransactionCommitted
from journal.settings import TopicSettings
from journal.transactions.limits import TransactionLimits
from journal.xid import Xid
from tests.support.broker_room import Room, refused
from tests.support.builders import small_files
from txbroker.wire import messages

XID, ID = Xid(1, b"x", b""), b"g" * 16
SECOND = 1_000_000
MESSAGES = 10


@pytest.fixture
def room():
    return Room(max_offset_metadata=9)


@pytest.fixture
def partition(room):
    return filled(room)


def filled(room):
    [partition] = room.topic()
    room.peer().send(partition, *[b"%d" % number for number in range(MESSAGES)])
    room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 0)], ID)
    return partition


def said(partition, *retried, generation=0):
    return Settled(partition, generation, 0, retried=[Retried(*each) for each in retried])


def dead(offset, attempts=0, why="poison"):
    return (offset, attempts, None, why, True)


def give_up(room, *what):
    return room.peer().ask(messages.CommitOffsets, "g", [], ID, None, list(what))


def gave_up(room, *what):
    answer = give_up(room, *what)
    assert isinstance(answer, messages.Done), answer


def settlement(room, partition):
    return room.broker.groups.find("g").settlements.get(partition)


def is_finished(room, partition, offset):
    kept, position = settlement(room, partition), room.broker.groups.find("g").position(partition) or 0
    return offset < position or (kept is not None and offset in kept.finished)


def letters(room, topic="orders.dead", index=0):
    """What the topic of dead letters has: (value, headers)."""
    return [(each.value, dict(each.headers)) for each in messages_of(room, topic, index)]


def messages_of(room, topic, index=0):
    known = room.engine.catalog.topics.get(topic)
    if known is None:
        return []
    store = known.partitions[index]
    found, offset = [], store.start_offset
    while offset < store.high_watermark:
        frames = store.plan_read(offset, 1 << 20).run()
        found += frame.decode_run(frames.data, offset)
        offset = frames.end
    return found


def tick(room):
    room.broker.dead_letters.try_again()
    room.engine.sync()


def records(room, kind):
    """Note the records of a kind from now on."""
    found, queue = [], room.engine.queue

    def noted(record, data=b""):
        if isinstance(record, kind):
            found.append(record)
        return queue(record, data)

    room.engine.queue = noted
    return found


def test_a_message_that_is_given_up_is_moved(room, partition):
    room.clock.advance(3 * SECOND)
    gave_up(room, said(partition, dead(3)))
    [(value, headers)] = letters(room)
    before, letter = messages_of(room, "orders")[3], messages_of(room, "orders.dead")[0]
    assert letter.timestamp == before.timestamp, "it keeps its sender's time"
    assert letter.appended == before.appended + 3 * SECOND, "and is appended when it is moved"
    failed = int(headers.pop("txbroker.dead.failed"))
    assert failed == room.engine.now() + room.engine.wall_offset
    assert (value, headers) == (
        b"3",
        {
            "txbroker.dead.topic": b"orders",
            "txbroker.dead.partition": b"0",
            "txbroker.dead.offset": b"3",
            "txbroker.dead.group": b"g",
            "txbroker.dead.attempts": b"1",
            "txbroker.dead.why": b"poison",
        },
    )
    kept = settlement(room, partition)
    assert (3 in kept.finished, kept.unfinished, len(room.broker.dead_letters)) == (True, {}, 0)


def test_the_move_is_one_record(room, partition):
    found = records(room, TransactionCommitted)
    gave_up(room, said(partition, dead(0), dead(1)))
    assert [
        ([each.count for each in one.placements], [each.group for each in one.positions]) for one in found
    ] == [([1], ["g"])] * 2
    assert (found[1].session, found[1].serial, found[1].seen) == (found[0].session, 2, 1)
    assert room.broker.groups.find("g").position(partition) == 2


def test_limits_of_transactions_do_not_hold_for_moves():
    room = Room(small_files(limits=TransactionLimits(messages=1, bytes=8, partitions=1)))
    [partition] = room.topic()
    room.peer().send(partition, b"more than eight bytes")
    room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 0)], ID)
    gave_up(room, said(partition, dead(0)))
    [(value, _)] = letters(room)
    assert value == b"more than eight bytes"


def test_the_topic_has_as_many_partitions_and_each_letter_goes_to_its_own(room):
    partitions = room.topic(partitions=3)
    for number in partitions:
        room.peer().send(number, b"p%d" % number)
    gave_up(room, *[said(number, dead(0)) for number in partitions])
    assert len(room.engine.catalog.topics["orders.dead"].partitions) == 3
    for index, number in enumerate(partitions):
        [(value, headers)] = letters(room, index=index)
        assert (value, headers["txbroker.dead.partition"]) == (b"p%d" % number, b"%d" % index)


def test_a_topic_with_fewer_partitions_takes_all(room, partition):
    room.topic("orders.dead")
    peer = room.peer()
    grown = peer.ask(messages.AlterTopic, "orders", room.topic_id(), {}, 3)
    last = grown.topics[0].partitions[2].number
    peer.send(last, b"late")
    gave_up(room, said(last, dead(0)))
    assert [value for value, _ in letters(room)] == [b"late"]


def test_dead_letters_have_no_dead_letters(room):
    [partition] = room.topic("orders.dead")
    room.peer().send(partition, b"x")
    assert "dead letters" in refused(give_up(room, said(partition, dead(0))), "InvalidSetting")


def test_a_topic_whose_name_is_too_long_has_none(room):
    [partition] = room.topic("x" * 198)
    room.peer().send(partition, b"x")
    refused(give_up(room, said(partition, dead(0))), "InvalidName")


def test_attempts_and_the_first_failure_are_those_of_all_deliveries(room, partition):
    gave_up(room, said(partition, (3, 0, 0, "first")))
    first = room.engine.now() + room.engine.wall_offset
    room.clock.advance(SECOND)
    gave_up(room, said(partition, dead(3, 1)))
    [(_, headers)] = letters(room)
    assert (headers["txbroker.dead.attempts"], int(headers["txbroker.dead.failed"])) == (b"2", first)


def test_a_repetition_moves_it_once(room, partition):
    gave_up(room, said(partition, dead(3)))
    gave_up(room, said(partition, dead(3)))
    assert len(letters(room)) == 1


def test_one_whose_retry_is_counted_already_is_given_up_without_counting(room, partition):
    gave_up(room, said(partition, (3, 0, SECOND, "first")))
    gave_up(room, said(partition, dead(3, 0, "last")))
    [(_, headers)] = letters(room)
    assert (headers["txbroker.dead.attempts"], headers["txbroker.dead.why"]) == (b"1", b"last")


def test_a_finished_message_stays_so(room, partition):
    room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 5)], ID)
    gave_up(room, said(partition, dead(3)))
    assert letters(room) == []
    assert room.broker.groups.find("g").position(partition) == 5


def test_a_wrapper_is_opened(room):
    [partition] = room.topic()
    inner = [frame.encode_inner(number, b"%d" % number, 7, b"k%d" % number) for number in range(3)]
    wrapped = frame.encode_wrapper(b"".join(inner), 3, 7)
    room.peer().ask(messages.Send, partition, data=wrapped)
    gave_up(room, said(partition, dead(1)))
    [(value, headers)] = letters(room)
    assert (value, headers["txbroker.dead.offset"]) == (b"1", b"1")


def test_a_message_on_the_disk_is_read_there(room, partition):
    room.flush()
    gave_up(room, said(partition, dead(3)))
    assert [value for value, _ in letters(room)] == [b"3"]


def test_limits_of_the_target_do_not_hold(room, partition):
    room.topic("orders.dead", max_message_bytes=1024)
    room.peer().send(partition, bytes(5000))
    gave_up(room, said(partition, dead(MESSAGES)))
    assert [value for value, _ in letters(room)] == [bytes(5000)]


def test_a_full_disk_leaves_it_where_it_is(room, partition):
    room.engine.full_at = 0
    gave_up(room, said(partition, dead(3)))
    assert letters(room) == []
    assert settlement(room, partition).unfinished[3].is_dead
    assert list(room.broker.dead_letters.obstacles.values()) == ["the disk is full"]
    tick(room)
    assert letters(room) == []
    room.engine.full_at = 1 << 62
    tick(room)
    assert [value for value, _ in letters(room)] == [b"3"]
    assert room.broker.dead_letters.obstacles == {}


def test_the_next_start_moves_what_is_left(room, partition):
    room.engine.full_at = 0
    gave_up(room, said(partition, dead(3)))
    room.restart()
    assert len(room.broker.dead_letters) == 1
    tick(room)
    assert [value for value, _ in letters(room)] == [b"3"]
    room.restart()
    assert len(room.broker.dead_letters) == 0
    tick(room)
    assert [value for value, _ in letters(room)] == [b"3"]


def test_a_dead_message_is_handed_to_nobody(room, partition):
    room.engine.full_at = 0
    gave_up(room, said(partition, dead(3)))
    answer = room.peer().ask(
        messages.Fetch, [(partition, 0, 0)], 1 << 20, 0, 1, [messages.Reader("g", 0, [0])]
    )
    assert str(decode_offsets(answer.partitions[0].waiting, 0)) == "3"
    [listed] = room.peer().ask(messages.ListParked, "g", partition).offsets
    assert (listed.offset, listed.attempts, listed.left, listed.dead) == (3, 1, 0, True)


def test_an_operator_takes_it_back(room, partition):
    room.engine.full_at = 0
    gave_up(room, said(partition, dead(3)))
    room.engine.full_at = 1 << 62
    answer = room.peer().ask(messages.ReleaseParked, "g", ID, partition, [3])
    assert isinstance(answer, messages.Done), answer
    tick(room)
    assert letters(room) == []
    assert settlement(room, partition).unfinished[3].due == 0


def test_an_operator_gives_up_what_waits(room, partition):
    gave_up(room, said(partition, (3, 0, 60 * SECOND, "later")))
    peer = room.peer()
    answer = peer.ask(messages.ReleaseParked, "g", ID, partition, [3, 4], messages.Release.DEAD_LETTER)
    assert isinstance(answer, messages.Done), answer
    assert [value for value, _ in letters(room)] == [b"3"]


def test_what_is_sent_again_is_unfinished_for_the_group_alone(room, partition):
    room.peer().ask(messages.CommitOffsets, "other", [PartitionOffset(partition, 5)], ID)
    room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 5)], ID)
    answer = room.peer().ask(messages.ReleaseParked, "g", ID, partition, [3, 7, 7], messages.Release.AGAIN)
    assert isinstance(answer, messages.Done), answer
    groups = room.broker.groups
    assert (groups.find("g").position(partition), groups.find("other").position(partition)) == (3, 5)
    assert (is_finished(room, partition, 4), is_finished(room, partition, 3)) == (True, False)
    room.restart()
    assert room.broker.groups.find("g").position(partition) == 3


def test_what_retention_has_removed_is_not_sent_again(room, partition):
    room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 5)], ID)
    room.engine.accept(LogStartMoved(partition, 4, room.engine.now()))
    room.engine.sync()
    answer = room.peer().ask(messages.ReleaseParked, "g", ID, partition, [3], messages.Release.AGAIN)
    refused(answer, "OffsetOutOfRange")


def test_a_transaction_gives_up_with_its_commit(room, partition):
    peer = room.peer()
    positions = [GroupPositions("g", ID, [], [said(partition, dead(3))])]
    assert isinstance(peer.ask(messages.Prepare, 1, XID, None, positions=positions), messages.Done)
    assert letters(room) == []
    room.restart()
    assert letters(room) == []
    room.peer().ask(messages.Commit, 0, 0, XID)
    assert [value for value, _ in letters(room)] == [b"3"]


def test_a_transaction_that_is_rolled_back_gives_nothing_up(room, partition):
    peer = room.peer()
    positions = [GroupPositions("g", ID, [], [said(partition, dead(3))])]
    assert isinstance(peer.ask(messages.Prepare, 1, XID, None, positions=positions), messages.Done)
    peer.ask(messages.Rollback, 0, 0, XID)
    tick(room)
    assert letters(room) == []
    assert settlement(room, partition) is None


def test_what_a_prepared_transaction_holds_is_moved_after_it(room, partition):
    room.engine.full_at = 0
    gave_up(room, said(partition, dead(3)))
    room.engine.full_at = 1 << 62
    held = Settled(partition, 0, 3, b"\x02\x01")
    positions = [GroupPositions("g", ID, [], [held])]
    assert isinstance(room.peer().ask(messages.Prepare, 1, XID, None, positions=positions), messages.Done)
    tick(room)
    assert letters(room) == []
    assert len(room.broker.dead_letters) == 1
    room.peer().ask(messages.Rollback, 0, 0, XID)
    tick(room)
    assert [value for value, _ in letters(room)] == [b"3"]


def test_what_is_changed_while_it_is_read_is_looked_at_again(room, partition):
    works = []
    room.broker.dead_letters._run_blocking = lambda work, done, failed: works.append((work, done))
    gave_up(room, said(partition, dead(3)))
    [(work, done)] = works
    room.peer().ask(messages.ReleaseParked, "g", ID, partition, [3], messages.Release.SKIP)
    done(work())
    room.engine.sync()
    assert letters(room) == []
    assert len(room.broker.dead_letters) == 0


def test_a_disk_that_is_full_when_the_message_is_read_takes_no_letter(room, partition):
    works = []
    room.broker.dead_letters._run_blocking = lambda work, done, failed: works.append((work, done))
    gave_up(room, said(partition, dead(3)))
    [(work, done)] = works
    room.engine.full_at = 0
    done(work())
    room.engine.sync()
    assert (letters(room), len(room.broker.dead_letters)) == ([], 1)


@pytest.mark.parametrize("gone", ["topic", "group", "start"])
def test_what_is_gone_is_not_moved(room, partition, gone):
    room.engine.full_at = 0
    gave_up(room, said(partition, dead(3)))
    room.engine.full_at = 1 << 62
    if gone == "topic":
        room.engine.accept(TopicDeleted("orders", room.engine.now()))
    elif gone == "group":
        room.peer().ask(messages.DeleteGroup, "g", ID)
    else:
        room.engine.accept(LogStartMoved(partition, 4, room.engine.now()))
    tick(room)
    assert letters(room) == []
    assert len(room.broker.dead_letters) == 0


def test_a_reader_that_fails_is_tried_again(room, partition):
    broker, works = room.broker, []
    broker.dead_letters._run_blocking = lambda work, done, failed: works.append((work, done, failed))
    gave_up(room, said(partition, dead(3), dead(4)))
    works.pop()[2](OSError(5, "no"))
    assert "cannot be read" in next(iter(broker.dead_letters.obstacles.values()))
    work, done, _ = works.pop()
    done(work())
    tick(room)
    work, done, _ = works.pop()
    done(work())
    room.engine.sync()
    assert sorted(value for value, _ in letters(room)) == [b"3", b"4"]


def test_headers_that_leave_no_room_are_left_out(room):
    [partition] = room.topic()
    big = frame.encode(b"v", 1, b"k", {"h": bytes((1 << 20) - 40)})
    answer = room.peer().ask(messages.Send, partition, data=big)
    assert isinstance(answer, messages.Sent), answer
    gave_up(room, said(partition, dead(0)))
    [(value, headers)] = letters(room)
    assert (value, list(headers)) == (b"v", ["h"])


class TestRetention:
    @pytest.fixture
    def partition(self, room):
        """Four segments of a message each, of which retention would keep the last."""
        [partition] = room.topic(segment_bytes=1 << 20, retention_bytes=0)
        for number in range(4):
            room.peer().send(partition, b"%d" % number + bytes(1 << 20))
            room.flush()
        room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(partition, 0)], ID)
        return partition

    def retain(self, room):
        room.engine.housekeeping.retain(room.engine.now())
        room.engine.sync()

    def start(self, room, partition):
        return room.engine.catalog.stores[partition].start_offset

    def test_what_is_to_be_tried_again_goes_to_the_dead_letters_first(self, room, partition):
        gave_up(room, said(partition, (1, 0, 60 * SECOND, "later"), (2, 0, 60 * SECOND, "too")))
        self.retain(room)
        assert self.start(room, partition) == 1
        assert [(value[:1], headers["txbroker.dead.why"]) for value, headers in letters(room)] == [
            (b"1", b"later"),
            (b"2", b"too"),
        ]
        self.retain(room)
        assert self.start(room, partition) == 3

    def test_a_full_disk_keeps_it(self, room, partition):
        gave_up(room, said(partition, (1, 0, 60 * SECOND, "later")))
        room.engine.full_at = 0
        self.retain(room)
        self.retain(room)
        assert (self.start(room, partition), letters(room)) == (1, [])
        assert settlement(room, partition).unfinished[1].attempts == 1

    def test_what_a_prepared_transaction_holds_is_kept(self, room, partition):
        gave_up(room, said(partition, (1, 0, 60 * SECOND, "later")))
        positions = [GroupPositions("g", ID, [], [Settled(partition, 0, 1, b"\x02\x01")])]
        room.peer().ask(messages.Prepare, 1, XID, None, positions=positions)
        self.retain(room)
        assert (self.start(room, partition), letters(room)) == (1, [])

    def test_a_topic_of_dead_letters_keeps_nothing(self, room):
        [partition] = room.topic("x.dead", segment_bytes=1 << 20, retention_bytes=0)
        for _ in range(3):
            room.peer().send(partition, bytes(1 << 20))
            room.flush()
        gave_up(room, said(partition, (0, 0, 60 * SECOND, "later")))
        self.retain(room)
        assert self.start(room, partition) == 2

    def test_an_operator_purges_what_he_likes(self, room, partition):
        gave_up(room, said(partition, (1, 0, 60 * SECOND, "later")))
        room.engine.accept(LogStartMoved(partition, 3, room.engine.now()))
        self.retain(room)
        assert (self.start(room, partition), letters(room)) == (3, [])


def test_histories_with_restarts_move_each_once(room):
    choice = random.Random(18)
    for _ in range(8):
        room = Room()
        partition = filled(room)
        given_up, finished = set(), set()
        for _ in range(40):
            offset = choice.randrange(MESSAGES)
            match choice.randrange(6):
                case 0 | 1 if offset not in finished:
                    gave_up(room, said(partition, dead(offset)))
                    given_up.add(offset)
                    finished.add(offset)
                case 2 if offset not in finished:
                    gave_up(room, said(partition, (offset, 9, 0, "again")))
                case 3:
                    room.restart()
                case 4:
                    room.engine.full_at = choice.choice([0, 1 << 62])
                case _:
                    tick(room)
        room.engine.full_at = 1 << 62
        tick(room)
        assert sorted(int(value) for value, _ in letters(room)) == sorted(given_up)
        assert all(is_finished(room, partition, each) for each in given_up)


def test_the_topic_is_the_brokers_defaults(room, partition):
    gave_up(room, said(partition, dead(3)))
    assert room.engine.catalog.topics["orders.dead"].settings == TopicSettings()


def to_one_topic(room, target="failed.dead", attempts=2):
    settings = GroupSettings(RetryRules(attempts, 0, 0, Ending.DEAD_LETTER, target))
    return room.peer().ask(messages.AlterGroup, "g", settings, ["retry"], id=ID)


def test_all_letters_of_a_group_go_to_the_topic_of_its_policy(room, partition):
    payments = room.topic("payments", 3)[2]
    room.peer().send(payments, b"p")
    assert isinstance(to_one_topic(room), messages.Done)
    gave_up(room, said(payments, dead(0)))
    assert len(room.engine.catalog.topics["failed.dead"].partitions) == 3
    gave_up(room, said(partition, dead(3)))
    retry = said(partition, (4, 0, 0, "fails"))
    gave_up(room, retry)
    gave_up(room, said(partition, (4, 1, 0, "fails again")))
    found = letters(room, "failed.dead")
    assert [(value, headers["txbroker.dead.topic"]) for value, headers in found] == [
        (b"3", b"orders"), (b"4", b"orders"),
    ]  # fmt: skip
    [(value, headers)] = letters(room, "failed.dead", 2)
    assert (value, headers["txbroker.dead.topic"]) == (b"p", b"payments")
    assert {"orders.dead", "payments.dead"}.isdisjoint(room.engine.catalog.topics)


def test_other_groups_and_one_without_a_policy_have_the_usual_topic(room, partition):
    to_one_topic(room)
    room.peer().ask(messages.CommitOffsets, "other", [PartitionOffset(partition, 0)], ID)
    room.peer().ask(messages.CommitOffsets, "other", [], ID, None, [said(partition, dead(1))])
    assert [value for value, _ in letters(room)] == [b"1"]
    room.peer().ask(messages.AlterGroup, "g", GroupSettings(), ["retry"], id=ID)
    gave_up(room, said(partition, dead(2)))
    assert [value for value, _ in letters(room)] == [b"1", b"2"]


def test_a_letter_that_waits_goes_where_the_policy_says_when_it_is_moved(room, partition):
    to_one_topic(room)
    room.engine.full_at = 0
    gave_up(room, said(partition, dead(3)))
    room.engine.full_at = 1 << 62
    to_one_topic(room, "later.dead")
    room.restart()
    tick(room)
    assert [value for value, _ in letters(room, "later.dead")] == [b"3"]


@pytest.mark.parametrize("target", ["failed", "x" * 300 + ".dead", "a/b.dead"])
def test_a_target_that_is_no_topic_of_dead_letters_is_refused(room, partition, target):
    answer = to_one_topic(room, target)
    assert isinstance(answer, messages.Refused), answer
    assert "nothing" in answer.message
    assert room.broker.groups.find("g").settings == GroupSettings()


def test_a_message_of_the_target_has_nowhere_to_go_to(room, partition):
    to_one_topic(room, attempts=1)
    gave_up(room, said(partition, dead(0)))
    target = room.engine.catalog.topics["failed.dead"].partitions[0].number
    refused(give_up(room, said(target, dead(0))), "InvalidSetting")
    gave_up(room, said(target, (0, 0, 0, "fails")))
    assert settlement(room, target).unfinished[0].is_stopped


def test_a_topic_whose_own_name_is_too_long_for_the_usual_target_may_have_one(room):
    name = "t" * 197
    [number] = room.topic(name)
    room.peer().send(number, b"v")
    room.peer().ask(messages.CommitOffsets, "g", [PartitionOffset(number, 0)], ID)
    refused(give_up(room, said(number, dead(0))), "InvalidName")
    to_one_topic(room)
    gave_up(room, said(number, dead(0)))
    assert [value for value, _ in letters(room, "failed.dead")] == [b"v"]
