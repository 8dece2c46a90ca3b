"""The database connections that are in a block, and the rest of blocks that an interrupt ended.

A block belongs to the program that holds its ``tx``. Its end may never have begun: an exception at any moment can come
between the last line of a ``with`` and the first of its ``__exit__``. Such a block is recognised when the next one
begins (:func:`enter`), on the same database connection or on the same connection to the broker.
"""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple, Protocol
from weakref import ref

from txbroker import errors
from txbroker.databases.block_progress import BlockProgress, Step

log = logging.getLogger("txbroker.databases")


class Place(NamedTuple):
    """The place where a block was entered: the thread or task and, if known, the frame and instruction."""

    who: object
    frame: FrameType | None = None
    instruction: int = 0

    @classmethod
    def of(cls, frame: FrameType) -> Place:
        """Return the ``with`` of this thread that the frame has reached."""
        return cls(threading.get_ident(), frame, frame.f_lasti)


class OpenBlock(Protocol):
    """A block that has been entered."""

    place: Place
    progress: BlockProgress

    @property
    def is_out_of_transaction(self) -> bool:
        """Whether it had begun a transaction and none is open any more: it can only be rolled back."""


class Entry(NamedTuple):
    """A block that may be open. Only its program holds the block itself."""

    block: ref[Any]
    progress: BlockProgress | None
    """None if it was lost and its broker's side is ended: only its database connection must still be checked."""

    @property
    def is_over(self) -> bool:
        """Whether its end is complete, so that it need not be remembered."""
        return self.progress is not None and self.progress.step is Step.ENDED and not self.progress.is_lost


_in_block: dict[int, Entry] = {}
"""The open blocks by the id of the database connection. One whose block is gone stays until another block has checked
the database; the id may be another connection's by then, so that check looks for the block's mark.
"""
_lock = threading.Lock()


def enter(handle: object, block: OpenBlock) -> Entry | None:
    """Note that a block begins on a database connection, or return the block to roll back there first.

    Raises Misuse inside of another block. Ends the broker's side of blocks left behind on the block's connection.
    """
    _let_go_of_lost(block.place)
    with _lock:
        found = _in_block.get(id(handle))
        if found is None or found.is_over or found.block() is block:
            found = None
            _in_block[id(handle)] = Entry(ref(block), block.progress)
    if found is not None and not _is_left(found, block.place):
        raise errors.Misuse(
            "this database connection is in a block already: one transaction has one block. Use the outer "
            "block's tx, or another connection; nothing was done by this one. (If that block was interrupted "
            "before it could end, roll the connection back: then the next block begins)"
        )
    _end_brokers_sides(block.progress.side.connection, found)
    return found


def leave(handle: object, block: OpenBlock) -> None:
    """Note that a block has ended."""
    with _lock:
        found = _in_block.get(id(handle))
        if found is not None and found.block() is block:
            del _in_block[id(handle)]


def forget(handle: object, entry: Entry) -> None:
    """Note that the database connection of this block has been checked."""
    with _lock:
        found = _in_block.get(id(handle))
        if found is not None and found.block is entry.block:
            del _in_block[id(handle)]


def _blocks_of(who: object) -> Iterator[OpenBlock]:
    for entry in list(_in_block.values()):
        block = entry.block()
        if block is not None and block.place.who == who and block.progress.step is not Step.ENDED:
            yield block


def _let_go_of_lost(place: Place) -> None:
    """Have the collector release blocks of frames that are not on the stack, which may hold one another.

    Such a block was left by its ``with`` without an end, or entered by a function that has returned (an ExitStack's):
    the second kind is held by an object, and stays.
    """
    if place.frame is None or not any(_blocks_of(place.who)):
        return
    stack: set[FrameType] = set()
    frame: FrameType | None = place.frame
    while frame is not None:
        stack.add(frame)
        frame = frame.f_back
    if any(block.place.frame not in stack for block in _blocks_of(place.who)):
        gc.collect()


def _is_left(entry: Entry, place: Place) -> bool:
    """Return whether a block will never come to its end.

    That is so if nothing holds it, its ``with`` comes again (which cannot be inside of itself), or the program that
    caught the interrupt has ended its transaction.
    """
    block: OpenBlock | None = entry.block()
    if block is None:
        return True
    if block.place.who != place.who:
        return False
    return (place.frame is not None and block.place == place) or block.is_out_of_transaction


def _end_brokers_sides(connection: object, found: Entry | None) -> None:
    for handle, entry in list(_in_block.items()):
        progress = entry.progress
        if progress is None or entry.is_over or not (entry is found or entry.block() is None):
            continue
        if progress.side.connection is connection:
            try:
                progress.end_without_program()
            except errors.TxBrokerError as error:
                log.warning("an interrupted block could not be rolled back at the broker: %s", error)
            with _lock:
                if _in_block.get(handle) is entry:
                    _in_block[handle] = Entry(entry.block, None)
