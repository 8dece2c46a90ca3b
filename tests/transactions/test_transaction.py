"""Test the table of a transaction's states: it is complete, follows rules stated here independently, and is drawn in
the docs.

Seen to fail: each rule against the table with one entry changed (`test_a_wrong_entry_...` does it for every entry).
"""

import itertools
import re

import msgspec
import pytest

from journal.arguments import checked_xid
from journal.errors import InvalidName
from journal.transaction_states import TRANSITIONS, Action, Input, State, TransactionNumber
from journal.xid import Xid, readable
from tests.support.repository import DOCS

DOCUMENT = DOCS / "transactions.md"
PAIRS = list(itertools.product(State, Input))
DECIDED = {State.COMMITTED, State.ROLLED_BACK}
DOOMED = {State.ACTIVE, State.ROLLBACK_ONLY}
ASKED = {Input.ADD, Input.PREPARE, Input.COMMIT, Input.ROLLBACK}
"""What a peer asks for, and so must be answered; the rest happens."""


def expected(state, event):
    """The rules of presumed abort, said once more and in another way than by a table."""
    if state is State.NOT_BEGUN and event not in {Input.PREPARE, Input.COMMIT, Input.ADD}:
        moves = {
            Input.ROLLBACK: (State.ROLLED_BACK, Action.PRESUME),
            Input.REFUSED_ADD: (State.ROLLBACK_ONLY, Action.DOOM),
        }
        return moves.get(event, (state, Action.IGNORE))
    if event is Input.RESTART:
        return (State.ROLLED_BACK if state in DOOMED else state), Action.IGNORE
    if state in DECIDED:
        repeated = {State.COMMITTED: Input.COMMIT, State.ROLLED_BACK: Input.ROLLBACK}[state]
        return (
            state,
            Action.REPEAT if event is repeated else Action.REFUSE if event in ASKED else Action.IGNORE,
        )
    if event is Input.ROLLBACK:
        return State.ROLLED_BACK, Action.JOURNAL_ROLLBACK
    if state is State.PREPARED:
        kept = {Input.COMMIT: (State.COMMITTED, Action.JOURNAL_COMMIT), Input.PREPARE: (state, Action.REPEAT)}
        return kept.get(event, (state, Action.REFUSE if event is Input.ADD else Action.IGNORE))
    if event is Input.REFUSED_ADD:
        return State.ROLLBACK_ONLY, Action.DOOM if state is State.ACTIVE else Action.IGNORE
    if state is State.ROLLBACK_ONLY and event is Input.ADD:
        return state, Action.REFUSE
    going_on = {
        Input.ADD: (State.ACTIVE, Action.STAGE),
        Input.PREPARE: (State.PREPARED, Action.JOURNAL_PREPARE),
        Input.COMMIT: (State.COMMITTED, Action.JOURNAL_COMMIT),
    }
    if state in {State.NOT_BEGUN, State.ACTIVE} and event in going_on:
        return going_on[event]
    return State.ROLLED_BACK, Action.JOURNAL_ROLLBACK


def broken_laws(table):
    """What must hold whatever else the table says."""
    found = []
    for (state, event), (then, action) in table.items():
        laws = {
            "a decision is never changed": state not in DECIDED or then is state,
            "what is not decided is never answered as if it were": action is not Action.REPEAT
            or (state, event)
            in {
                (State.PREPARED, Input.PREPARE),
                (State.COMMITTED, Input.COMMIT),
                (State.ROLLED_BACK, Input.ROLLBACK),
            },
            "only a person or coordinator ends what is prepared": state is not State.PREPARED
            or then is state
            or event in {Input.COMMIT, Input.ROLLBACK},
            "a refusal changes nothing": action not in {Action.REFUSE, Action.REPEAT} or then is state,
            "only adds that all arrived can commit": state is not State.ROLLBACK_ONLY
            or then in {state, State.ROLLED_BACK},
            "a commit is journaled": (then is State.COMMITTED and state is not then)
            == (action is Action.JOURNAL_COMMIT),
            "a prepare is journaled": (then is State.PREPARED and state is not then)
            == (action is Action.JOURNAL_PREPARE),
            "a rollback is journaled, but for what a start does to all at once": (
                then is State.ROLLED_BACK and state is not then
            )
            == (
                action in {Action.JOURNAL_ROLLBACK, Action.PRESUME}
                or (event is Input.RESTART and state in DOOMED)
            ),
            "only what has not begun needs no record": action is not Action.PRESUME
            or state is State.NOT_BEGUN,
            "what is asked is answered": event not in ASKED or action is not Action.IGNORE,
            "messages are staged only while active": (action is Action.STAGE)
            == (state in {State.NOT_BEGUN, State.ACTIVE} and event is Input.ADD),
        }
        found += [f"{law}: {state.name} × {event.value}" for law, holds in laws.items() if not holds]
    return found


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda each: each.name)
def test_every_state_meets_every_input_as_the_rules_say(state, event):
    assert TRANSITIONS[state, event] == expected(state, event)


