"""One block: the protocol of ``docs/atomic.md``, step by step, the same for every face.

The steps are numbered as there. Whatever goes wrong, the database is rolled back before the broker is told: as
long as the database may still commit, nobody but the database decides.
"""

from __future__ import annotations

import enum
import itertools
import os
import secrets
import threading
from collections.abc import Awaitable, Coroutine
from typing import Any, NoReturn, Protocol, TypeVar

from journal.arguments import text, wrong_value
from journal.transaction import State, Xid
from txbroker import errors
from txbroker.client import fork
from txbroker.databases import identity, xids
from txbroker.databases.adapter import Condition, Database
from txbroker.databases.identity import Identity
from txbroker.databases.meanings import reason, told

_REFUSED = {
    Condition.AUTOCOMMIT: "is in autocommit mode: each statement would be committed alone. Switch that off, or begin "
    "a transaction first",
    Condition.FAILED: "is in a transaction that has failed and can only be rolled back: roll it back first",
    Condition.BORROWED: "is inside of a transaction block of the driver (psycopg's connection.transaction()), which "
    "alone may commit: open the block of txbroker.atomic instead of that one",
    Condition.PIPELINED: "is in pipeline mode, where answers come late: leave that before the block",
}

_UNENDED = (Condition.OPEN, Condition.BORROWED, Condition.PIPELINED)
"""A roll-back that failed has ended nothing: whoever has the connection may still commit."""

WAITS = ("decision", "commit")
NOT_BEGUN = (
    "txbroker: the block has not begun, and nothing of it was done at either side: it can be run again, on another "
    "connection if this one is closed or lost"
)
ROLLED_BACK = (
    "txbroker: rolled back at both sides; unless the block has itself committed rows, neither rows nor messages of it "
    "are there, and it can be run again"
)

T = TypeVar("T")


class ToTheEnd(Protocol):
    """Awaits something that is to end whether or not its caller is cancelled."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> Awaitable[T]:
        """Return its result."""


_in_block: dict[int, object] = {}
"""The connections that are in a block, by their id: two blocks on one would decide about each other's rows."""
_lock = threading.Lock()

_TOKENS = secrets.token_hex(8)
_numbers = itertools.count()


def check_wait(wait: str) -> None:
    """Raise WrongType or WrongValue for a choice that is not known."""
    if text("wait", wait, "nothing was done") not in WAITS:
        raise wrong_value("wait", wait, "'decision' or 'commit'", "nothing was done")


class Side(Protocol):
    """The broker's part of a block, as a face drives it."""

    @property
    def identity(self) -> str:
        """Of the broker's data."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sent or received."""

    def open(self, xid: Xid) -> None:
        """Begin; asks the broker nothing."""

    async def prepare(self) -> None:
        """Step 4; returns once it is forced."""

    async def commit(self, key: str) -> None:
        """Step 6; returns when the caller chose to. Then see to it that the row is deleted (step 7)."""

    async def rollback(self) -> None:
        """Begin to roll back, prepared or not; does not wait for it. Never raises for want of a broker."""

    def abandon(self) -> None:
        """The resolver will find out how it ended."""


class Step(enum.Enum):
    """How far a block is."""

    NEW = "not begun"
    OPEN = "begun"
    PREPARED = "prepared at the broker"
    ENDED = "ended"


