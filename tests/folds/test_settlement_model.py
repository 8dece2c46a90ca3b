"""The fold of groups against plain sets and dictionaries: everything is compared after every step.

Seen to fail: each line of ``tests/folds/settlement_mutants.py``.
"""

import itertools
from copy import deepcopy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from journal.folds.groups import GroupsFold
from journal.records.group_entries import Ending, GroupSettings, RetryRules
from journal.records.record import (
    GroupAltered,
    GroupDeleted,
    OffsetsCommitted,
    PartitionsClaimed,
    Started,
    TopicCreated,
    TopicDeleted,
    TransactionCommitted,
    TransactionOffsetsAdded,
    TransactionPrepared,
    TransactionRolledBack,
)
from journal.settings import TopicSettings
from journal.transaction_states import Cause, TransactionNumber
from journal.xid import Xid
from tests.folds.settlement_model import SIZE, UNIVERSE, Entry, Model, Transaction, real, recorded, state_of
from tests.support.builders import reread
from tests.support.thoroughness import examples

pytestmark = pytest.mark.slow

GROUPS = st.sampled_from("gggggh")
PLACES = st.sampled_from((0, 0, 0, 0, 0, 1, 2, 3))
NUMBERS = st.integers(1, 6).map(lambda serial: TransactionNumber(7, serial))
OFFSETS = st.integers(0, SIZE - 1)
UNFINISHED = st.tuples(OFFSETS, st.integers(0, 2), st.sampled_from((0, 0, 99)), st.sampled_from(("", "why")))
STARTS = st.sampled_from((0, 0, 0, 0, 0, 1, 3, 7))
SETTLED = st.tuples(
    st.none(), OFFSETS, st.sets(OFFSETS, max_size=3), st.lists(UNFINISHED, max_size=2), STARTS
)
MOVES = st.tuples(st.integers(0, SIZE), st.sampled_from(("", "m")))
ENTRY = st.tuples(GROUPS, PLACES, st.one_of(MOVES, SETTLED, SETTLED))
SOME = st.one_of(st.tuples(ENTRY), st.tuples(ENTRY), st.tuples(ENTRY, ENTRY))
ENTRIES = st.one_of(st.just(()), SOME)
RULES = st.sampled_from((None, RetryRules(3, 5, 80, Ending.DROP), RetryRules(1, 0, 0, Ending.STOP)))
SELDOM = st.sampled_from((False, False, False, True))
TOPICS = ("a", "b")