def test_the_table_keeps_the_laws():
    assert set(TRANSITIONS) == set(PAIRS)
    assert broken_laws(TRANSITIONS) == []


def test_a_wrong_next_state_of_any_pair_is_noticed():
    for pair, (then, action) in TRANSITIONS.items():
        for other in set(State) - {then}:
            changed = {**TRANSITIONS, pair: (other, action)}
            assert broken_laws(changed) or changed[pair] != expected(*pair)


# -- the document -----------------------------------------------------------------------------------


def diagram():
    """The moves between states, as mermaid draws them; inputs with the same move share an arrow."""
    arrows = {}
    for (state, event), (then, _) in TRANSITIONS.items():
        if then is not state:
            arrows.setdefault((state, then), []).append(event.value)
    lines = [
        f"    {state.name} --> {then.name}: {', '.join(events)}" for (state, then), events in arrows.items()
    ]
    return "\n".join(["stateDiagram-v2", "    [*] --> NOT_BEGUN", *lines])


def table():
    """All pairs: the action, and the next state where that is another."""
    lines = ["| | " + " | ".join(state.name for state in State) + " |", "|---|" + "---|" * len(State)]
    for event in Input:
        cells = [cell(state, *TRANSITIONS[state, event]) for state in State]
        lines.append(f"| {event.value} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(state, then, action):
    return action.value if then is state else f"{action.value} → **{then.name}**"


def test_the_document_draws_the_table_that_the_code_goes_by():
    text = DOCUMENT.read_text()
    assert re.findall(r"```mermaid\n(.*?)\n```", text, re.DOTALL) == [diagram()]
    assert table() in text


# -- names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [TransactionNumber(1, 1), TransactionNumber((1 << 64) - 1, (1 << 63) + 1)])
def test_a_number_is_read_back_from_its_text(number):
    assert TransactionNumber.parse(str(number)) == number


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "a-1", "1-2-3", "1-x"])
def test_what_is_no_number_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        TransactionNumber.parse(text)


@pytest.mark.parametrize(
    "xid", [Xid(0, b"g", b""), Xid((1 << 31) - 1, b"g" * 64, b"b" * 64), Xid(1, bytes(range(64)), b"\xff")]
)
def test_an_xid_within_the_bounds_of_xa_is_taken(xid):
    assert checked_xid(xid) is xid


@pytest.mark.parametrize(
    ("xid", "words"),
    [
        (Xid(-1, b"g", b"b"), "format id -1"),
        (Xid(1 << 31, b"g", b"b"), "format id 2147483648"),
        (Xid(1, b"", b"b"), "global id of 0 bytes"),
        (Xid(1, b"g" * 65, b"b"), "global id of 65 bytes"),
        (Xid(1, b"g", b"b" * 65), "of 65"),
    ],
)
def test_an_xid_beyond_them_is_refused_and_the_part_named(xid, words):
    with pytest.raises(InvalidName, match=words):
        checked_xid(xid)


def test_xids_are_equal_by_all_three_parts_and_serve_as_keys():
    xid = Xid(1, b"g", b"b")
    assert {xid: 1}[Xid(1, b"g", b"b")] == 1
    assert len({xid, Xid(2, b"g", b"b"), Xid(1, b"h", b"b"), Xid(1, b"g", b"c")}) == 4
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(xid), type=Xid) == xid


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (b"day-1", "day-1"),
        (b"", ""),
        (b"\xff\x00", "0xff00"),
        (b"a:b", "0x613a62"),
        (b"0x61", "0x30783631"),
        (b"a\nb", "0x610a62"),
        ("é".encode(), "0xc3a9"),
    ],
)
def test_a_part_is_shown_as_text_only_where_that_cannot_be_mistaken(part, text):
    assert readable(part) == text
    assert str(Xid(1, b"g", part)) == f"1:g:{text}"


def test_different_parts_never_look_alike():
    parts = {bytes([a, b]) for a in range(256) for b in (0, 48, 58, 97, 120)} | {b"0x61", b"a", b""}
    assert len({readable(part) for part in parts}) == len(parts)


def test_an_xid_is_the_sequence_that_pep_249_asks_for() -> None:
    xid = Xid(7, b"global", b"branch")
    assert (len(xid), xid[0], xid[1], xid[2]) == (3, 7, b"global", b"branch")
    assert list(xid) == [7, b"global", b"branch"]
