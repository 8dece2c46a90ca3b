"""What a transaction of any face tells of itself, and that its block is not inside of another one.

An inner block would commit by itself what reads as a part of the outer one. What counts is the task or thread that is
in the block, never the connection alone: tasks and threads may each have a transaction on it.
"""

from __future__ import annotations

from contextvars import ContextVar

from journal.transaction import TransactionNumber
from txbroker import errors
from txbroker.client.decision import Stage as Stage
from txbroker.client.results import Run
from txbroker.client.transactions import Transaction


class TransactionFacts:
    """What every face tells of a transaction, whoever drives it."""

    _core: Transaction

    @property
    def number(self) -> TransactionNumber | None:
        """Its number, once something was sent."""
        return self._core.number

    @property
    def stage(self) -> Stage:
        """How far it is."""
        return self._core.stage

    @property
    def runs(self) -> list[Run]:
        """After the commit: where the messages of each partition begin."""
        return self._core.runs

    _is_inside = False
    _who: object = None

    def _enter_block(self, who: object) -> None:
        """Begin a ``with``; ``who`` is the task or thread. Raises Misuse inside of one of the same connection."""
        around = [block for block in _blocks.get() if block._is_inside]
        if any(block._who == who and block._core.core is self._core.core for block in around):
            raise errors.Misuse(
                "a transaction of this connection is open around this block already, and the two would be committed "
                "one by one: use the outer block's transaction, or another connection for what is to be committed "
                "whatever becomes of it; nothing was begun"
            )
        self._is_inside, self._who = True, who
        _blocks.set((*around, self))

    def _leave_block(self) -> None:
        """End a ``with``, whichever way."""
        self._is_inside = False
        _blocks.set(tuple(block for block in _blocks.get() if block._is_inside))


_blocks: ContextVar[tuple[TransactionFacts, ...]] = ContextVar("blocks of transactions", default=())
"""Those around what runs, outermost first. Tasks begin with a copy, so each block knows whose it is."""
