import itertools

import pytest
from msgspec.structs import replace

from journal.errors import InvalidFrame
from journal.folds.group import GroupRow
from journal.folds.groups import GroupsFold
from journal.formats.checkpoint_rows import Fact
from journal.formats.offset_set_bytes import MAX_AHEAD
from journal.records.group_entries import (
    DEAD,
    STOPPED,
    Ending,
    GroupPositions,
    GroupSettings,
    PartitionOffset,
    RetryRules,
    Settled,
    Unfinished,
)
from journal.records.record import (
    GroupAltered,
    GroupDeleted,
    OffsetsCommitted,
    PartitionsAdded,
    PartitionsClaimed,
    Started,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TransactionCommitted,
    TransactionOffsetsAdded,
    TransactionPrepared,
    TransactionRolledBack,
)
from journal.settings import TopicSettings
from journal.transaction_states import Cause, Totals, TransactionNumber
from journal.xid import Xid
from tests.support.builders import reread
from txbroker.errors import GenerationFenced

XID = Xid(1, b"x", b"")
RULES = RetryRules(3, 1_000_000, 60_000_000, Ending.STOP)
OTHERS = RetryRules(1, 0, 0, Ending.DROP)
FIRST, SECOND = TransactionNumber(5, 1), TransactionNumber(5, 2)


class Journal:
    def __init__(self):
        self.fold = GroupsFold()
        self.lsn = itertools.count(1)
        for topic, first in (("a", 1), ("b", 11)):
            self.accept(TopicCreated(topic, first, 10, TopicSettings(), 0))

    def accept(self, record):
        self.fold.apply(next(self.lsn), record, b"")

    def commit_offset(self, partition, offset, group="g", made=b""):
        self.accept(OffsetsCommitted(group, [PartitionOffset(partition, offset)], 0, made))

    def claim(self, generation, *partitions, group="g", member="m"):
        self.accept(PartitionsClaimed(group, member, [(p, generation) for p in partitions], 0))

    def alter(self, rules, group="g", made=b"id of g"):
        self.accept(GroupAltered(group, GroupSettings(rules), 0, made))

    def checkpoint(self):
        """The fold that goes on is the one that was restored."""
        rows = reread(GroupsFold, self.fold.snapshot())
        self.fold = GroupsFold()
        self.fold.restore(rows)

    def add(self, number, *offsets, group="g"):
        self.accept(
            TransactionOffsetsAdded(*number, group, [PartitionOffset(*each) for each in offsets], 0, 0)
        )

    def prepare(self, number):
        self.accept(TransactionPrepared(*number, XID, Totals(0, 1, 0), 0, 0))

    def commit(self, number):
        self.accept(TransactionCommitted(*number, [], 0, Cause.CLIENT))

    def roll_back(self, number):
        self.accept(TransactionRolledBack(*number, 0, Cause.CLIENT))

    def restart(self):
        self.accept(Started(2, 0, 0, bytes(16)))

    def position(self, partition, group="g"):
        found = self.fold.find(group).positions.get(partition)
        return found and found[0]


@pytest.fixture
def journal():
    return Journal()


def test_the_last_committed_offset_counts(journal):
    journal.commit_offset(1, 10)
    journal.commit_offset(1, 7)
    journal.commit_offset(2, 3)
    assert (journal.position(1), journal.position(2), journal.position(3)) == (7, 3, None)


def test_offsets_of_a_transaction_move_when_it_commits_and_hold_from_prepare_on(journal):
    journal.commit_offset(1, 1)
    journal.add(FIRST, (1, 5), (2, 6))
    assert journal.fold.holder("g", 1) is None
    journal.prepare(FIRST)
    assert journal.fold.holders("g") == {1: FIRST, 2: FIRST}
    assert journal.position(1) == 1
    journal.commit(FIRST)
    assert (journal.position(1), journal.position(2)) == (5, 6)
    assert journal.fold.holder("g", 1) is None
    assert journal.fold.staged(FIRST) == []


def test_a_rolled_back_transaction_moves_nothing_and_lets_go(journal):
    journal.add(FIRST, (1, 5))
    journal.prepare(FIRST)
    journal.roll_back(FIRST)
    assert journal.position(1) is None
    assert journal.fold.holder("g", 1) is None