class Deciding:
    """The steps of one block. Integrations with hooks of their own (SQLAlchemy, Django) call them one by one:

    ``enter``, the work, ``prepare``, ``check_open``, COMMIT by whoever does that (and what the dialect's ``forcing``
    says after it), nothing in between; then
    ``committed``; or ``failed(error)`` if COMMIT raised, or ``rolled_back`` if it came to none. ``leave`` does all of
    that.
    """

    def __init__(self, database: Database, side: Side, application: str = "") -> None:
        self.database = database
        self.side = side
        self.step = Step.NEW
        self.outcome = State.ACTIVE
        """ACTIVE inside of the block, PREPARED if how it ended is not known, else COMMITTED or ROLLED_BACK."""
        self.xid: Xid | None = None
        self.identity: Identity | None = None
        self._process = os.getpid()
        self._tells = False
        """Whether the connection says that a transaction is open while one is."""
        self.to_the_end: ToTheEnd = _as_it_is
        """How what must not be left half done is awaited: a face with cancellation sees to it that it ends."""
        self._application = xids.check_application(application)
        self._token = f"{_TOKENS}{next(_numbers)}"

    # -- step 1 ------------------------------------------------------------------------------------

    async def enter(self) -> None:
        """Begin or join the transaction, mark it, read the table's identity. Raises: nothing was done."""
        try:
            await self._enter()
        except Exception as error:
            if not isinstance(
                error, errors.TxBrokerError
            ):  # those say themselves what was done, and what to do
                error.add_note(NOT_BEGUN)
            raise

    async def _enter(self) -> None:
        if not self.side.identity:
            raise errors.VersionRefused(
                "the broker does not tell its identity, so it is older than this client; nothing was done. Update it"
            )
        await self.database.open()
        condition = self.database.condition()
        if condition in _REFUSED:
            raise errors.Misuse(f"the database connection {_REFUSED[condition]}. Nothing was done")
        self._register()
        try:
            await self._begin(condition)
        except BaseException:
            self._unregister()
            raise
        self.step = Step.OPEN

    async def _begin(self, condition: Condition) -> None:
        database = self.database
        found = identity.checked(database.handle) if condition is Condition.IDLE else None
        try:
            if found is None or not await database.dialect.begin_marked(database, self._token):
                if condition is Condition.IDLE:
                    await database.begin()
                found = identity.parse(await database.dialect.mark(database, self._token))
                if identity.checked(database.handle) != found:
                    await identity.check_home(database, found)
                    identity.remember(database.handle, found)
            self._tells = database.condition() is Condition.OPEN
            self.identity = found
            self.xid = xids.make(found.name, self._application, self.side.identity)
            self.side.open(self.xid)
        except BaseException as error:
            if condition is Condition.IDLE:
                await self.to_the_end(self.roll_back_database(error))
            if isinstance(error, Exception) and database.dialect.is_missing_table(error):
                raise identity.missing(error) from error
            raise

    def _register(self) -> None:
        with _lock:
            if id(self.database.handle) in _in_block:
                raise errors.Misuse(
                    "this database connection is in a block already: one transaction has one block. Use the outer "
                    "block's tx, or another connection; nothing was done by this one"
                )
            _in_block[id(self.database.handle)] = self.database.handle

    def _unregister(self) -> None:
        with _lock:
            _in_block.pop(id(self.database.handle), None)

    # -- steps 3 and 4 -----------------------------------------------------------------------------

    async def prepare(self) -> bool:
        """Insert the row, then prepare the broker. False: nothing was sent, so there is nothing to decide.

        Raises: both can only be rolled back now.
        """
        await self.database.flush()  # which may send messages
        if self.side.is_empty:
            return False
        assert self.xid is not None
        database = self.database
        condition = database.condition()
        if condition in (Condition.BORROWED, Condition.PIPELINED):
            raise errors.Misuse(
                f"at the end of the block the database connection {_REFUSED[condition]}. Nothing is prepared, and none "
                "of the block's messages will be seen; what becomes of the rows is for whoever ends that"
            )
        key = xids.row_key(self.xid)
        try:
            await database.dialect.decide(database, self._token, key, self.side.identity)
        except Exception as error:
            identity.forget(database.handle)  # the next block looks anew
            if database.dialect.is_missing_table(error):
                raise identity.missing(error) from error
            raise
        await self.side.prepare()
        self.step = Step.PREPARED
        return True

    # -- step 5 is the owner's, step 6 -------------------------------------------------------------

    def check_open(self) -> None:
        """The last thing before COMMIT. Raises what is for :meth:`failed`.

        PostgreSQL answers COMMIT in a failed transaction with ROLLBACK, and drivers do nothing where none is open: both
        look like success. A callback, a signal's handler or another task may have come in between.
        """
        condition = self.database.condition()
        if not self._tells or condition is Condition.OPEN:
            return
        if condition is Condition.FAILED:
            raise errors.Misuse(
                "the database transaction has failed, and the block went on: it can only be rolled back. Let the "
                "driver's exception leave the block, or use a savepoint"
            )
        if self.step is Step.PREPARED:
            raise errors.Misuse(
                "when the block was to be committed, its database transaction was not open any more "
                f"({condition.value}): something else had ended it after the broker had prepared"
            )

    async def committed(self) -> None:
        """The database has committed: that decided it."""
        self.outcome = State.COMMITTED
        prepared = self.step is Step.PREPARED
        self._end()
        if prepared:
            assert self.xid is not None
            await self.side.commit(xids.row_key(self.xid))
        else:
            await self.side.rollback()

    async def failed(self, error: BaseException) -> NoReturn:
        """COMMIT raised ``error``. Raises it if that was a "no", :class:`OutcomeUnknown` if it was no answer.

        Interrupted or cancelled, the database decides alone, and its connection is closed.
        """
        meaning = await self.to_the_end(self._meaning(error))
        if meaning is error:
            raise error
        raise meaning from error

    async def _meaning(self, error: BaseException) -> BaseException:
        xid, prepared = self.xid, self.step is Step.PREPARED
        known = self.database.did_not_commit(error)
        try:  # no locks should stay behind, if it was not committed
            if not known and not isinstance(error, Exception):
                await self._close_database(error)
            elif await self._is_rolled_back(error) and known:
                await self.rolled_back()
                error.add_note(ROLLED_BACK)
                return error
        finally:
            self._leave_undecided()
        if not prepared:
            return error
        text = (
            f"whether the database committed is not known ({told(error)}). Rows and messages have the same "
            f"fate, and a resolver finds out which; broker.wait_outcome(xid) tells it. xid {xid}. Do not do the work "
            "again before"
        )
        if not isinstance(error, Exception):
            error.add_note(f"txbroker: {text}")
            return error
        return errors.OutcomeUnknown(text, xid)

    async def _is_rolled_back(self, error: BaseException) -> bool:
        return await self.roll_back_database(error) or self.database.condition() not in _UNENDED

    async def _close_database(self, error: BaseException) -> None:
        """Nothing can be asked on a connection on which COMMIT may still be under way."""
        try:
            await self.database.close()
        except Exception as failure:  # noqa: BLE001 - told with the error that led here
            error.add_note(f"txbroker: closing the database connection failed ({told(failure)})")

    async def rolled_back(self) -> None:
        """The database has been rolled back, or can only be."""
        if self.step is Step.ENDED:
            return
        self.outcome = State.ROLLED_BACK
        self._end()
        await self.side.rollback()

    def _leave_undecided(self) -> None:
        """Unless it has ended: others find out how it does."""
        if self.step is Step.ENDED:
            return
        self.outcome = State.PREPARED
        self._end()
        self.side.abandon()

    def _end(self) -> None:
        self.step = Step.ENDED
        self._unregister()

    # -- all of it ---------------------------------------------------------------------------------

    async def leave(self, error: BaseException | None) -> None:
        """The end of a ``with``."""
        if (
            os.getpid() != self._process
        ):  # a word on the parent's connection would end the parent's transaction
            self.outcome = State.PREPARED
            self._end()
            if error is None:
                raise fork.refusal()
            return
        if error is not None:
            await self.to_the_end(self._abandon(error))
            return
        try:
            await self.prepare()
        except BaseException as failure:
            meaning = reason(failure)
            await self.to_the_end(self._abandon(meaning))
            if meaning is failure:
                raise
            raise meaning from (None if meaning is failure.__cause__ else failure)
        try:
            self.check_open()
            force = await self.database.dialect.forcing(self.database)
            await self.database.commit()
            force()
        except BaseException as failure:  # noqa: BLE001 - it is raised again, or said what it means
            await self.failed(failure)
        await self.committed()

    async def _abandon(self, error: BaseException) -> None:
        """The block came to no COMMIT."""
        try:
            if await self._is_rolled_back(error):
                await self.rolled_back()
                error.add_note(ROLLED_BACK)
        finally:  # else it may still be committed, by whoever uses the connection next
            self._leave_undecided()

    async def roll_back_database(self, error: BaseException) -> bool:
        """Roll the database back because of ``error``; whether that worked. If not, ``error`` gets a note of it."""
        try:
            await self.database.rollback()
        except Exception as failure:  # noqa: BLE001 - told with the error that led here
            error.add_note(
                f"txbroker: rolling back the database failed ({told(failure)}); it does so itself when the connection "
                "ends: close it"
            )
            return False
        return True


async def _as_it_is(work: Coroutine[Any, Any, T]) -> T:
    return await work
