"""One block: the protocol of ``docs/atomic.md``, step by step, the same for every client.

The steps have the numbers of that page. After any failure, the database is rolled back before the broker is told: as
long as the database may still commit, only the database decides.
"""

from __future__ import annotations

import itertools
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, Protocol, TypeVar

from journal.arguments import text, wrong_value
from journal.transaction_states import State
from journal.xid import Xid
from txbroker import errors
from txbroker.client.loop import fork
from txbroker.databases import open_blocks
from txbroker.databases.adapters.database import Condition, Database, lost_mark
from txbroker.databases.block_progress import BlockProgress, OutboxPart, Side, Step
from txbroker.databases.error_causes import reason, told
from txbroker.databases.open_blocks import Place
from txbroker.databases.tables import identity, xids
from txbroker.databases.tables.identity import Identity

_REFUSED = {
    Condition.AUTOCOMMIT: "is in autocommit mode: each statement would be committed alone. Switch that off, or begin "
    "a transaction first",
    Condition.FAILED: "is in a transaction that has failed and can only be rolled back: roll it back first",
    Condition.BORROWED: "is inside of a transaction block of the driver (psycopg's connection.transaction()), which "
    "alone may commit: open the block of txbroker.atomic instead of that one",
    Condition.PIPELINED: "is in pipeline mode, where answers come late: leave that before the block",
}

_UNENDED = (Condition.OPEN, Condition.BORROWED, Condition.PIPELINED)
"""A failed rollback has ended nothing: the holder of the connection may still commit."""

WAITS = ("decision", "commit")
_OVERTAKEN = (
    "the database transaction of this block was ended inside of it, and another block has begun on the connection "
    "since: none of this block's messages become visible. Leave commit and rollback to the block"
)
NOT_BEGUN = (
    "txbroker: the block has not begun, and nothing was done at either side: it can be run again, on another "
    "connection if this one is closed or lost"
)
ROLLED_BACK = (
    "txbroker: rolled back at both sides: neither rows nor messages of the block are there, unless it has committed "
    "rows by itself; it can be run again"
)

T = TypeVar("T")


class ToTheEnd(Protocol):
    """Awaits work that must end whether or not its caller is cancelled."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> Awaitable[T]:
        """Return the work's result."""


_NOWHERE = Place(None)
_TOKENS = secrets.token_hex(8)
_numbers = itertools.count()


def check_wait(wait: str) -> None:
    """Raise WrongType or WrongValue for an unknown choice."""
    if wait not in WAITS:
        text("wait", wait, "nothing was done")
        raise wrong_value("wait", wait, "'decision' or 'commit'", "nothing was done")