def test_one_phase_commits_move_offsets_too(journal):
    journal.add(FIRST, (1, 5))
    journal.commit(FIRST)
    assert journal.position(1) == 5


def test_a_restart_forgets_what_was_active_and_keeps_what_was_prepared(journal):
    journal.add(FIRST, (1, 5))
    journal.prepare(FIRST)
    journal.add(SECOND, (2, 6))
    journal.restart()
    journal.commit(SECOND)
    assert journal.position(2) is None
    assert journal.fold.holder("g", 1) == FIRST
    journal.commit(FIRST)
    assert journal.position(1) == 5


def test_two_prepared_transactions_cannot_hold_one_position(journal):
    journal.add(FIRST, (1, 5))
    journal.add(SECOND, (1, 6))
    journal.prepare(FIRST)
    with pytest.raises(AssertionError, match="hold"):
        journal.prepare(SECOND)


def test_an_unclaimed_partition_takes_unfenced_offsets_only(journal):
    journal.fold.check_generation("g", PartitionOffset(1, 0))
    with pytest.raises(GenerationFenced, match="no generation has claimed it"):
        journal.fold.check_generation("g", PartitionOffset(1, 0, 3))


def test_only_the_newest_claim_may_commit(journal):
    journal.claim(1, 1, 2, member="old")
    journal.claim(2, 1, member="new")
    journal.fold.check_generation("g", PartitionOffset(1, 0, 2))
    journal.fold.check_generation("g", PartitionOffset(2, 0, 1))
    for generation in (0, 1, 3, -1):
        with pytest.raises(GenerationFenced, match=r"generation 2 \('new'\)"):
            journal.fold.check_generation("g", PartitionOffset(1, 0, generation))


def test_generations_go_on_after_a_group_was_deleted_so_its_consumers_stay_fenced(journal):
    journal.claim(1, 1)
    journal.accept(GroupDeleted("g", 0))
    assert journal.fold.last_generation == 1
    journal.claim(2, 1)
    with pytest.raises(GenerationFenced):
        journal.fold.check_generation("g", PartitionOffset(1, 0, 1))


def test_a_claim_that_goes_back_is_not_taken(journal):
    journal.claim(2, 1)
    with pytest.raises(AssertionError, match="goes back"):
        journal.claim(2, 1)


def test_a_deleted_topic_takes_positions_claims_and_holds_with_it(journal):
    journal.commit_offset(1, 4)
    journal.commit_offset(11, 4)
    journal.claim(1, 2, 12)
    journal.add(FIRST, (1, 9), (11, 9))
    journal.prepare(FIRST)
    journal.accept(TopicDeleted("a", 0))
    assert journal.fold.find("g").partitions() == {11, 12}
    assert journal.fold.pairs == 2
    assert journal.fold.holders("g") == {11: FIRST}
    journal.commit(FIRST)
    assert (journal.position(1), journal.position(11)) == (None, 9)


def test_a_deleted_topic_takes_what_groups_have_of_the_partitions_that_it_got_later(journal):
    journal.accept(TopicAltered("a", TopicSettings(), 0, PartitionsAdded(10, 21, 2)))
    journal.accept(TopicAltered("b", TopicSettings(), 0, PartitionsAdded(10, 23, 1)))
    for partition in (1, 21, 22, 23):
        journal.commit_offset(partition, 4)
    journal.checkpoint()
    journal.accept(TopicDeleted("a", 0))
    assert journal.fold.find("g").partitions() == {23}


def test_pairs_count_each_partition_of_a_group_once(journal):
    journal.commit_offset(1, 1)
    journal.commit_offset(1, 2)
    journal.claim(1, 1, 2)
    journal.commit_offset(2, 2)
    journal.commit_offset(1, 2, group="other")
    assert journal.fold.pairs == 3
    journal.accept(GroupDeleted("g", 0))
    assert journal.fold.pairs == 1


