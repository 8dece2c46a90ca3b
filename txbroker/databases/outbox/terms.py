"""What a program says of its blocks that only send: whether they leave their messages in the database, and how many."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from journal.arguments import seconds, text, whole, wrong_type, wrong_value
from txbroker import errors
from txbroker.databases.outbox.streams import Backlog

AUTO_MODE: Final = "auto"
OUTBOX: Final = "outbox"
TWO_PHASE: Final = "two-phase"
_MODES: Final = (AUTO_MODE, OUTBOX, TWO_PHASE)
_REFUSED: Final = ("move", "stop")

OUTBOX_BYTES: Final = 256 << 10
"""Bytes of messages above which a block is two-phase, by default: each of them is written to the database twice, to its
log and to its table.
"""
MOST_BYTES: Final = 4 << 20
"""The most that may be said: servers of MariaDB and MySQL take packets of 16 MiB, and parameters are escaped."""


class OutboxTerms(NamedTuple):
    """The arguments of ``atomic`` about the outbox."""

    mode: str = AUTO_MODE
    bytes: int = OUTBOX_BYTES
    backlog: Backlog | None = None
    on_refused: str = "move"

    def check(self) -> OutboxTerms:
        """Raise WrongType or WrongValue for what cannot be said."""
        try:
            return _checked(self)  # programs say the same for each block
        except TypeError:  # what is no number, text or bounds need not have a hash
            return self._check()

    def _check(self) -> OutboxTerms:
        nothing = "nothing was done"
        if text("mode", self.mode, nothing) not in _MODES:
            raise wrong_value("mode", self.mode, "'auto', 'outbox' or 'two-phase'", nothing)
        if not 0 < whole("outbox_bytes", self.bytes, nothing) <= MOST_BYTES:
            raise wrong_value("outbox_bytes", self.bytes, f"1 to {MOST_BYTES}", nothing)
        if self.backlog is not None:
            _check_backlog(self.backlog, nothing)
        if text("on_refused", self.on_refused, nothing) not in _REFUSED:
            raise wrong_value("on_refused", self.on_refused, "'move' or 'stop'", nothing)
        return self

    @property
    def stops(self) -> bool:
        """Whether a row that is refused for ever holds up those behind it."""
        return self.on_refused == "stop"

    def refusal(self, has_none: bool) -> errors.Misuse:
        """Return the error for a block that cannot leave its messages, with ``mode="outbox"``."""
        why = (
            "this database has none, or its driver does not tell how to open another connection (connect_database=)"
            if has_none
            else "it has received something, finishes messages, takes a scheduled one back, or sends more than "
            f"outbox_bytes = {self.bytes}"
        )
        return errors.Misuse(
            f"the block cannot go through the outbox: {why}. With mode='auto' it would be two-phase; nothing is "
            "committed"
        )


@lru_cache(maxsize=100)
def _checked(terms: OutboxTerms) -> OutboxTerms:
    return terms._check()


def _check_backlog(backlog: Backlog, state: str) -> None:
    if not isinstance(backlog, Backlog):
        raise wrong_type("max_backlog", backlog, "None or a txbroker.Backlog", state)
    for name, bound in (("rows", backlog.rows), ("bytes", backlog.bytes)):
        if bound is not None:
            whole(f"max_backlog.{name}", bound, state, least=0)
    if backlog.age is not None:
        seconds("max_backlog.age", backlog.age, state)


AUTO: Final = OutboxTerms()
