"""The requests of every client about transactions of any session, written once for all clients."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, TypeGuard

from journal.arguments import NOTHING_CHANGED, NOTHING_READ, checked_xid, octets, seconds, text, truth, whole
from journal.transaction_states import State
from journal.xid import Xid
from txbroker import errors
from txbroker.client.core.background_worker import Companion, makers
from txbroker.client.core.call import Call
from txbroker.client.core.client_method import client_method
from txbroker.client.core.core import Core
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import (
    GroupMove,
    Message,
    PartContent,
    Run,
    TransactionDetails,
    decoded,
)
from txbroker.client.core.transaction_names import OUTBOX_FORMAT_ID, Which, named, states_of
from txbroker.client.operations.topic_creation import described
from txbroker.wire import messages as commands
from txbroker.wire.messages import Committed, Done, Outcome, TransactionInfo

MAX_LISTED = 1000
"""How many transactions are asked for at a time."""


class TransactionOperations:
    """The methods of every client's connection by which operators and coordinators see and end transactions."""

    core: Core
    resolver: Companion | None

    @client_method
    def transactions(
        self,
        states: Iterable[State] = (),
        *,
        format_id: int | None = None,
        global_prefix: bytes = b"",
        forced: bool = False,
        own: bool = False,
    ) -> Coroutine[Promise[Any], None, list[TransactionInfo]]:
        """Return all transactions in these states (without states: the undecided ones), with xids of this format and
        prefix.

        With ``forced``, return only outcomes that a person or the orphan policy forced; with ``own`` only transactions
        of the client's principal. The list is whole: AccessDenied is raised if there may be others in it that the
        client's principal may not describe.
        """
        return transactions(self.core, states, format_id, global_prefix, forced, own)

    @client_method
    async def show_transaction(self, which: Which, max_bytes: int = 1 << 16) -> TransactionDetails:
        """Return a transaction, by its number ("12-3") or xid, with its first messages; raises UnknownTransaction."""
        core, which_one = self.core, named(which)
        max_bytes = whole("max_bytes", max_bytes, NOTHING_READ, least=0)
        places = {
            p.number: (topic.name, p.index) for topic in await described(core, None) for p in topic.partitions
        }
        request = commands.ShowTransaction(core.correlation(), *which_one, max_bytes)
        call = core.request(request, commands.TransactionShown)
        shown = await call
        data, begin, messages, obstacle = memoryview(call.data), 0, list[Message](), shown.obstacle
        for number, length in shown.parts:
            topic, index = places.get(number, _gone(number))
            try:
                messages += decoded(topic, index, data[begin : begin + length], 0, max_bytes)[0]
            except errors.CompressionUnavailable as error:
                obstacle = obstacle or str(error)
            begin += length
        contents = [PartContent(*places.get(n, _gone(n)), *held) for n, *held in shown.contents]
        runs = [
            Run(*places.get(at.partition, _gone(at.partition)), at.base_offset, at.count)
            for at in shown.placements
        ]
        moved = [
            GroupMove(group, *places.get(at.partition, _gone(at.partition)), at.offset)
            for group, at in shown.offsets
        ]
        return TransactionDetails(
            shown.transaction, messages, moved, sorted(contents), sorted(runs), obstacle
        )

    @client_method
    async def commit_transaction(self, which: Which, by: str, why: str) -> None:
        """Force a prepared transaction to commit: a heuristic outcome, which is kept with who forced it and why."""
        core = self.core
        which_one, by, why = named(which), text("by", by, NOTHING_CHANGED), text("why", why, NOTHING_CHANGED)
        request = commands.Commit(core.correlation(), *which_one, operator=True, by=by, why=why)
        await core.request(request, Committed)

    @client_method
    async def rollback_transaction(self, which: Which, by: str, why: str) -> None:
        """Force a transaction to roll back: a heuristic outcome, which is kept with who forced it and why."""
        core = self.core
        which_one, by, why = named(which), text("by", by, NOTHING_CHANGED), text("why", why, NOTHING_CHANGED)
        await core.request(
            commands.Rollback(core.correlation(), *which_one, operator=True, by=by, why=why), Done
        )

    @client_method
    async def forget_transaction(self, which: Which, by: str, why: str = "") -> None:
        """Forget the outcome of a decided transaction. A forced outcome needs a reason."""
        core = self.core
        which_one, by, why = named(which), text("by", by, NOTHING_CHANGED), text("why", why, NOTHING_CHANGED)
        shown = await core.request(
            commands.ShowTransaction(core.correlation(), *which_one, 0), commands.TransactionShown
        )
        meant = shown.transaction
        request = commands.Forget(core.correlation(), meant.session, meant.serial, meant.xid, by, why)
        call = core.request(request, Done)
        try:
            await call
        except (errors.UnknownTransaction, errors.OutcomeForgotten):
            if call.attempts == 1:
                raise

    @client_method
    async def outcome(self, which: Which) -> Outcome:
        """Return how a transaction ended, or its state; raises OutcomeForgotten, UnknownTransaction.

        The xid of a block that has left its messages in its database is found out there: PREPARED means that its
        transaction is open, or the database does not answer.
        """
        if is_of_outbox(which):
            return Outcome(0, 0, 0, await self._state(which, self.core.clock() + self.core.options.timeout))
        return await outcome(self.core, which)

    @client_method
    async def wait_outcome(self, which: Which, timeout: float = 30.0) -> State:
        """Wait until a transaction has ended, and return how; raises OutcomeUnknown after ``timeout`` seconds."""
        core = self.core
        deadline, pause = core.clock() + seconds("timeout", timeout, NOTHING_READ), 0.01
        while True:
            state = await self._state(which, deadline)
            if state in (State.COMMITTED, State.ROLLED_BACK):
                return state
            if core.clock() + pause >= deadline:
                raise errors.OutcomeUnknown(
                    f"transaction {which} is still {state.name.lower().replace('_', ' ')} after {timeout:g} s: its "
                    "coordinator or resolver has not decided it yet. It waits at the broker; ask again later",
                    xid=which if isinstance(which, Xid) else None,
                )
            await core.waits.sleep(pause)
            pause = min(1.0, pause * 2)

    async def _state(self, which: Which, deadline: float) -> State:
        """Return how far a transaction is; a block that has left its messages in a database is found out there, until
        a deadline of the core's clock.
        """
        if is_of_outbox(which):
            if self.resolver is None and not makers:
                raise errors.Misuse(
                    f"{which} names a block whose messages its database has: begin a block of txbroker.atomic on that "
                    "database over this connection, then ask again"
                )
            resolver = self.resolver or makers[0](self)
            while (found := resolver.row_outcome(which)) is None and self.core.clock() < deadline:
                await self.core.waits.sleep(0.005)
            return found or State.PREPARED
        return (await outcome(self.core, which)).state

    @client_method
    def end_prepared(self, xid: Xid, commit: bool) -> Coroutine[Promise[Any], None, None]:
        """Commit or roll back a transaction that another session has prepared, as its coordinator decided."""
        return end_prepared(self.core, xid, commit)