def test_a_snapshot_restores_everything_also_what_is_staged(journal):
    journal.commit_offset(1, 4, made=b"id of g")
    journal.claim(1, 2, 12)
    journal.add(FIRST, (1, 9))
    journal.prepare(FIRST)
    journal.add(SECOND, (2, 8, 1))
    rows = journal.fold.snapshot()
    journal.commit_offset(3, 3)
    fold = GroupsFold()
    fold.restore(reread(GroupsFold, rows))
    assert fold.find("g").partitions() == {1, 2, 12}
    assert (fold.pairs, fold.last_generation) == (3, 1)
    assert fold.holders("g") == {1: FIRST}
    assert fold.staged(SECOND) == [GroupPositions("g", b"", [PartitionOffset(2, 8, 1)])]
    assert fold.find("g").id == b"id of g"
    journal.fold = fold
    journal.restart()
    journal.commit(FIRST)
    journal.commit(SECOND)
    assert (journal.position(1), journal.position(2)) == (9, None)
    assert not fold._prepared


def test_a_forged_record_that_reopens_ever_lower_offsets_is_refused_at_the_first_that_is_too_low(journal):
    """Each is within the bound of the one before it; to keep all that is finished between them would take gigabytes."""
    top = 1 << 45
    journal.commit_offset(1, top)
    said = [Unfinished(top - number * MAX_AHEAD) for number in range(1, 10)]
    with pytest.raises(AssertionError, match=f"offset {top - 2 * MAX_AHEAD} would be unfinished"):
        journal.accept(OffsetsCommitted("g", [], 0, b"", [Settled(1, 0, top, b"", said)]))


def test_an_offset_that_lost_its_details_can_be_finished_while_others_keep_theirs(journal):
    for said in ([Unfinished(3, 1), Unfinished(5, 1)], [Unfinished(3)]):
        journal.accept(OffsetsCommitted("g", [], 0, b"", [Settled(1, 0, 0, b"", said)]))
    journal.accept(OffsetsCommitted("g", [], 0, b"", [Settled(1, 0, 0, b"\x02\x08")]))
    assert list(journal.fold.find("g").settlements[1].unfinished) == [5]


@pytest.mark.parametrize(
    ("offsets", "settled"),
    {
        "wide": ([], [Settled(1, 0, 0, b"\x01\x01\xf4\x03")]),
        "a position": ([PartitionOffset(1, 900)], []),
        "a start": ([], [Settled(1, 0, 0, start=900)]),
    }.values(),
)
def test_a_change_does_not_go_through_the_details_that_it_leaves(journal, offsets, settled):
    said = [Unfinished(1000 + number, 1) for number in range(100)]
    journal.accept(OffsetsCommitted("g", [], 0, b"", [Settled(1, 0, 0, b"", said)]))
    settlement = journal.fold.find("g").settlements[1]
    settlement.unfinished = Untouched(settlement.unfinished)
    journal.accept(OffsetsCommitted("g", offsets, 0, b"", settled))
    assert settlement.unfinished is journal.fold.find("g").settlements[1].unfinished
    assert len(settlement.unfinished) == 100


class Untouched(dict):
    """Details that nobody goes through."""

    def __iter__(self):
        raise AssertionError("all details are gone through")

    items = values = keys = __iter__


def test_details_lie_within_the_bound_of_the_format(journal):
    """Others, which only a forged record has, would cost 4 KiB each: they are known by bitmaps, too."""
    last = Unfinished(MAX_AHEAD - 1, 1)
    journal.accept(OffsetsCommitted("g", [], 0, b"", [Settled(1, 0, 0, b"", [last])]))
    with pytest.raises(AssertionError, match=f"offset {MAX_AHEAD} has details, far above"):
        journal.accept(OffsetsCommitted("g", [], 0, b"", [Settled(1, 0, 0, b"", [Unfinished(MAX_AHEAD, 1)])]))
    journal.commit_offset(1, 1)
    journal.accept(OffsetsCommitted("g", [], 0, b"", [Settled(1, 0, 0, b"", [Unfinished(MAX_AHEAD, 1)])]))
    with pytest.raises(
        AssertionError, match=f"offset 0 would be unfinished, {MAX_AHEAD + 1} below what is known"
    ):
        journal.accept(OffsetsCommitted("g", [], 0, b"", [Settled(1, 0, 0, b"", [Unfinished(0)])]))


