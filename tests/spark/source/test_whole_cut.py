"""Test batches of a stream that hold whole transactions: for any history and limit, to the end, and never stuck."""

from hypothesis import given
from hypothesis import strategies as st

from journal.records.outcome_entry import NEVER_PLACED, ArchivedOutcome, Part
from journal.transaction_states import Cause, State
from spark.source.rate_limit import limited
from spark.source.whole_transactions import Span, whole_cut

COUNTS = st.dictionaries(st.integers(0, 3), st.integers(1, 4), min_size=1)
HISTORY = st.lists(
    st.tuples(st.sampled_from(["sent", "committed", "committed", "rolled back"]), COUNTS), max_size=25
)


def entry(serial, parts, state=State.COMMITTED):
    count = sum(part.count for part in parts)
    times = (0, 0, 0, 0, 0)
    return ArchivedOutcome(
        1, serial, state, Cause.CLIENT, *times, None, "", "", "", False, count, 0, 1, 0, parts
    )


def told(history):
    """Where the logs end, and the archive's entries."""
    ends, entries = dict.fromkeys(range(4), 0), []
    for serial, (how, counts) in enumerate(history):
        parts = []
        for number, count in counts.items():
            base = ends[number] if how != "rolled back" else NEVER_PLACED
            parts.append(Part("t", number, number, base, count, 0, 0))
            ends[number] += count if how != "rolled back" else 0
        if how != "sent":
            entries.append((len(entries), entry(serial, parts)))
    return ends, entries


def held(part, at):
    """Whether the part is below these offsets; "half" if some of it is."""
    below = at[part.number] - part.base_offset
    return below >= part.count if below <= 0 or below >= part.count else "half"


@given(HISTORY, st.integers(1, 12))
def test_every_batch_holds_whole_transactions_and_all_of_them_come(history, most):
    ends, entries = told(history)
    at, archive, batches = dict.fromkeys(ends, 0), 0, 0
    while at != ends:
        ahead = limited({number: ends[number] - at[number] for number in ends}, most, sum(at.values()))
        logs = {number: Span(at[number], at[number] + ahead[number], ends[number]) for number in ends}
        upto, left_out = whole_cut(iter(entries[archive:]), logs)
        assert all(at[number] <= upto[number] <= ends[number] for number in ends)
        assert upto != at, "it goes on"
        for offset, outcome in entries:
            placed = [part for part in outcome.parts if part.base_offset >= 0]
            before, after = ({held(part, where) for part in placed} for where in (at, upto))
            assert len(before) <= 1, "no batch holds a part of it"
            assert len(after) <= 1, "no batch holds a part of it"
            assert left_out is None or offset >= left_out or after in ({True}, set())
        archive = len(entries) if left_out is None else left_out
        at = upto
        batches += 1
    assert batches <= sum(ends.values())


def test_what_would_be_cut_is_left_to_the_next_batch_in_all_its_logs():
    first = (5, entry(1, [Part("t", 0, 0, 2, 2, 0, 0), Part("t", 1, 1, 0, 1, 0, 0)]))
    logs = {0: Span(0, 3, 9), 1: Span(0, 4, 9)}
    assert whole_cut([first], logs) == ({0: 2, 1: 0}, 5)


def test_a_transaction_that_is_larger_than_the_limit_is_read_with_what_stands_before_it():
    first = (5, entry(1, [Part("t", 0, 0, 0, 8, 0, 0), Part("t", 1, 1, 3, 1, 0, 0)]))
    assert whole_cut([first], {0: Span(0, 3, 9), 1: Span(0, 0, 9)}) == ({0: 8, 1: 4}, 5)


def test_a_stream_that_begins_within_a_transaction_has_the_rest_of_it_at_once():
    first = (0, entry(1, [Part("t", 0, 0, 0, 8, 0, 0)]))
    assert whole_cut([first], {0: Span(4, 6, 9)}) == ({0: 8}, 0)


def test_logs_that_are_not_read_do_not_count():
    first = (0, entry(1, [Part("t", 0, 0, 0, 2, 0, 0), Part("other", 0, 7, 0, 8, 0, 0)]))
    assert whole_cut([first], {0: Span(0, 2, 9)}) == ({0: 2}, None)


def test_the_archive_is_read_no_further_than_needed():
    entries = [(number, entry(number, [Part("t", 0, 0, number, 1, 0, 0)])) for number in range(100)]
    read = iter(entries)
    assert whole_cut(read, {0: Span(0, 10, 100)}) == ({0: 10}, 10)
    assert next(read)[0] == 11
