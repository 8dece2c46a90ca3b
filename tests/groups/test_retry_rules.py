"""Test the rules by which a group tries messages again: who sets them, pauses, and the last attempt."""

import pytest

from journal.records.group_entries import MAX_PAUSE, Ending, GroupSettings, RetryRules
from journal.xid import Xid
from tests.groups.test_retries import MESSAGES, commit, fetched, kept, prepare, retry, said
from tests.support.broker_room import Room, refused
from txbroker.wire import messages
from txbroker.wire.messages import Whether

XID, ID = Xid(1, b"x", b""), b"g" * 16
SECOND = 1_000_000
RULES = RetryRules(3, SECOND, 4 * SECOND, Ending.DEAD_LETTER)


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    [partition] = room.topic()
    room.peer().send(partition, *[b"%d" % number for number in range(MESSAGES)])
    return partition


def alter(room, retry, whether=Whether.ALWAYS, group="g"):
    return room.peer().ask(messages.AlterGroup, group, GroupSettings(retry), ["retry"], whether, ID)


def given(room, retry, whether=Whether.ALWAYS):
    answer = alter(room, retry, whether)
    assert isinstance(answer, messages.Done), answer


def rules(room):
    return room.broker.groups.find("g").settings.retry


def ending(ending, attempts=3):
    return RetryRules(attempts, SECOND, 4 * SECOND, ending)


def fails(room, partition, offset, times, begin=0):
    for attempts in range(begin, begin + times):
        retry(room, said(partition, (offset, attempts)))


def finished(room, partition):
    group = room.broker.groups.find("g")
    settlement = group.settlements.get(partition)
    runs = [] if settlement is None else settlement.finished.runs()
    above = [offset for first, end in runs for offset in range(first, end)]
    return [*range(group.position(partition) or 0), *above]


class TestSetting:
    def test_they_stay_over_restarts_and_checkpoints(self, room):
        given(room, RULES)
        room.restart()
        assert rules(room) == RULES
        room.engine.housekeeping.checkpoint_inline()
        room.restart()
        assert rules(room) == RULES
        given(room, None)
        room.restart()
        assert rules(room) is None

    def test_a_group_that_is_not_there_is_made(self, room):
        given(room, RULES)
        assert room.group_id() == ID
        described = room.peer().ask(messages.DescribeGroup, "g")
        assert (described.id, described.settings) == (ID, GroupSettings(RULES))

    def test_what_is_so_already_is_no_record(self, room):
        given(room, RULES)
        lsn = room.engine.last_lsn
        for whether in Whether:
            given(room, RULES, whether)
        assert room.engine.last_lsn == lsn

    def test_others_are_refused_by_name_unless_they_replace(self, room):
        given(room, RULES, Whether.NONE_OR_SAME)
        lsn = room.engine.last_lsn
        text = refused(alter(room, ending(Ending.DROP, 1), Whether.NONE_OR_SAME), "GroupSettingsConflict")
        assert "'g'" in text
        assert "3 attempts with pauses of 1 s to 4 s, then dead letter, not 1 attempt" in text
        given(room, ending(Ending.DROP), Whether.NONE)
        assert room.engine.last_lsn == lsn
        assert rules(room) == RULES
        given(room, ending(Ending.DROP))
        assert rules(room) == ending(Ending.DROP)

    def test_none_takes_them_away_only_if_it_replaces(self, room):
        given(room, RULES)
        refused(alter(room, None, Whether.NONE_OR_SAME), "GroupSettingsConflict")
        given(room, None, Whether.NONE)
        assert rules(room) == RULES

    def test_the_end_of_a_group_is_theirs(self, room):
        given(room, RULES)
        room.peer().ask(messages.DeleteGroup, "g", ID)
        assert "g" not in room.broker.groups.groups
        given(room, None)
        assert rules(room) is None

    def test_a_bad_name_and_too_many_groups_are_refused(self):
        room = Room(max_groups=1)
        refused(alter(room, RULES, group="a\nb"), "InvalidName")
        given(room, RULES)
        refused(alter(room, RULES, group="other"), "LimitExceeded")
        assert list(room.broker.groups.groups) == ["g"]

    def test_a_first_pause_above_the_longest_is_refused(self, room):
        text = refused(alter(room, RetryRules(3, 2, 1, Ending.STOP)), "InvalidSetting")
        assert "first pause of 2 µs is above the longest, 1 µs" in text
        assert "g" not in room.broker.groups.groups

    @pytest.mark.parametrize("is_there", [True, False])
    def test_a_full_disk_refuses_a_record(self, room, is_there):
        if is_there:
            given(room, RULES)
        room.engine.full_at = 0
        refused(alter(room, ending(Ending.STOP)), "DiskFull")
        if is_there:
            given(room, RULES)