def test_a_checkpoint_with_details_outside_of_it_is_not_read(journal):
    journal.accept(OffsetsCommitted("g", [], 0, b"", [Settled(1, 0, 0, b"", [Unfinished(5, 1)])]))
    rows = [
        replace(row, settlements=[replace(row.settlements[0], unfinished=[Unfinished(MAX_AHEAD, 1)])])
        if isinstance(row, GroupRow)
        else row
        for row in journal.fold.snapshot()
    ]
    with pytest.raises(InvalidFrame, match=f"details of offset {MAX_AHEAD}, far above its position"):
        reread(GroupsFold, rows)


def test_the_holder_of_an_offset_is_looked_for_among_those_that_hold_some_around_it(journal):
    """There may be 200,000 of them, and their sets have to be decoded."""
    journal.commit_offset(1, 0)
    bits = {FIRST: b"\x02\x06", SECOND: b"\x02\x50", TransactionNumber(5, 3): b"\x02\x20"}
    for number, finished in bits.items():
        settled = [Settled(1, 0, 0, finished)]
        journal.accept(TransactionOffsetsAdded(*number, "g", [], 0, 0, settled=settled))
        journal.prepare(number)
    held = journal.fold.held("g", 1)
    assert [held.candidates(offset) for offset in (0, 1, 4)] == [[], [FIRST], [SECOND]]
    assert held.candidates(5) == [SECOND, TransactionNumber(5, 3)]
    pending = journal.fold.conflict([GroupPositions("g", b"", [], [Settled(1, 0, 0, b"\x02\x20")])])
    assert (pending.offset, pending.holder) == (5, TransactionNumber(5, 3))


def test_who_moves_the_position_too_is_told_of_the_mover_and_not_of_who_finishes_the_next_message(journal):
    """Both wait for the mover, whatever else is held where the position stands."""
    journal.commit_offset(1, 3)
    journal.accept(TransactionOffsetsAdded(*FIRST, "g", [], 0, 0, settled=[Settled(1, 0, 3, b"\x02\x01")]))
    journal.prepare(FIRST)
    start = Settled(
        1, 0, 0, b"", start=1
    )  # retention came to 1 when the group had not been seen to be beyond it
    journal.accept(TransactionOffsetsAdded(*SECOND, "g", [], 0, 0, settled=[start]))
    journal.prepare(SECOND)
    pending = journal.fold.conflict([GroupPositions("g", b"", [], [start])])
    assert (pending.offset, pending.holder) == (3, SECOND)


def test_the_last_retry_rules_count_until_they_are_removed(journal):
    journal.commit_offset(1, 4)
    assert journal.fold.find("g").settings == GroupSettings()
    for rules in (RULES, OTHERS, None, RULES):
        journal.alter(rules)
        assert journal.fold.find("g").settings.retry == rules


def test_retry_rules_make_a_group_and_leave_one_that_there_is_as_it_was(journal):
    journal.commit_offset(1, 4, group="old", made=b"id of old")
    for group in ("g", "old"):
        journal.alter(RULES, group)
        assert journal.fold.find(group).settings.retry == RULES
    assert (journal.fold.find("g").id, journal.fold.find("old").id) == (b"id of g", b"id of old")
    assert (journal.fold.find("g").partitions(), journal.fold.pairs) == (set(), 1)
    journal.commit_offset(2, 5, made=b"later")
    assert (journal.fold.find("g").id, journal.position(2)) == (b"id of g", 5)
    assert (journal.position(1, "old"), journal.fold.find("g").settings.retry) == (4, RULES)


def test_retry_rules_that_make_a_group_without_an_id_are_not_taken(journal):
    for rules in (RULES, None):
        with pytest.raises(AssertionError, match="has no id for a group that it makes"):
            journal.alter(rules, made=b"")
    assert "g" not in journal.fold.groups
    journal.commit_offset(1, 4)
    journal.alter(RULES, made=b"")
    assert journal.fold.find("g").settings.retry == RULES


def test_a_group_that_is_deleted_and_made_again_has_no_retry_rules(journal):
    journal.alter(RULES)
    journal.alter(RULES, "other")
    journal.accept(GroupDeleted("g", 0))
    assert "g" not in journal.fold.groups
    journal.commit_offset(1, 4)
    assert (journal.fold.find("g").settings.retry, journal.fold.find("other").settings.retry) == (None, RULES)