class SettlementMachine(RuleBasedStateMachine):
    """A fold and the model take the same steps. What is refused for a hold is applied to neither."""

    @initialize()
    def begin(self):
        self.fold, self.model = GroupsFold(), Model()
        self.lsn = itertools.count(1)
        self.next_partition = 1
        self.topics = {}
        self.snapshots = []
        for topic in TOPICS:
            self.create(topic)

    def accept(self, record):
        self.fold.apply(next(self.lsn), record, b"")

    def create(self, topic):
        self.topics[topic] = [self.next_partition, self.next_partition + 1]
        self.accept(TopicCreated(topic, self.next_partition, 2, TopicSettings(), 0))
        self.next_partition += 2

    def entries(self, drawn):
        """As they are wanted; the bases of most are the position, as a broker has it."""
        found = []
        numbers = [number for topic in TOPICS for number in self.topics[topic]]
        for group, place, (to, *rest) in drawn:
            partition = numbers[place]
            if to is not None:
                found.append(Entry(group, partition, to, *rest))
            else:
                base, finished, unfinished, start = rest
                known = self.model.place((group, partition))
                if known is not None and base % 8:
                    base = min(known.position, SIZE - 1)
                finished = {offset for offset in finished if offset >= base}
                found.append(Entry(group, partition, None, "", base, finished, unfinished, start))
        return found

    def free(self, entries, number=None):
        """Whether nobody holds what these touch. The fold says so, names who does, and would not take the record."""
        staged = self.model.transactions[number].entries if number else []
        met = self.model.met([*staged, *entries])
        found = self.fold.conflict(recorded(entries), number)
        assert (found is not None) == bool(met)
        if found is None:
            return True
        offsets = met[found.group, found.partition]
        place = self.model.place((found.group, found.partition))
        position = 0 if place is None else real(place.position)
        assert found.holder in offsets
        assert found.offset == position or found.offset - real(0) in offsets[found.holder]
        return False

    def refused(self, record):
        """A copy of the fold refuses to take what somebody else holds."""
        copy = GroupsFold()
        copy.restore(reread(GroupsFold, self.fold.snapshot()))
        with pytest.raises(AssertionError, match="holds it"):
            copy.apply(next(self.lsn), record, b"")

    # -- plain ------------------------------------------------------------------------------------

    @rule(drawn=SOME)
    def settle(self, drawn):
        entries = self.entries(drawn)
        for each in recorded(entries):
            mine = [entry for entry in entries if entry.group == each.group]
            # Of one group as they are recorded: its positions come first.
            mine.sort(key=lambda entry: entry.to is None)
            whole = recorded(mine)[0]
            record = OffsetsCommitted(each.group, whole.offsets, 0, b"", whole.settled)
            if self.free(mine):
                self.accept(record)
                self.model.apply(mine)
            else:
                self.refused(record)
            return

    @rule(group=GROUPS, place=PLACES, drawn=ENTRIES)
    def claim(self, group, place, drawn):
        partition = self.topics[TOPICS[place // 2]][place % 2]
        entries = [each for each in self.entries(drawn) if each.group == group and each.to is None]
        generation = self.model.generation + 1
        settled = [each.recorded() for each in entries]
        record = PartitionsClaimed(group, f"member {generation}", [(partition, generation)], 0, b"", settled)
        if self.free(entries):
            self.accept(record)
            self.model.claim(group, partition)
            self.model.apply(entries)
        else:
            self.refused(record)

    # -- transactions -------------------------------------------------------------------------------

    def begun(self, number):
        return number in self.model.transactions

    @rule(number=NUMBERS, drawn=SOME)
    def add(self, number, drawn):
        if number in self.model.prepared:
            return
        self.add_all(number, self.entries(drawn))

    def add_all(self, number, entries):
        self.free(entries)
        self.model.transactions.setdefault(number, Transaction()).entries += entries
        for each in recorded(entries):
            self.accept(
                TransactionOffsetsAdded(
                    *number, each.group, each.offsets, 0, 0, None, None, b"", each.settled
                )
            )

    @rule(number=NUMBERS, drawn=ENTRIES)
    def prepare(self, number, drawn):
        if number in self.model.prepared:
            return
        self.prepare_all(number, self.entries(drawn))

    def prepare_all(self, number, entries):
        record = TransactionPrepared(*number, Xid(1, b"x", b""), None, 0, 0, None, [], recorded(entries))
        if self.free(entries, number if self.begun(number) else None):
            self.accept(record)
            if entries or self.begun(number):
                self.model.transactions.setdefault(number, Transaction()).entries += entries
                self.model.prepare(number)
        else:
            self.refused(record)

    @rule(
        number=NUMBERS,
        kind=st.sampled_from(("settle", "settle", "settle", "move", "moves", "both")),
        above=st.sets(st.integers(0, SIZE - 2), min_size=1, max_size=2),
        by=st.integers(1, 3),
        later=st.booleans(),
    )
    def work(self, number, kind, above, by, later):
        """A worker prepares what it has finished of a partition of which others finish other offsets, or adds it."""
        pair = "g", self.topics["a"][0]
        place = self.model.place(pair)
        if place is None or self.begun(number):
            return
        position = min(place.position, SIZE - 1)
        offsets = {position + offset for offset in above if position + offset < SIZE}
        settles = [Entry(*pair, None, "", position, offsets)]
        moves = [Entry(*pair, min(position + by, SIZE))]
        last = [Entry(*pair, min(position + by + 2, SIZE))]
        entries = {"settle": settles, "move": moves, "moves": moves + last, "both": settles + moves}[kind]
        if later:
            self.add_all(number, entries)
        else:
            self.prepare_all(number, entries)

    @rule(numbers=st.lists(NUMBERS, min_size=2, max_size=2, unique=True), moves=st.booleans())
    def overtake(self, numbers, moves):
        """Two workers finish a message each, one perhaps by a position. The one that began later prepares first."""
        pair = "g", self.topics["a"][0]
        place = self.model.place(pair)
        if place is None or place.position > SIZE - 2 or any(map(self.begun, numbers)):
            return
        position = place.position
        lower = Entry(*pair, position + 1) if moves else Entry(*pair, None, "", position, {position})
        first, later = numbers
        self.add_all(first, [lower])
        self.add_all(later, [Entry(*pair, None, "", position, {position + 1})])
        self.prepare_all(later, [])
        self.prepare_all(first, [])

    @rule(numbers=st.lists(NUMBERS, min_size=2, max_size=2, unique=True))
    def interleave(self, numbers):
        """Two workers took messages in turn, and each prepares its own: what one holds lies within the other's."""
        pair = "g", self.topics["a"][0]
        place = self.model.place(pair)
        if place is None or place.position > SIZE - 3 or any(map(self.begun, numbers)):
            return
        position = place.position
        first, later = numbers
        self.prepare_all(first, [Entry(*pair, None, "", position, {position, position + 2})])
        self.prepare_all(later, [Entry(*pair, None, "", position, {position + 1})])

    @precondition(lambda self: set(self.model.transactions) - set(self.model.prepared))
    @rule(place=st.integers(0, 9))
    def prepare_what_was_added(self, place):
        active = [number for number in self.model.transactions if number not in self.model.prepared]
        self.prepare_all(active[place % len(active)], [])

    @rule(number=NUMBERS, drawn=ENTRIES)
    def commit(self, number, drawn):
        prepared = number in self.model.prepared
        entries = [] if prepared else self.entries(drawn)
        if not prepared and not self.begun(number) and not entries:
            return
        record = TransactionCommitted(*number, [], 0, Cause.CLIENT, settles=recorded(entries))
        if prepared or self.free(entries, number if self.begun(number) else None):
            staged = self.model.end(number) if self.begun(number) else []
            self.accept(record)
            self.model.apply([*staged, *entries])
        else:
            self.refused(record)

    @precondition(lambda self: self.model.prepared)
    @rule(commit=st.booleans(), place=st.integers(0, 9))
    def decide(self, commit, place):
        number = self.model.prepared[place % len(self.model.prepared)]
        entries = self.model.end(number)
        if commit:
            self.accept(TransactionCommitted(*number, [], 0, Cause.CLIENT))
            self.model.apply(entries)
        else:
            self.accept(TransactionRolledBack(*number, 0, Cause.CLIENT))

    @rule(number=NUMBERS)
    def roll_back(self, number):
        if self.begun(number) and number not in self.model.prepared:
            self.model.end(number)
            self.accept(TransactionRolledBack(*number, 0, Cause.CLIENT))

    # -- what happens to all ------------------------------------------------------------------------

    @rule()
    def restart(self):
        self.accept(Started(2, 0, 0, bytes(16)))
        self.model.restart()

    @rule(topic=st.sampled_from(TOPICS), seldom=SELDOM)
    def delete_topic(self, topic, seldom):
        if not seldom:
            return
        self.accept(TopicDeleted(topic, 0))
        self.model.drop(set(self.topics[topic]))
        self.create(topic)

    @rule(group=GROUPS, seldom=SELDOM, rules=RULES)
    def delete_or_alter_group(self, group, seldom, rules):
        if not seldom:
            self.accept(GroupAltered(group, GroupSettings(rules), 0, b"i" * 16))
            self.model.alter(group, rules)
        elif group not in self.model.groups:
            return
        elif self.model.holders(group):
            with pytest.raises(AssertionError, match="hold offsets of group"):
                self.accept(GroupDeleted(group, 0))
        else:
            self.accept(GroupDeleted(group, 0))
            self.model.delete(group)

    @rule()
    def take_snapshot(self):
        self.snapshots.append((self.fold.snapshot(), deepcopy(dict(self.fold.facts())), self.model.copy()))

    @precondition(lambda self: self.snapshots)
    @rule()
    def draw_snapshot(self):
        """The rows are drawn late, and are of the moment of the snapshot all the same."""
        rows, facts, model = self.snapshots.pop(0)
        fold = GroupsFold()
        fold.restore(reread(GroupsFold, rows))
        assert dict(fold.facts()) == facts
        same(fold, model)

    @rule()
    def checkpoint(self):
        """The fold that goes on is the one that was restored."""
        fold = GroupsFold()
        fold.restore(reread(GroupsFold, self.fold.snapshot()))
        assert dict(fold.facts()) == dict(self.fold.facts())
        self.fold = fold

    @invariant()
    def compare(self):
        if hasattr(self, "fold"):
            same(self.fold, self.model)
            for number in self.model.prepared:
                transaction = self.model.transactions[number]
                assert self.model.look(transaction) == transaction.seen, "others moved what it holds"
            self.probe()

    def probe(self):
        """Each offset that is held is refused, with its holder; each that is not is taken."""
        pairs = {pair for number in self.model.prepared for pair in self.model.transactions[number].held}
        for pair in pairs:
            for offset in UNIVERSE if self.model.place(pair) else ():
                entries = [Entry(*pair, None, "", offset, {offset})]
                found = self.fold.conflict(recorded(entries))
                holders = self.model.met(entries).get(pair, {})
                assert [found.holder] == list(holders) if found else not holders


def same(fold, model):
    assert state_of(fold) == model.state()
    pairs = [{*places, *model.claims[name]} for name, places in model.groups.items()]
    assert fold.pairs == sum(map(len, pairs))
    assert fold.last_generation == model.generation
    assert all(kept for group in fold.groups.values() for kept in group.settlements.values())
    for number, transaction in model.transactions.items():
        assert flat(fold.staged(number)) == flat(recorded(transaction.entries))
    assert {number for number in fold.concerned() if fold.staged(number)} == {
        number for number, transaction in model.transactions.items() if transaction.entries
    }
    for group in model.groups.values():
        for place in group.values():
            assert place.finished <= UNIVERSE


def flat(positions):
    return [(each.group, entry) for each in positions for entry in (*each.offsets, *each.settled)]


TestSettlement = SettlementMachine.TestCase
TestSettlement.settings = settings(max_examples=examples(200), stateful_step_count=50)
