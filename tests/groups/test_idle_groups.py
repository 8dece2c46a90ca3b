"""Test that groups which nobody uses are deleted in time, and no other ones.

Seen to fail: with each of the uses not looked at, without the record that says a group to be in use, without the grace
after a start, and with the time of that record not added.
"""

import random

import pytest

from journal.records.group_entries import (
    Ending,
    GroupPositions,
    GroupSettings,
    PartitionOffset,
    Retried,
    RetryRules,
    Settled,
)
from journal.xid import Xid
from tests.members.members_room import MembersRoom
from tests.support.broker_room import refused
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.errors import InvalidSetting, LimitExceeded
from txbroker.groups import idle_groups
from txbroker.wire import messages

ID = b"g" * 16
SECOND = 1_000_000
EXPIRY = 800
LATEST = EXPIRY + EXPIRY // idle_groups.PART + 21
"""When a group is gone at the latest, in seconds: it is looked at every ten."""


@pytest.fixture
def room():
    return filled(MembersRoom())


def filled(room):
    room.topic("orders")
    room.peer().send(1, b"a", b"b", b"c")
    return room


def passes(room, seconds, every=10, then=lambda: None):
    """Let time pass, with a look at the groups every ten seconds."""
    for _ in range(0, seconds, every):
        room.clock.advance(every * SECOND)
        room.timers.advance(every)
        then()
        room.engine.sync()
        room.broker.idle_groups.look(room.engine.now())
        room.engine.sync()


def alter(room, expiry, group="g", **named):
    settings = GroupSettings(expiry=expiry)
    return room.peer().ask(messages.AlterGroup, group, settings, ["expiry"], id=ID, **named)


def expires(room, seconds=EXPIRY, group="g"):
    answer = alter(room, seconds if seconds is None else seconds * SECOND, group)
    assert isinstance(answer, messages.Done), answer


def is_there(room, group="g"):
    return group in room.broker.groups.groups


def commit(room, offset, group="g", settled=()):
    offsets = [] if settled else [PartitionOffset(1, offset)]
    answer = room.peer().ask(messages.CommitOffsets, group, offsets, ID, None, list(settled))
    assert isinstance(answer, messages.Done), answer


