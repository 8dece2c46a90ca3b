"""How a call names a transaction: by its number, also as text, or by its xid."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from journal.arguments import NOTHING_READ, checked_xid, listed, whole, wrong_type, wrong_value
from journal.transaction_states import State, TransactionNumber
from journal.xid import Xid

Which = TransactionNumber | Xid | str
"""A transaction: its number (also as text, "12-3") or its xid."""

OUTBOX_FORMAT_ID: Final = 0x746F
"""The format id of xids that name a block which has left its messages in its database: no broker knows them."""

_WHICH = "a transaction's number such as '12-3', as text or TransactionNumber, or an Xid"
_STATE = "nothing was asked"


class Named(NamedTuple):
    """A transaction as requests name it."""

    session: int = 0
    serial: int = 0
    xid: Xid | None = None


def named(which: Any) -> Named:
    """Return the transaction that a caller names; raises WrongType, WrongValue."""
    if isinstance(which, Xid):
        return Named(xid=checked_xid(which))
    if isinstance(which, str):
        try:
            which = TransactionNumber.parse(which)
        except ValueError:
            raise wrong_value("which", which, _WHICH, _STATE) from None
    if not isinstance(which, tuple) or len(which) != 2:
        raise wrong_type("which", which, _WHICH, _STATE)
    session, serial = which
    return Named(whole("the session of which", session, _STATE), whole("the serial of which", serial, _STATE))


def states_of(states: Any) -> list[State]:
    """Return the states that a caller lists; raises WrongType."""
    found = listed("states", states, "State", NOTHING_READ)
    if wrong := [state for state in found if not isinstance(state, State)]:
        raise wrong_type("one of states", wrong[0], "a State, such as State.PREPARED", NOTHING_READ)
    return found
