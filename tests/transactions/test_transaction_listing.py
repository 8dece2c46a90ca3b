"""Test what operators and resolvers get of the transactions: by number, in pages, by state, xid and how they ended.

Seen to fail: with `more` asked of a list cut at the limit the last page is never told from the others; with the xid not
asked of ended ones a resolver is given everybody's.
"""

import pytest

from journal.parties import Actor, Owner
from journal.transaction_states import BEGUN, Cause, State
from journal.transactions.listing import Wanted, page
from journal.xid import Xid
from tests.support.builders import OTHER_SESSION, Place, frames, number, totals, xid

ME = Owner("anonymous", "me", "host:1")
ANN = Actor("ann", "ops")

ONE = frames(b"a", b"b")
SENT = totals(ONE)


@pytest.fixture
def place():
    return Place()


def prepare(place, which, name="x"):
    named = xid(name) if isinstance(name, str) else name
    place.transactions.add(which, 1, ONE, 2, owner=ME)
    place.transactions.prepare(which, named, SENT)


def listed(store, *fields, **named):
    """The numbers of all that are wanted, asked for one at a time."""
    found, more, after = [], True, (0, 0)
    while more:
        some, more = page(store, Wanted(*fields, **named), after, 1)
        assert more <= len(some) <= 1
        found += [each.number for each in some]
        after = found[-1] if found else after
    return found


def test_a_list_goes_by_number_in_pages_and_by_state(place):
    store = place.transactions
    for serial in (3, 1):
        prepare(place, number(serial), f"x{serial}")
    store.add(number(2, OTHER_SESSION), 1, ONE, 2)
    store.doom(number(2))
    prepare(place, number(4), "x4")
    store.commit(number(4), Cause.CLIENT)
    everything, more = page(store, Wanted(), (0, 0), 10)
    assert [t.number for t in everything] == [number(1), number(2), number(3), number(2, OTHER_SESSION)]
    assert not more
    first, more = page(store, Wanted(), (0, 0), 2)
    assert ([t.number for t in first], more) == ([number(1), number(2)], True)
    second, more = page(store, Wanted(), first[-1].number, 2)
    assert ([t.number for t in second], more) == ([number(3), number(2, OTHER_SESSION)], False)

    assert listed(store, [State.COMMITTED]) == [number(4)]
    assert listed(store, [State.ROLLBACK_ONLY]) == [number(2)]
    assert listed(store, [State.PREPARED]) == [number(1), number(3)]
    assert listed(store, list(BEGUN)) == [
        number(1),
        number(2),
        number(3),
        number(4),
        number(2, OTHER_SESSION),
    ]


def test_an_xids_format_and_the_beginning_of_its_global_id_choose(place):
    store = place.transactions
    for serial, named in enumerate(
        (Xid(1, b"app/1", b"b"), Xid(2, b"app/2", b"b"), Xid(1, b"other", b"b")), 1
    ):
        prepare(place, number(serial), named)
    store.add(number(4), 1, ONE, 2)
    store.rollback(number(1), Cause.CLIENT)
    prepared = [State.PREPARED]
    assert listed(store, prepared, format_id=1) == [number(3)]
    assert listed(store, prepared, global_prefix=b"app/") == [number(2)]
    assert listed(store, prepared, 2, b"app/") == [number(2)]
    assert listed(store, prepared, 1, b"app/") == []
    assert listed(store, format_id=0) == []
    assert listed(store) == [number(2), number(3), number(4)]
    assert listed(store, [State.ROLLED_BACK], 1, b"app/") == [number(1)]


def test_heuristic_outcomes_are_told_from_others(place):
    store = place.transactions
    for serial, cause in ((1, Cause.OPERATOR), (2, Cause.CLIENT), (3, Cause.ORPHAN_POLICY)):
        prepare(place, number(serial), f"x{serial}")
        store.rollback(number(serial), cause, ANN, "w")
    prepare(place, number(4), "x4")
    store.commit(number(4), Cause.OPERATOR, by=ANN, why="w")
    assert listed(store, heuristic=True) == [number(1), number(3), number(4)]
    assert listed(store, [State.ROLLED_BACK], heuristic=True) == [number(1), number(3)]
    assert listed(store, [State.PREPARED], heuristic=True) == []
    store.forget(number(3), ANN, "seen to")
    assert listed(store, heuristic=True) == [number(1), number(4)]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_prepared_ones_are_held_in_the_order_in_which_they_were_prepared(place, checkpoint):
    store = place.transactions
    for serial in (1, 2, 3):
        store.add(number(serial), 1, ONE, 2)
    for serial in (2, 3, 1):
        place.clock.advance(5)
        store.prepare(number(serial), xid(f"x{serial}"), SENT)
    place.restart(checkpoint)
    store = place.transactions
    assert list(store.prepared) == [number(2), number(3), number(1)]
    store.commit(number(3), Cause.CLIENT)
    assert list(store.prepared) == [number(2), number(1)]