def is_of_outbox(which: Which) -> TypeGuard[Xid]:
    """Return whether it names a block that has left its messages in its database."""
    return isinstance(which, Xid) and which.format_id == OUTBOX_FORMAT_ID


async def transactions(
    core: Core,
    states: Iterable[State],
    format_id: int | None = None,
    global_prefix: bytes = b"",
    forced: bool = False,
    own: bool = False,
) -> list[TransactionInfo]:
    """Return all transactions in these states, page by page; without states: the undecided ones."""
    found, after, wanted = list[TransactionInfo](), (0, 0), states_of(states)
    format_id = None if format_id is None else whole("format_id", format_id, NOTHING_READ)
    global_prefix = octets("global_prefix", global_prefix, NOTHING_READ)
    truth("forced", forced, NOTHING_READ)
    truth("own", own, NOTHING_READ)
    while True:
        request = commands.ListTransactions(
            core.correlation(), wanted, after, MAX_LISTED, format_id, global_prefix, forced, own
        )
        page = await core.request(request, commands.Transactions)
        found += page.transactions
        if not page.more or not page.transactions:
            return found
        after = (found[-1].session, found[-1].serial)


async def outcome(core: Core, which: Which) -> Outcome:
    """Return how a transaction ended, or its state; raises OutcomeForgotten, UnknownTransaction."""
    return await core.request(commands.AskOutcome(core.correlation(), *named(which)), Outcome)


async def end_prepared(core: Core, xid: Xid, commit: bool) -> None:
    """Send the second phase of a transaction that another session prepared, as its coordinator decides."""
    xid = checked_xid(xid)
    truth("commit", commit, NOTHING_CHANGED)
    call: Call[Committed] | Call[Done]
    if commit:
        call = core.request(commands.Commit(core.correlation(), xid=xid), Committed)
    else:
        call = core.request(commands.Rollback(core.correlation(), xid=xid), Done)
    try:
        await call
    except errors.UnknownTransaction as error:
        if call.attempts == 1:
            raise
        # Ended meanwhile and forgotten: by the first try, or by another client and the other way.
        raise errors.OutcomeUnknown(f"the answer was lost; asked again, the broker says: {error}") from error


def _gone(number: int) -> tuple[str, int]:
    """Return the place of a partition whose topic has been deleted."""
    return f"(partition {number})", 0
