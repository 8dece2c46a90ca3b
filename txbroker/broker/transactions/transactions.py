"""Transactions: which session may do what to which one, and what coordinators and operators learn.

The store below keeps the states, the totals and the outcomes; here are the rules of sessions and groups. An *active*
transaction belongs to the session that began it: no other session touches it, operators neither. Serials count up in a
session, so a serial that was passed over can never begin. Only for this reason may the broker say that it was rolled
back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import Logger

from journal.arguments import checked_xid
from journal.parties import Actor, Owner, parts_of_actor
from journal.records.group_entries import GroupPositions, Settled
from journal.records.outcome import Outcome, verb
from journal.transaction_states import CLIENT, Cause, State, Totals, TransactionNumber, number_of
from journal.transactions.unsent import UnsentRun
from txbroker.broker.groups.consumer_groups import Consuming
from txbroker.broker.sends.sends import disk_full
from txbroker.broker.sends.streams import Delivering
from txbroker.broker.sessions.scheduler import REQUEST
from txbroker.broker.sessions.session import Session
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.broker.transactions.request_content import RequestContent, carries, check_seen
from txbroker.errors import (
    AlreadyFinished,
    DeliveryLost,
    GenerationFenced,
    InvalidSetting,
    LimitExceeded,
    MemoryExhausted,
    OffsetPending,
    RequestRefused,
    StorageUnavailable,
    TransactionCommitted,
    TransactionConflict,
    TransactionRolledBack,
    UnknownTransaction,
)
from txbroker.groups.retries import check_said
from txbroker.wire import messages
from txbroker.wire.messages import (
    Add,
    AddOffsets,
    AskOutcome,
    Commit,
    Committed,
    Done,
    Forget,
    Prepare,
    Rollback,
)
from txbroker.wire.refusals import check_text

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.transactions.state import Transaction

MAX_SERIAL = (1 << 63) - 1
MAX_SAID = 20
"""Most transactions that a start names one by one in the log."""

TO_MEND = "make what else took part agree by hand, then 'txbroker transactions forget {number} --why ...'"
_EMPTY = Totals(0, 0, 0)
_UNDECIDED_OWNED = (State.ACTIVE, State.ROLLBACK_ONLY)


class Transacting:
    """The meaning of the commands for transactions. ``sessions`` are those that may still begin one, by number."""

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        consuming: Consuming,
        delivering: Delivering,
        sessions: dict[int, Session],
    ) -> None:
        self._engine = engine
        self._transactions = engine.transactions
        self.staging = engine.transactions.staging
        self._live = engine.transactions.live
        self._stores = engine.catalog.stores
        self._max_frame = settings.max_frame
        self._consuming = consuming
        self._delivering = delivering
        self.content = RequestContent(engine, settings.max_frame, consuming)
        self._sessions = sessions
        self.next_session = 0
        """The lowest session number that has not been given out."""

    def new_session(self) -> int:
        """Return the number of a new session."""
        self.next_session += 1
        return self.next_session - 1

    # -- the owner adds ---------------------------------------------------------------------------

    def add(self, session: Session, command: Add, data: memoryview) -> None:
        """Stage frames. After a refusal the transaction can only be rolled back."""
        number, owner = self._begun(session, command.serial, command.seen)
        try:
            count = self.content.count(session, command, command.partition, data)
            session.work += REQUEST * (count - 1)
            if self._engine.full:
                raise disk_full()
            partition, runs = command.partition, list[UnsentRun]()
            if partition < 0:
                partition, runs = 0, self.content.routed(partition, data, None)
            self._transactions.add(number, partition, data, count, command.xid, command.seen, owner, runs)
            session.last_serial = max(session.last_serial, command.serial)
        except MemoryExhausted:
            raise  # nothing has changed, not even the transaction: the request is tried again
        except (RequestRefused, StorageUnavailable):
            self.doom(session, command)
            raise

    def add_offsets(self, session: Session, command: AddOffsets, data: memoryview) -> None:  # noqa: ARG002
        """Stage offsets; refusals as in :meth:`add`."""
        number, owner = self._begun(session, command.serial, command.seen)
        try:
            self._consuming.judge(command.group, command.id, command.offsets, command.settled, number.session)
            settled: list[Settled] = []
            if command.settled:
                check_said(command.settled)
                asked = GroupPositions(command.group, command.id, command.offsets, command.settled)
                positions = self._consuming.recorded([asked])
                self._consuming.check_settled(positions, number)
                settled = positions[0].settled
            if self._engine.full:
                raise disk_full()
            self._transactions.add_offsets(
                number, command.group, command.offsets, command.xid, command.seen, owner, command.id, settled
            )
            session.last_serial = max(session.last_serial, command.serial)
        except MemoryExhausted:
            raise
        except (RequestRefused, StorageUnavailable):
            self.doom(session, command)
            raise

    def doom(self, session: Session, command: Add | AddOffsets) -> None:
        """Mark a transaction as rollback-only after a refused add, because its contents are incomplete.

        A transaction that has not begun needs no mark: its serial has passed, so it never will.
        """
        number = TransactionNumber(session.number, command.serial)
        if number in self._live:
            self._transactions.doom(number)
        else:
            session.last_serial = max(session.last_serial, command.serial)

    def _begun(self, session: Session, serial: int, seen: int) -> tuple[TransactionNumber, Owner | None]:
        """The number, and the owner to be noted if this begins it; raises for a serial that cannot begin any more."""
        number = TransactionNumber(session.number, serial)
        if number in self._live:
            return number, None
        if session.last_serial < serial <= MAX_SERIAL and 0 <= seen < serial:
            return number, session.owner
        raise TransactionConflict(
            f"transaction {number} (outcomes seen up to {seen}) cannot begin: serials of a session count up, "
            f"{session.last_serial} was the last one (ended, or refused), and outcomes are seen afterwards; "
            "nothing has changed. Go on with a new serial"
        )

    # -- its owner ends it, or prepares it for another session --------------------------------------

    def prepare(self, session: Session, command: Prepare, data: memoryview) -> Done:
        """Prepare it, so that it survives everything; consumers' generations are checked here, once."""
        number, before = number_of((session.number, command.serial)), session.last_serial
        known = self._live.get(number)
        if known is None:
            self._claim_new(session, number, command)
        if not 0 <= command.seen < command.serial:
            check_seen(number, command.seen)
        if known is not None:
            checked_xid(command.xid)
            if known.state is State.ACTIVE:
                self._check_offsets(number)
        try:
            unsent = self.content.of(session, number, command, data)
            self._transactions.prepare(
                number, command.xid, command.totals, command.seen, session.owner, unsent
            )
        except (RequestRefused, StorageUnavailable) as error:
            self._refused(session, number, carries(command, data), before, error)
            raise
        return Done(command.correlation)

    def commit(self, session: Session, command: Commit, data: memoryview) -> Committed:
        """Commit: a session's own in one phase, a prepared one from anywhere, by force from an operator."""
        if command.runs or command.positions or data or command.cancels or command.delivery is not None:
            return self._commit_content(session, command, data)
        number = self.number_of(session, command)
        known = self._live.get(number)
        own = number.session == session.number
        if known is None and own:
            self._check_not_passed(session, number, command)
        cause, by, why = self._authority(session, command, number)
        # The outcomes and messages that a client has seen and sent are of its own session, not of the one whose
        # transaction it ends. An unknown one of an ended session was rolled back, so no request makes an empty one.
        seen, totals = (command.seen, command.totals) if own else (0, None)
        if not 0 <= seen < number.serial:
            check_seen(number, seen)
        if known is not None and known.state is State.ACTIVE:
            self._check_offsets(number)
        try:
            outcome = self._transactions.commit(number, cause, totals, seen, by, why, owner=session.owner)
        except TransactionRolledBack:
            self._tell(session, command, number)
            raise
        heuristic = outcome.heuristic and not command.operator
        if heuristic:
            self._tell(session, command, number)
        elif outcome.heuristic and known is not None:
            self._log_heuristic(outcome)
        return Committed(command.correlation, outcome.placements, heuristic)

    def _commit_content(self, session: Session, command: Commit, data: memoryview) -> Committed:
        """Commit a session's own transaction in one phase, with the contents of the request."""
        serial, before, xid = command.serial, session.last_serial, command.xid
        number = number_of((session.number, serial))
        known = self._live.get(number)
        if command.operator or command.session not in (0, session.number) or not serial:
            raise TransactionConflict(
                "a commit that carries messages or positions ends a transaction of its own session, which it names by "
                "its serial, and is no operator's; nothing has changed"
            )
        if xid is not None:
            checked_xid(xid)
        if not 0 <= command.seen < serial:
            check_seen(number, command.seen)
        delivered = None
        if command.delivery is not None:
            delivered = self._delivering.judge(command, command.delivery, self._is_known(number))
            if delivered is None:
                self._claim_serial(session, serial)
                return Committed(command.correlation, [])
        if known is not None:
            if xid not in (None, known.xid):
                raise TransactionConflict(
                    f"xid {xid} is not that of transaction {number}; nothing has changed"
                )
            if known.state is State.ACTIVE:
                self._check_offsets(number)
        else:
            self._claim_new(session, number, command)
        try:
            unsent = self.content.of(session, number, command, data)
            if delivered is not None:
                unsent.delivered = delivered
            outcome = self._transactions.commit(
                number, CLIENT, command.totals, command.seen, None, "", unsent, xid, session.owner
            )
        except (RequestRefused, StorageUnavailable) as error:
            self._refused(session, number, True, before, error)
            raise
        return Committed(command.correlation, outcome.placements, outcome.heuristic)

    def _refused(
        self,
        session: Session,
        number: TransactionNumber,
        has_content: bool,
        before: int,
        error: RequestRefused | StorageUnavailable,
    ) -> None:
        """Refuse a deciding request: its contents are not stored, so what had begun is rolled back.

        If memory is short, it is not refused: the request is tried again, with the serial that was the last one
        ``before``.
        """
        if isinstance(error, MemoryExhausted):
            session.last_serial = before
        elif has_content and not isinstance(error, TransactionConflict):
            self._undo(number, error)

    def _undo(self, number: TransactionNumber, error: RequestRefused | StorageUnavailable) -> None:
        known = self._live.get(number)
        if known is None or known.state not in _UNDECIDED_OWNED or self._engine.failed:
            return
        self._transactions.rollback(number, Cause.REFUSED_ADD, why=str(error))
        error.args = (f"{error}. Transaction {number} has been rolled back", *error.args[1:])

    def gave_up(
        self, session: Session, command: Add | AddOffsets | Prepare | Commit, error: MemoryExhausted
    ) -> None:
        """Roll back what had begun, because there was no memory for the request in the end."""
        if isinstance(command, Add | AddOffsets):
            self.doom(session, command)
        elif carries(command):
            number = TransactionNumber(session.number, command.serial)
            session.last_serial = max(session.last_serial, command.serial)
            self._undo(number, error)

    def rollback(self, session: Session, command: Rollback, data: memoryview) -> Done:  # noqa: ARG002
        """Roll back, with the same rights as :meth:`commit`."""
        number = self.number_of(session, command)
        cause, by, why = self._authority(session, command, number)
        try:
            outcome = self._transactions.rollback(number, cause, by, why)
        except TransactionCommitted:
            self._tell(session, command, number)
            raise
        if outcome is None:
            self._tell(session, command, number)
        elif command.operator:
            self._log_heuristic(outcome)
        return Done(command.correlation)

    def _authority(
        self, session: Session, command: Commit | Rollback, number: TransactionNumber
    ) -> tuple[Cause, Actor | None, str]:
        """Cause, by and why of a decision; raises if this session may not take it."""
        known = self._live.get(number)
        own = number.session == session.number
        if own and known is not None and not command.operator:
            return CLIENT, None, ""
        if own and known is None:
            self._claim_serial(session, number.serial)
        owned_elsewhere = not own and known is not None and known.state in _UNDECIDED_OWNED
        if owned_elsewhere or (command.operator and known is not None and known.state in _UNDECIDED_OWNED):
            raise TransactionConflict(
                f"transaction {number} is active and belongs to session {number.session}: only that may end "
                "it; nothing has changed. It is rolled back when its connection "
                "ends or time is up"
            )
        if not own and known is None:
            self._check_begun(number)
        if not command.operator:
            return Cause.CLIENT, None if own else session.as_actor(), ""
        if not command.by.strip() or not command.why.strip():
            raise InvalidSetting(
                f"forcing transaction {number} needs `by` and `why`: both are kept with the outcome and told "
                "to its coordinator; nothing has changed"
            )
        check_text("by", command.by)
        check_text("why", command.why)
        return Cause.OPERATOR, Actor(command.by, session.principal), command.why

    def _claim_new(self, session: Session, number: TransactionNumber, command: Prepare | Commit) -> None:
        """Claim the serial of a transaction that may begin with this request; raises if it has passed."""
        if session.last_serial < number.serial <= MAX_SERIAL:
            session.last_serial = number.serial
        else:
            self._check_not_passed(session, number, command)
            self._claim_serial(session, number.serial)

    def _claim_serial(self, session: Session, serial: int) -> None:
        """Claim a serial, so that an answer about it stays true: it cannot begin later."""
        if not 1 <= serial <= MAX_SERIAL:
            raise UnknownTransaction(
                f"there is no transaction {serial}: serials count from 1; nothing has changed"
            )
        session.last_serial = max(session.last_serial, serial)

    def _check_not_passed(
        self, session: Session, number: TransactionNumber, command: Prepare | Commit
    ) -> None:
        """Raise for one that would begin now though its serial has passed: it was reported as rolled back."""
        begins = command.totals == _EMPTY or (command.totals is None and carries(command))
        if (
            begins
            and number.serial <= session.last_serial
            and self._transactions.outcomes.find(number) is None
        ):
            raise TransactionRolledBack(
                f"transaction {number} was rolled back: its serial had passed before anything was sent in it; "
                "nothing was changed"
            )

    def _check_begun(self, number: TransactionNumber) -> None:
        """Raise for a number that may still begin, so that it is not reported as rolled back."""
        owner = self._sessions.get(number.session)
        ahead = number.session >= self.next_session
        if ahead or number.serial < 1 or (owner is not None and number.serial > owner.last_serial):
            raise UnknownTransaction(
                f"transaction {number} has not begun, and it may still: its session is open or yet to come; "
                "nothing has changed. Ask again later"
            )

    def _check_offsets(self, number: TransactionNumber) -> None:
        """Roll back a transaction whose consumer has lost a partition or meets another's decision; raise the reason."""
        try:
            self._consuming.check_staged(number)
        except (
            AlreadyFinished, DeliveryLost, GenerationFenced, InvalidSetting, LimitExceeded, OffsetPending
        ) as error:  # fmt: skip
            self._transactions.rollback(number, Cause.REFUSED_ADD, why=str(error))
            raise type(error)(f"{error}. Transaction {number} has been rolled back") from error

    def _tell(self, session: Session, command: Commit | Rollback, number: TransactionNumber) -> None:
        """Record what the coordinator decided about a heuristic outcome, which this answer reports to it."""
        if command.operator or number in self._live:
            return
        outcome = self._transactions.outcome(number)
        if not outcome.heuristic:
            return
        decided = State.COMMITTED if isinstance(command, Commit) else State.ROLLED_BACK
        if self._transactions.tell(number, decided, session.as_actor()):
            say = self.log.info if decided is outcome.state else self.log.warn
            say(
                "the coordinator of transaction {number} (xid {xid}), {owner}, has decided: {decided}. It had been "
                "{outcome}{damage}",
                number=number, xid=outcome.xid, owner=session.owner, decided=verb(decided), outcome=outcome.describe(),
                damage="" if decided is outcome.state else f". DAMAGE: {TO_MEND.format(number=number)}",
            )  # fmt: skip

    def _log_heuristic(self, outcome: Outcome) -> None:
        self.log.warn(
            "transaction {number} (xid {xid}) of {owner}, prepared, was {outcome}",
            number=outcome.number, xid=outcome.xid, owner=outcome.owner, outcome=outcome.describe(),
        )  # fmt: skip

    def say_contradicted(self) -> None:
        """Log at each start, until a person has handled it, which heuristic outcomes were contradicted."""
        outcomes = self._transactions.outcomes
        for number in sorted(outcomes.contradicted)[:MAX_SAID]:
            outcome = outcomes.by_number[number]
            self.log.warn(
                "transaction {number} (xid {xid}) was {outcome}, but its coordinator decided otherwise. DAMAGE: {mend}",
                number=number, xid=outcome.xid, outcome=outcome.describe(), mend=TO_MEND.format(number=number),
            )  # fmt: skip
        if (more := len(outcomes.contradicted) - MAX_SAID) > 0:
            self.log.warn("DAMAGE: so it is with {more} more", more=more)

    # -- asking -----------------------------------------------------------------------------------

    def ask(self, session: Session, command: AskOutcome, data: memoryview) -> messages.Outcome:  # noqa: ARG002
        """Return the state, or how it ended."""
        number = self.number_of(session, command)
        known = self._live.get(number)
        if known is not None:
            return messages.Outcome(command.correlation, number.session, number.serial, known.state)
        self._check_begun(number)
        outcome = self._transactions.outcome(number)
        by, principal = parts_of_actor(outcome.by)
        return messages.Outcome(
            command.correlation, number.session, number.serial, outcome.state, outcome.cause, by,
            outcome.why, outcome.placements, outcome.heuristic, outcome.wall, principal,
        )  # fmt: skip

    def forget(self, session: Session, command: Forget, data: memoryview) -> Done:  # noqa: ARG002
        """Forget an outcome, of the transaction that has that number and that xid."""
        check_text("by", command.by)
        check_text("why", command.why)
        number = TransactionNumber(command.session, command.serial)
        outcome = self._transactions.outcomes.by_number.get(number)
        if outcome is not None and outcome.xid != command.xid:
            raise UnknownTransaction(
                f"transaction {number} has {'no xid' if outcome.xid is None else f'the xid {outcome.xid}'}, not "
                f"{command.xid or 'none'}: it is not the one that was meant; nothing has changed"
            )
        heuristic = outcome is not None and outcome.heuristic
        if heuristic and not (command.by.strip() and command.why.strip()):
            raise InvalidSetting(
                f"forgetting transaction {number}, whose outcome was forced, needs `by` and `why`: both are kept in "
                "the journal and the log; nothing has changed"
            )
        by = Actor(command.by, session.principal) if command.by else session.as_actor()
        self._transactions.forget(number, by, command.why)
        if outcome is not None and heuristic:
            self.log.warn(
                "transaction {number} (xid {xid}) was {outcome}{damage}; forgotten by {by}: {why}",
                number=number, xid=outcome.xid, outcome=outcome.describe(), by=by, why=command.why,
                damage=", and its coordinator had decided otherwise" if outcome.contradicted else "",
            )  # fmt: skip
        return Done(command.correlation)

    def _is_known(self, number: TransactionNumber) -> bool:
        return number in self._live or number in self._transactions.outcomes.by_number

    def live_of(self, session: Session, command: Commit) -> Transaction | None:
        """Return the undecided transaction that a commit names, if there is one; by its xid if it names both."""
        if command.xid is None:
            return self._live.get(TransactionNumber(command.session or session.number, command.serial))
        number = self._transactions.live_xids.get(command.xid)
        return None if number is None else self._live.get(number)

    def number_of(
        self, session: Session, command: Commit | Rollback | AskOutcome | messages.ShowTransaction
    ) -> TransactionNumber:
        """Return the transaction that a command names: by number, where session 0 is its own, by xid, or both."""
        if not command.serial:
            if command.xid is None:
                raise UnknownTransaction(
                    "neither a serial nor an xid says which transaction; nothing has changed"
                )
            return self._transactions.find(command.xid)
        number = number_of((command.session or session.number, command.serial))
        if command.xid is not None and self._transactions.find(command.xid) != number:
            raise TransactionConflict(
                f"xid {command.xid} is not that of transaction {number}; nothing has changed"
            )
        return number