def test_retry_rules_stay_when_the_topic_is_deleted_whose_messages_they_were_for(journal):
    journal.commit_offset(1, 4)
    journal.alter(RULES)
    journal.accept(TopicDeleted("a", 0))
    assert (journal.fold.find("g").partitions(), journal.fold.find("g").settings.retry) == (set(), RULES)


def test_a_checkpoint_has_retry_rules_of_groups_with_settled_offsets_and_without_any(journal):
    journal.alter(RULES, "alone")
    journal.alter(OTHERS, "settling")
    journal.accept(OffsetsCommitted("settling", [], 0, b"", [Settled(1, 0, 0, b"\x02\x02")]))
    journal.commit_offset(1, 4, group="none")
    rows = journal.fold.snapshot()
    journal.alter(None, "alone")
    assert {row.name: row.settings.retry for row in rows if isinstance(row, GroupRow)} == {
        "alone": RULES,
        "settling": OTHERS,
        "none": None,
    }
    journal.alter(RULES, "alone")
    journal.checkpoint()
    groups = journal.fold.groups
    assert {name: group.settings.retry for name, group in groups.items()} == {
        "alone": RULES,
        "settling": OTHERS,
        "none": None,
    }


def test_a_row_from_before_there_were_retry_rules_is_that_of_a_group_without_any(journal):
    journal.alter(RULES)
    head, row = journal.fold.snapshot()
    rows = reread(GroupsFold, [head, [row.name, row.id, row.positions, row.claims, row.settlements]])
    journal.fold.restore(rows)
    assert journal.fold.find("g").settings == GroupSettings()


def test_facts_tell_the_retry_rules_of_each_group(journal):
    told = {}
    for rules in (None, RULES, OTHERS, replace(RULES, ending=Ending.DEAD_LETTER)):
        journal.alter(rules)
        told[rules] = dict(journal.fold.facts())
        changed = {what.what for what, value in told[rules].items() if value != told[None].get(what)}
        assert changed == ({"the settings of group 'g'"} if rules else set())
    assert [told[rules] == other for rules in told for other in told.values()].count(True) == len(told)


def test_an_offset_that_is_stopped_is_unfinished_and_not_to_be_moved(journal):
    dead = []
    journal.fold.on_dead = lambda *what: dead.append(what)
    said = [Unfinished(3, 2, STOPPED), Unfinished(4, 2, DEAD), Unfinished(5, 2, 99)]
    journal.accept(OffsetsCommitted("g", [], 0, b"", [Settled(1, 0, 3, b"", said)]))
    journal.checkpoint()
    kept = journal.fold.find("g").settlements[1].unfinished.values()
    assert [(each.is_stopped, each.is_dead) for each in kept] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert dead == [("g", 1, 4)]


POSITIONS = GroupPositions("g", b"", [PartitionOffset(1, 3)])
RECORDS_OF_A_GROUP = (
    OffsetsCommitted("g", [PartitionOffset(1, 3)], 7),
    OffsetsCommitted("g", [], 7, settled=[Settled(1, 0, 0, b"\x02\x01")]),
    PartitionsClaimed("g", "m", [(1, 5)], 7),
    GroupAltered("g", GroupSettings(RULES), 7),
    TransactionCommitted(1, 1, [], 7, Cause.CLIENT, settles=[POSITIONS]),
)


@pytest.mark.parametrize("record", RECORDS_OF_A_GROUP, ids=lambda record: type(record).__name__)
def test_the_last_record_of_a_group_says_when_it_was_used_also_behind_a_checkpoint(journal, record):
    journal.commit_offset(1, 1, made=b"id of g")
    journal.commit_offset(1, 1, "other", b"id of other")
    journal.accept(record)
    for _ in range(2):
        assert [journal.fold.find(name).used for name in ("g", "other")] == [7, 0]
        assert dict(journal.fold.facts())[Fact("when group 'g' was used last")] == 7
        journal.checkpoint()


def test_what_a_transaction_has_staged_is_a_use_when_it_commits(journal):
    journal.commit_offset(1, 1, made=b"id of g")
    journal.accept(TransactionOffsetsAdded(1, 1, "g", [PartitionOffset(1, 3)], 5, 0))
    assert journal.fold.find("g").used == 0
    journal.accept(TransactionCommitted(1, 1, [], 7, Cause.CLIENT))
    assert journal.fold.find("g").used == 7