class TestPauses:
    def test_they_double_up_to_the_longest_and_differ(self, room, partition):
        given(room, RetryRules(1000, SECOND, 4 * SECOND, Ending.STOP))
        seen = set()
        for attempts, full in enumerate((1, 2, 4, 4, 4)):
            for offset in range(10):
                retry(room, said(partition, (offset, attempts)))
                _, pause, _ = kept(room, partition)[offset]
                assert full / 2 <= pause <= full
                seen.add(pause)
        assert len(seen) > 40

    def test_a_pause_that_is_said_is_meant(self, room, partition):
        given(room, RULES)
        retry(room, said(partition, (3, 0, 9 * SECOND)))
        assert kept(room, partition)[3][:2] == (1, 9.0)

    def test_the_largest_numbers_are_no_overflow(self, room, partition):
        given(room, RetryRules(1000, MAX_PAUSE, MAX_PAUSE, Ending.STOP))
        fails(room, partition, 3, 999)
        attempts, pause, _ = kept(room, partition)[3]
        assert attempts == 999
        assert MAX_PAUSE / 2 <= pause * SECOND <= MAX_PAUSE

    def test_none_at_all_comes_again_at_once(self, room, partition):
        given(room, RetryRules(3, 0, 0, Ending.STOP))
        retry(room, said(partition, (3, 0)))
        assert fetched(room, partition) == (MESSAGES, "", {3: 1})


class TestLastAttempt:
    def test_a_dead_letter_is_moved(self, room, partition):
        given(room, RULES)
        fails(room, partition, 3, 2)
        assert "orders.dead" not in room.engine.catalog.topics
        fails(room, partition, 3, 1, 2)
        room.engine.sync()
        [dead] = [p.number for p in room.engine.catalog.topics["orders.dead"].partitions]
        assert room.engine.catalog.stores[dead].high_watermark == 1
        assert finished(room, partition) == [3]

    def test_a_dropped_one_is_finished(self, room, partition):
        given(room, ending(Ending.DROP))
        fails(room, partition, 3, 2)
        assert finished(room, partition) == []
        fails(room, partition, 3, 1, 2)
        assert finished(room, partition) == [3]
        assert kept(room, partition) == {}
        assert "orders.dead" not in room.engine.catalog.topics

    def test_a_stopped_one_waits_until_an_operator_says_so(self, room, partition):
        given(room, ending(Ending.STOP))
        fails(room, partition, 3, 3)
        room.clock.advance(MAX_PAUSE)
        room.restart()
        assert fetched(room, partition) == (MESSAGES, "3", {})
        [listed] = room.peer().ask(messages.ListParked, "g", partition).offsets
        assert (listed.offset, listed.attempts, listed.left, listed.stopped) == (3, 3, 0, True)
        room.peer().ask(messages.ReleaseParked, "g", ID, partition, [3])
        assert fetched(room, partition) == (MESSAGES, "", {3: 3})
        fails(room, partition, 3, 1, 3)
        assert fetched(room, partition) == (MESSAGES, "3", {})
        room.peer().ask(messages.ReleaseParked, "g", ID, partition, [3], messages.Release.SKIP)
        assert finished(room, partition) == [3]

    def test_no_timer_is_set_for_a_stopped_one(self, room, partition):
        given(room, ending(Ending.STOP, 1))
        fails(room, partition, 3, 1)
        reader = messages.Reader("g", 0, [0], [(partition, said(partition, finished=[3]).finished, 0)])
        room.peer().tell(messages.Fetch, [(partition, MESSAGES, MESSAGES)], 1 << 20, SECOND, 1, [reader])
        assert all(each.getTime() < 10 for each in room.timers.getDelayedCalls())

    def test_a_dead_letter_that_fails_again_stops(self, room):
        [dead] = room.topic("orders.dead")
        room.peer().send(dead, b"a")
        given(room, ending(Ending.DEAD_LETTER, 1))
        fails(room, dead, 0, 1)
        [listed] = room.peer().ask(messages.ListParked, "g", dead).offsets
        assert listed.stopped

    @pytest.mark.parametrize("last", list(Ending))
    def test_a_repetition_changes_nothing(self, room, partition, last):
        given(room, ending(last))
        fails(room, partition, 3, 3)
        room.engine.sync()
        before = finished(room, partition), kept(room, partition).keys()
        retry(room, said(partition, (3, 2)))
        assert (finished(room, partition), kept(room, partition).keys()) == before

    def test_an_earlier_failure_of_what_is_finished_is_refused_still(self, room, partition):
        given(room, RULES)
        retry(room, said(partition, finished=[3]))
        refused(commit(room, said(partition, (3, 0))), "AlreadyFinished")

    def test_fewer_attempts_hold_from_the_next_failure_on(self, room, partition):
        given(room, ending(Ending.DROP, 5))
        fails(room, partition, 3, 3)
        given(room, ending(Ending.DROP, 2))
        assert finished(room, partition) == []
        fails(room, partition, 3, 1, 3)
        assert finished(room, partition) == [3]

    @pytest.mark.parametrize("ends", [messages.Commit, messages.Rollback])
    def test_in_a_transaction_it_is_given_up_with_the_commit(self, room, partition, ends):
        given(room, ending(Ending.DROP, 1))
        answer = prepare(room, said(partition, (3, 0)))
        assert isinstance(answer, messages.Done), answer
        assert finished(room, partition) == []
        given(room, None)
        room.restart()
        room.peer().ask(ends, 0, 0, XID)
        assert finished(room, partition) == ([3] if ends is messages.Commit else [])

    def test_one_request_says_several_endings(self, room, partition):
        given(room, ending(Ending.DROP, 2))
        fails(room, partition, 3, 1)
        retry(room, said(partition, (3, 1), (4, 0), finished=[5]))
        assert finished(room, partition) == [3, 5]
        assert kept(room, partition).keys() == {4}