class Deciding:
    """The steps of one block. Integrations with hooks (SQLAlchemy, Django) call them one by one:

    ``enter``, the work, ``prepare``, ``check_open``, COMMIT (and what the database's ``forcing`` returned) with nothing
    in between, then ``committed``. If COMMIT raised: ``failed(error)``. If it came to none: ``rolled_back``. ``leave``
    does all of that.
    """

    def __init__(self, database: Database, side: Side, application: str = "") -> None:
        self.database = database
        self.side = side
        self.progress = BlockProgress(side)
        self.place = _NOWHERE
        """The place where it was entered."""
        self.xid: Xid | None = None
        self.identity: Identity | None = None
        self._broker = ""
        """The identity of the broker's data."""
        self._process = os.getpid()
        self._tells = False
        """Whether the connection knows that a transaction is open."""
        self.to_the_end: ToTheEnd = _as_it_is
        """How what must not be left half done is awaited: a client with cancellation sees to it that it ends."""
        self.last_moment: Callable[[], None] | None = None
        """Raises what keeps the block from COMMIT; once it has returned, only the database decides."""
        self._application = xids.check_application(application) if application != "" else ""
        self._token = f"{_TOKENS}{next(_numbers)}"

    # -- step 1 ------------------------------------------------------------------------------------

    async def enter(self, place: Place | None = None) -> None:
        """Begin or join the transaction, mark it, read the table's identity. If it raises, nothing was done."""
        self.place = Place(threading.get_ident()) if place is None else place
        try:
            await self._enter()
        except Exception as error:
            if not isinstance(error, errors.TxBrokerError):  # those errors say what was done, and what to do
                error.add_note(NOT_BEGUN)
            raise

    async def _enter(self) -> None:
        self._broker = self.side.identity
        if not self._broker:
            raise errors.VersionRefused(
                "the broker does not tell its identity, so it is older than this client; nothing was done. Update it"
            )
        await self.database.open()
        try:
            while (left := open_blocks.enter(self.database.handle, self)) is not None:
                await self._roll_back_left()
                open_blocks.forget(self.database.handle, left)
                await self.database.open()
            condition = self.database.condition()
            if condition in _REFUSED:
                raise errors.Misuse(f"the database connection {_REFUSED[condition]}. Nothing was done")
            await self._begin(condition)
        except BaseException as error:
            await self.heal(error)
            raise

    async def _roll_back_left(self) -> None:
        """Roll back the transaction that an interrupted block has left open; not one that was begun since."""
        database = self.database
        if database.condition() is Condition.OPEN and await database.is_marked():
            await database.rollback()

    async def _begin(self, condition: Condition) -> None:
        database = self.database
        found = identity.checked(database.handle) if condition is Condition.IDLE else None
        try:
            if found is None or not await database.begin_marked(self._token):
                if condition is Condition.IDLE:
                    await database.begin()
                else:
                    await database.take_write_lock()
                found = identity.parse(await database.mark(self._token))
                if identity.checked(database.handle) != found:
                    await identity.check_home(database, found)
                    identity.remember(database.handle, found)
            self._tells = database.condition() is Condition.OPEN
            self.identity = found
            self.xid = xids.make(found.name, self._application, self._broker)
            self.side.open(self.xid)
            self.progress.step = Step.OPEN
        except BaseException as error:
            if condition is Condition.IDLE:
                await self.to_the_end(self.roll_back_database(error))
            if isinstance(error, Exception) and database.is_missing_table(error):
                raise identity.missing(error) from error
            raise

    @property
    def outcome(self) -> State:
        """ACTIVE inside of the block, PREPARED if how it ended is not known, else COMMITTED or ROLLED_BACK."""
        return self.progress.outcome

    @property
    def is_out_of_transaction(self) -> bool:
        """Whether it had begun a transaction and none is open any more: it can only be rolled back."""
        return (
            self.progress.step is Step.OPEN
            and self._tells
            and self.database.condition() in (Condition.IDLE, Condition.AUTOCOMMIT)
        )

    def _unregister(self) -> None:
        open_blocks.leave(self.database.handle, self)
        self.place = Place(self.place.who)  # a frame would keep its variables alive

    # -- steps 3 and 4 -----------------------------------------------------------------------------

    async def prepare(self) -> bool:
        """Insert the row, then prepare the broker. Return False if nothing was sent, so there is nothing to decide.

        A block that only sends inserts its messages, and the broker is not asked.

        If it raises, both can only be rolled back.
        """
        await self.database.flush()  # which may send messages
        if self.side.is_empty:
            if self.last_moment is not None:
                self.last_moment()
            return False
        assert self.xid is not None
        assert self.identity is not None
        database = self.database
        condition = database.condition()
        if condition in (Condition.BORROWED, Condition.PIPELINED):
            raise errors.Misuse(
                f"at the end of the block the database connection {_REFUSED[condition]}. Nothing is prepared, and none "
                "of the block's messages become visible; the rows depend on how that transaction ends"
            )
        part = await self.side.put_in_outbox(database)
        if part is None:
            await self.side.wait_for_earlier(database, self.identity.name)
        try:
            if part is not None:
                await self._put_in_outbox(part, condition)
            else:
                key = xids.row_key(self.xid)
                await database.decide(self._token, key, self._broker)
        except Exception as error:
            self._refused_insert(error)
            raise
        if part is None:
            self.progress.key = key
            self.progress.step = Step.PREPARED
            await self.side.prepare()
        if self.last_moment is not None:
            self.last_moment()
        return True

    async def _put_in_outbox(self, part: OutboxPart, condition: Condition) -> None:
        """Leave the messages in the database: insert their row, unless it travels with COMMIT."""
        if self._tells and condition in (Condition.IDLE, Condition.AUTOCOMMIT):
            part.ended(False)  # it has a number already
            raise lost_mark(f"no transaction is open: {condition.value}")
        self.progress.outbox = part
        self.progress.step = Step.PREPARED
        self.xid = part.xid
        if not self.database.commits_with_row:
            await self.database.put(self._token, part.row)
        elif self._tells and self.database.condition() in (Condition.IDLE, Condition.AUTOCOMMIT):
            raise lost_mark("the mark of its transaction is gone")

    def _refused_insert(self, error: Exception) -> None:
        """Take note of why the row of this block could not be inserted; raises what it means, if that is something
        else.
        """
        identity.forget(self.database.handle)  # the next block checks it anew
        if self.database.is_missing_table(error):
            raise identity.missing(error) from error
        if self.progress.outbox is not None and self.database.is_duplicate(error):
            self.progress.outbox.unknown()  # another process goes on with a copy of this one's memory

    # -- step 5 is the owner's, step 6 -------------------------------------------------------------

    def check_open(self) -> None:
        """Check the connection right before COMMIT. Raises the error for :meth:`failed`.

        PostgreSQL answers COMMIT in a failed transaction with ROLLBACK, and drivers do nothing if none is open: both
        look like success. A callback, a signal's handler or another task may have come in between.
        """
        condition = self.database.condition()
        if not self._tells or condition is Condition.OPEN:
            self.progress.step = Step.COMMITTING
            return
        if condition is Condition.FAILED:
            raise errors.Misuse(
                "the database transaction has failed, and the block went on: it can only be rolled back. Let the "
                "driver's exception leave the block, or use a savepoint"
            )
        if self.progress.decides:
            raise errors.Misuse(
                "when the block was to be committed, its database transaction was not open any more "
                f"({condition.value}): something else had ended it meanwhile"
            )
        self.progress.step = Step.COMMITTING

    async def committed(self) -> None:
        """Note that the database has committed, which decided it; tell the broker."""
        self.progress.decide(State.COMMITTED)
        begun = self._tell()
        if self.progress.decides:
            await self.side.shown(begun)

    def _tell(self) -> Any:
        begun = self.progress.tell()
        self._unregister()
        return begun

    async def failed(self, error: BaseException) -> NoReturn:
        """Handle a COMMIT that raised ``error``: raise it if it was a "no", :class:`OutcomeUnknown` if it was no
        answer.

        After an interrupt or a cancellation, the database decides alone, and its connection is closed.
        """
        try:
            meaning = await self.to_the_end(self._meaning(error))
        except BaseException as later:  # cancelled again: that is raised, and has to say the same
            if self.outcome is State.PREPARED and self.progress.decides:
                later.add_note(f"txbroker: {self._unknown(error)}")
            raise
        if meaning is error:
            raise error
        raise meaning from error

    async def _meaning(self, error: BaseException) -> BaseException:
        known = self.database.did_not_commit(error)
        try:  # no locks should remain, if it was not committed
            if not known and (self.progress.outbox is not None or not isinstance(error, Exception)):
                await self._close_database(error)  # what follows on another connection may arrive before it
            elif await self._is_rolled_back(error) and known:
                await self.rolled_back()
                error.add_note(ROLLED_BACK)
                return error
        finally:
            self._leave_undecided()
        if not self.progress.decides:
            return error
        text = self._unknown(error)
        if not isinstance(error, Exception):
            error.add_note(f"txbroker: {text}")
            return error
        return errors.OutcomeUnknown(text, self.xid)

    def _unknown(self, error: BaseException) -> str:
        return (
            f"whether the database committed is not known ({told(error)}). Rows and messages have the same "
            f"outcome, and a resolver finds out which; broker.wait_outcome(xid) returns it. xid {self.xid}. Do not do "
            "the work again before"
        )

    async def _is_rolled_back(self, error: BaseException) -> bool:
        if await self.roll_back_database(error):
            return True
        if self.database.condition() is Condition.OPEN:  # interrupted within a statement, it accepts no other
            await self._close_database(error)
        return self.database.condition() not in _UNENDED

    async def _leave_to_database(self, error: BaseException) -> None:
        """Leave the decision to the database: COMMIT may have been sent, and no answer is known."""
        try:
            await self._close_database(error)
        finally:
            self._leave_undecided()

    async def _close_database(self, error: BaseException) -> None:
        """Close the connection: nothing can be asked on it while COMMIT may still be under way."""
        try:
            await self.database.close()
        except Exception as failure:  # noqa: BLE001 - told with the error that led here
            error.add_note(f"txbroker: closing the database connection failed ({told(failure)})")

    async def rolled_back(self) -> None:
        """Note that the database has been rolled back, or can only be; tell the broker."""
        if self.progress.step is Step.ENDED:
            return
        self.progress.decide(State.ROLLED_BACK)
        self._tell()

    def _leave_undecided(self) -> None:
        """Leave the block undecided unless it has ended: the resolver finds out how it ends."""
        if self.progress.step is not Step.ENDED:
            self.progress.leave_undecided()
            self._unregister()

    # -- all of it ---------------------------------------------------------------------------------

    async def leave(self, error: BaseException | None) -> None:
        """End the block, at the end of a ``with``."""
        if (
            os.getpid() != self._process
        ):  # a request on the parent's connection would end the parent's transaction
            self.progress.outcome = State.PREPARED
            self.progress.step = Step.ENDED
            self._unregister()
            if error is None:
                raise fork.refusal()
            return
        if self.progress.step is Step.ENDED:
            if error is None:
                raise errors.Misuse(_OVERTAKEN)
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
            force = await self.database.forcing()
            part = self.progress.outbox
            if part is not None and self.database.commits_with_row:
                try:
                    await self.database.commit_with(self._token, part.row)
                except Exception as refusal:
                    self._refused_insert(refusal)
                    raise
            else:
                await self.database.commit()
            force()
        except BaseException as failure:  # noqa: BLE001 - it is raised again, or said what it means
            await self.failed(failure)
        await self.committed()

    async def heal(self, error: BaseException) -> None:
        """End what ``error``, an interrupt on the way in or out, has left open. It may be called again."""
        step = self.progress.step
        if step in (Step.OPEN, Step.PREPARED):
            await self.to_the_end(self._abandon(error))
        elif step is Step.COMMITTING:
            await self.to_the_end(self._leave_to_database(error))
        elif step is Step.DECIDED:
            self._tell()
        else:
            self._unregister()

    async def _abandon(self, error: BaseException) -> None:
        """Abandon a block that came to no COMMIT."""
        try:
            if await self._is_rolled_back(error):
                await self.rolled_back()
                error.add_note(ROLLED_BACK)
        finally:  # else the next user of the connection may still commit it
            self._leave_undecided()

    async def roll_back_database(self, error: BaseException) -> bool:
        """Roll the database back because of ``error``; return whether that worked. If not, add a note to ``error``."""
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