class TestExpiry:
    def test_a_group_that_nobody_uses_is_deleted_not_too_early_and_not_late(self, room):
        expires(room)
        commit(room, 1)
        passes(room, EXPIRY)
        assert is_there(room)
        passes(room, LATEST - EXPIRY)
        assert not is_there(room)

    def test_one_that_does_not_say_so_stays_unless_the_broker_says_so(self, room):
        commit(room, 1)
        passes(room, 10 * EXPIRY)
        assert is_there(room)
        other = filled(MembersRoom(group_expiry=EXPIRY * SECOND))
        commit(other, 1)
        commit(other, 1, "for ever")
        expires(other, 0, "for ever")
        commit(other, 1, "longer")
        expires(other, 2 * EXPIRY, "longer")
        passes(other, LATEST)
        assert sorted(other.broker.groups.groups) == ["for ever", "longer"]
        expires(other, None, "for ever")
        passes(other, LATEST)
        assert not other.broker.groups.groups

    def test_each_commit_is_a_use(self, room):
        expires(room)
        for _ in range(4):
            passes(room, EXPIRY - 10)
            commit(room, 1)
        assert is_there(room)

    def test_also_one_in_a_transaction(self, room):
        expires(room)
        peer = room.peer()
        for serial in range(1, 4):
            passes(room, EXPIRY - 10)
            positions = [GroupPositions("g", ID, [PartitionOffset(1, serial)])]
            answer = peer.ask(messages.Commit, 0, serial, positions=positions)
            assert isinstance(answer, messages.Committed), answer
        passes(room, EXPIRY)
        assert is_there(room)
        passes(room, LATEST - EXPIRY)
        assert not is_there(room)

    def test_a_member_with_nothing_to_do_is_a_use_and_its_end_begins_the_time(self, room):
        expires(room)
        member = room.member()
        member.take()
        passes(room, 5 * EXPIRY, then=member.take)
        assert is_there(room)
        member.peer.ask(messages.LeaveGroup, "g", member.number, member.secret)
        passes(room, EXPIRY)
        assert is_there(room)
        passes(room, LATEST - EXPIRY)
        assert not is_there(room)

    def test_one_that_gets_no_partition_is_a_use_from_the_first_look(self, room):
        expires(room)
        passes(room, EXPIRY + EXPIRY // idle_groups.PART - 10)
        member = room.member("topic-to-come")
        passes(room, 40, then=member.take)
        assert is_there(room)

    def test_so_is_a_reader_that_waits_for_messages_and_one_that_comes_again_and_again(self, room):
        expires(room)
        peer = room.peer()
        claimed = peer.ask(messages.ClaimPartitions, "g", "m", [1], ID)
        [(_, generation)] = claimed.claims
        reader = [messages.Reader("g", 0, [generation])]
        waiting = [peer.tell(messages.Fetch, [(1, 3, 0)], 1 << 20, 50 * SECOND, 1, reader)]

        def again():
            if peer.answer(waiting[-1]) is not None:
                waiting.append(peer.tell(messages.Fetch, [(1, 3, 0)], 1 << 20, 50 * SECOND, 1, reader))

        passes(room, 3 * EXPIRY, then=again)
        assert is_there(room)
        assert len(waiting) > 20

        def briefly():
            peer.ask(messages.Fetch, [(1, 3, 0)], 1 << 20, 0, 1, reader)

        peer.tell(messages.Cancel, waiting[-1])
        passes(room, 3 * EXPIRY, then=briefly)
        assert is_there(room)
        passes(room, LATEST)
        assert not is_there(room)

    def test_one_that_looks_at_it_without_a_claim_is_none(self, room):
        expires(room)
        peer = room.peer()
        reader = [messages.Reader("g", 0, [0])]
        passes(room, LATEST, then=lambda: peer.ask(messages.Fetch, [(1, 0, 0)], 1 << 20, 0, 1, reader))
        assert not is_there(room)

    def test_what_a_prepared_transaction_holds_keeps_it(self, room):
        expires(room)
        peer, xid = room.peer(), Xid(1, b"x", b"")
        positions = [GroupPositions("g", ID, [PartitionOffset(1, 2)])]
        peer.ask(messages.Prepare, 1, xid, positions=positions)
        passes(room, 3 * EXPIRY)
        assert is_there(room)
        assert isinstance(peer.ask(messages.Commit, 0, 1), messages.Committed)
        passes(room, EXPIRY)
        assert room.broker.groups.find("g").position(1) == 2
        passes(room, LATEST - EXPIRY)
        assert not is_there(room)

    def test_a_message_that_is_not_due_yet_keeps_it_and_one_that_is_does_not(self, room):
        expires(room)
        commit(room, 0)
        later = Settled(1, 0, 0, retried=[Retried(1, 0, 3 * EXPIRY * SECOND, "later")])
        commit(room, 0, settled=[later])
        passes(room, 3 * EXPIRY)
        assert is_there(room)
        passes(room, 2 * LATEST)
        assert not is_there(room)

    def test_one_that_waits_for_an_operator_does_not(self, room):
        rules = RetryRules(1, 0, 0, Ending.STOP)
        settings = GroupSettings(rules, EXPIRY * SECOND)
        room.peer().ask(messages.AlterGroup, "g", settings, ["retry", "expiry"], id=ID)
        commit(room, 0)
        commit(room, 0, settled=[Settled(1, 0, 0, retried=[Retried(1, 0, None, "poison")])])
        assert room.broker.groups.find("g").settlements[1].unfinished[1].is_stopped
        passes(room, LATEST)
        assert not is_there(room)

    def test_a_dead_letter_that_cannot_be_moved_keeps_it(self, room, monkeypatch):
        expires(room)
        commit(room, 0)
        monkeypatch.setattr(room.broker.dead_letters, "_move", self._refuse)
        dead = Settled(1, 0, 0, retried=[Retried(1, 0, None, "poison", True)])
        commit(room, 0, settled=[dead])
        passes(room, 3 * EXPIRY)
        assert is_there(room)
        monkeypatch.undo()
        room.broker.dead_letters.try_again()
        passes(room, 2 * LATEST)
        assert not is_there(room)
        assert room.engine.catalog.topics["orders.dead"].partitions[0].high_watermark == 1

    @staticmethod
    def _refuse(*_):
        raise LimitExceeded("not now")


class TestEnds:
    def test_nothing_of_its_members_is_left_that_a_group_of_the_same_name_would_have(self, room):
        expires(room)
        member = room.member()
        member.take()
        begun = messages.BegunMessages(1, member.owned[1], [(0, 0)])
        member.peer.ask(messages.BeginMessages, "g", member.number, member.secret, [begun])
        member.peer.leave()
        room.wait(6)
        assert "g" in room.broker.coordinator.tables
        passes(room, LATEST)
        assert not is_there(room)
        assert room.broker.coordinator.tables == {}

    def test_a_look_makes_as_many_records_as_fit_into_a_turn(self, room):
        for number in range(500):
            expires(room, 60, f"g{number}")
        lsn, most = room.engine.last_lsn, 0
        for _ in range(40):
            passes(room, 10)
            most, lsn = max(most, room.engine.last_lsn - lsn), room.engine.last_lsn
        assert 50 < most <= idle_groups.AT_ONCE // idle_groups.RECORD + 1
        assert not room.broker.groups.groups

    def test_messages_with_details_are_looked_at_only_before_it_would_go(self, room, monkeypatch):
        expires(room)
        commit(room, 0)
        commit(room, 0, settled=[Settled(1, 0, 0, retried=[Retried(1, 0, 0, "fails")])])
        looks = []
        monkeypatch.setattr(
            room.broker.idle_groups, "_waits_for_something", lambda *of: bool(looks.append(of))
        )
        passes(room, EXPIRY)
        assert looks == []
        passes(room, LATEST - EXPIRY)
        assert len(looks) == 1


class TestRestarts:
    def test_the_time_goes_on_over_restarts_and_checkpoints(self, room):
        expires(room)
        commit(room, 1)
        for _ in range(4):
            passes(room, EXPIRY // 4)
            room.engine.housekeeping.checkpoint_inline()
            room.restart()
        passes(room, LATEST - EXPIRY + 70)
        assert not is_there(room)
        room.restart()
        assert not is_there(room)

    def test_a_deletion_that_was_not_forced_comes_again(self, room):
        expires(room)
        passes(room, EXPIRY)
        while is_there(room):
            room.clock.advance(10 * SECOND)
            room.broker.idle_groups.look(room.engine.now())
        room.filesystem = room.filesystem.crash_clone(0, 0.0)
        room.start()
        assert is_there(room)
        passes(room, LATEST)  # its time goes on from the last record
        assert not is_there(room)

    def test_members_have_time_to_come_back(self):
        room = filled(MembersRoom(reconnect_grace=60 * SECOND, rejoin_timeout=340 * SECOND))
        expires(room, 60)
        room.member().take()
        room.restart()
        passes(room, 390)
        assert is_there(room)
        member = room.member()
        passes(room, 390, then=member.take)
        assert is_there(room)

    def test_a_member_that_did_nothing_for_long_was_a_use_also_after_a_restart(self, room):
        expires(room)
        member = room.member()
        passes(room, 5 * EXPIRY, then=member.take)
        room.restart()
        passes(room, EXPIRY - EXPIRY // idle_groups.PART - 10)
        assert is_there(room)

    def test_what_says_that_it_is_in_use_comes_some_times_in_its_time_and_changes_nothing(self, room):
        expires(room)
        member = room.member()
        member.take()
        before, lsn = room.broker.groups.find("g").settings, room.engine.last_lsn
        passes(room, 3 * EXPIRY, then=member.take)
        assert room.engine.last_lsn - lsn <= 3 * idle_groups.PART
        assert room.broker.groups.find("g").settings == before


class TestManyGroups:
    def test_all_are_looked_at_in_turns(self, room, monkeypatch):
        monkeypatch.setattr(idle_groups, "AT_ONCE", 3 * idle_groups.GROUP)
        names = [f"g{number}" for number in range(20)]
        for name in names:
            expires(room, EXPIRY, name)
        passes(room, EXPIRY)
        assert all(is_there(room, name) for name in names)
        commit(room, 1, "g7")
        passes(room, LATEST - EXPIRY + 200)
        assert [name for name in names if is_there(room, name)] == ["g7"]

    @pytest.mark.parametrize("seconds", range(200, 300, 20))
    def test_a_member_that_leaves_between_looks_was_a_use_until_then(self, room, monkeypatch, seconds):
        monkeypatch.setattr(idle_groups, "AT_ONCE", 2 * idle_groups.GROUP)
        for number in range(20):
            expires(room, 60 if number == 7 else EXPIRY, f"g{number}")
        member = room.member(group="g7")
        passes(room, seconds, then=member.take)
        member.peer.ask(messages.LeaveGroup, "g7", member.number, member.secret)
        passes(room, 60)
        assert is_there(room, "g7")
        passes(room, 300)
        assert not is_there(room, "g7")

    def test_what_is_known_of_groups_that_are_gone_is_forgotten(self, room):
        for number in range(20):
            name = f"g{number}"
            claimed = room.peer().ask(messages.ClaimPartitions, name, "m", [1], ID)
            reader = [messages.Reader(name, 0, [claimed.claims[0][1]])]
            room.peer().ask(messages.Fetch, [(1, 0, 0)], 1 << 20, 0, 1, reader)
            room.peer().ask(messages.DeleteGroup, name, ID)
            passes(room, 10)
        assert not room.broker.idle_groups._used

    @pytest.mark.parametrize("seed", range(10))
    def test_no_group_goes_before_its_time_and_each_goes_after_it(self, room, seed, monkeypatch):
        monkeypatch.setattr(idle_groups, "AT_ONCE", 2 * idle_groups.GROUP)
        draw = random.Random(seed)
        names = [f"g{number}" for number in range(5)]
        times = {name: draw.choice((60, 200, 800)) for name in names}
        for name in names:
            expires(room, times[name], name)
        used = dict.fromkeys(names, room.engine.now())
        for _ in range(120):
            passes(room, 10)
            if draw.random() < 0.03:
                room.restart()
            name = draw.choice(names)
            if is_there(room, name) and draw.random() < 0.3:
                commit(room, 1, name)
                used[name] = room.engine.now()
            for each in names:
                idle = (room.engine.now() - used[each]) / SECOND
                assert is_there(room, each) or idle >= times[each]
        passes(room, 1200)
        assert not any(is_there(room, name) for name in names)


def test_a_full_disk_deletes_nothing(room):
    expires(room)
    room.engine.full_at = 0
    passes(room, 2 * LATEST)
    assert is_there(room)
    room.engine.full_at = 1 << 62
    passes(room, LATEST)
    assert not is_there(room)


@pytest.mark.parametrize("seconds", [1, 59, 0.000001, 3660 * 24 * 3600 + 1])
def test_times_below_a_minute_and_above_ten_years_are_refused(room, seconds):
    text = refused(alter(room, round(seconds * SECOND)), "InvalidSetting")
    assert "60000000 to 316224000000000 are possible" in text
    assert not is_there(room)


def test_another_time_than_the_groups_is_refused_of_one_that_does_not_replace_it(room):
    expires(room)
    text = refused(alter(room, 90 * SECOND, whether=messages.Whether.NONE_OR_SAME), "GroupSettingsConflict")
    assert "'g' has another time of expiry (800000000, not 90000000)" in text
    assert isinstance(alter(room, 90 * SECOND, whether=messages.Whether.NONE), messages.Done)
    assert room.broker.groups.find("g").settings.expiry == EXPIRY * SECOND


def test_a_setting_that_no_group_has_is_refused_by_name(room):
    answer = room.peer().ask(messages.AlterGroup, "g", GroupSettings(), ["expiry", "colour"], id=ID)
    assert "no setting 'colour', but retry, expiry, tags" in refused(answer, "InvalidSetting")


def test_the_broker_has_it_off_and_takes_a_minute_to_ten_years():
    assert BrokerSettings().group_expiry is None
    assert BrokerSettings(group_expiry=60 * SECOND).group_expiry == 60 * SECOND
    for wrong in (0, 59 * SECOND, 100 * 366 * 24 * 3600 * SECOND):
        with pytest.raises(InvalidSetting, match="group_expiry"):
            BrokerSettings(group_expiry=wrong)
