"""The meaning of commands: sessions, dispatch, requests that wait, orphans, and the treatment of errors.

Everything runs on the reactor's thread. A request is judged, and its decision is accepted by the engine and thereby
applied in the same turn. The answer waits for the force; refusals wait too, because they report a state that must be on
disk first.

An error of :mod:`txbroker.errors` is the peer's answer. Any other exception is a bug. If it is raised while judging,
nothing has changed: it is logged and the peer loses its connection, so the outcome is unknown to it, as with any lost
connection. If it is raised inside a fold, the state disagrees with the journal: the engine has failed itself
(``engine.failed``), nothing is accepted any more, and ``on_failure`` must end the process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from journal.folds.access import AccessFold
from journal.folds.groups import GroupsFold
from journal.folds.identity import IdentityFold
from journal.folds.producers import ProducersFold
from journal.folds.queues import QueuesFold
from journal.folds.streams import StreamsFold
from journal.formats.envelope import SCHEDULE_TOPIC
from txbroker.broker.access.access_policy import AccessPolicy
from txbroker.broker.access.wiring import Ends, letting_in
from txbroker.broker.admin import Describing, nothing_scrubbed
from txbroker.broker.fetches.fetch_attempt import CallLater, unreadable
from txbroker.broker.fetches.fetches import Fetching, RunBlocking, run_inline
from txbroker.broker.fetches.file_pins import Pinning
from txbroker.broker.fetches.message_search import MessageSearch
from txbroker.broker.fetches.stepwise_answers import Stepwise
from txbroker.broker.fetches.time_offsets import TimeOffsets
from txbroker.broker.groups.consumer_groups import Consuming
from txbroker.broker.groups.group_description import GroupDescription
from txbroker.broker.parked_requests import LARGE, Disconnected, ParkedRequests
from txbroker.broker.passes import passes_of
from txbroker.broker.plain_answers import PLAIN_ANSWERS
from txbroker.broker.queues.wiring import delaying, queueing, tell_of
from txbroker.broker.request_times import Timing
from txbroker.broker.schedule.scheduling import Scheduling
from txbroker.broker.sends.sends import Sending
from txbroker.broker.sends.streams import Delivering
from txbroker.broker.sessions.accounts import SMALL, Accounts
from txbroker.broker.sessions.latencies import Latencies
from txbroker.broker.sessions.rights import Policy, judge_rights
from txbroker.broker.sessions.session import (
    OPEN,
    Session,
    SessionAction,
    SessionInput,
    unheard,
)
from txbroker.broker.sessions.session_list import COME_AGAIN, SessionList
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.broker.status import status_of
from txbroker.broker.transactions.orphan_policy import Orphans
from txbroker.broker.transactions.staged_proof import Proving
from txbroker.broker.transactions.transactions import Transacting
from txbroker.errors import AccessDenied, JournalPoisoned, MemoryExhausted, TxBrokerError
from txbroker.groups.dead_letters import DeadLetters
from txbroker.groups.idle_groups import IdleGroups
from txbroker.groups.parked_offsets import ParkedOffsets
from txbroker.login.facts import ConnectionFacts
from txbroker.login.logins import Logins
from txbroker.login.tokens import TokenIssuer
from txbroker.members.coordinator import Coordinator
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    MAX_ANSWER_HEAD,
    Add,
    AddOffsets,
    Answer,
    AnyRequest,
    AskOutcome,
    Cancel,
    Commit,
    DescribeGroup,
    Fetch,
    FindMessages,
    Forget,
    GoingAway,
    Hello,
    Login,
    OffsetsForTime,
    OpenProducer,
    Prepare,
    Rollback,
    Send,
    Timed,
)
from txbroker.wire.refusals import encode_bounded, refusal

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore

_NO_DATA: Final = memoryview(b"")
Handler = Callable[[Session, Any, memoryview], Answer | None]


class Broker:
    """The meaning of commands, over an engine that was recovered with :func:`journal.folds.table.client_folds`.

    ``run_blocking(work, done, failed)`` runs work on the reader pool, ``call_later(seconds, call)`` is the reactor's,
    ``random`` gives random bytes; ``on_failure(doing, error)`` must end the process. ``run_passwords`` is as
    ``run_blocking``, on threads that judge passwords; the tokens of ``issuers`` are accepted. ``sessions`` has those
    that go on, by number.
    """

    log = Logger()
    on_failure: Callable[[str, BaseException], None] | None = None
    on_denied: Callable[[Session, AccessDenied], object] = staticmethod(unheard)
    tells_refusals = False
    """Whether each refused request is logged, at level debug."""

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        run_blocking: RunBlocking = run_inline,
        call_later: CallLater | None = None,
        random: Callable[[int], bytes] = secrets.token_bytes,
        run_passwords: RunBlocking | None = None,
        issuers: Sequence[TokenIssuer] = (),
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.sessions: dict[int, Session] = {}
        self.started_at = engine.now()
        self._transactions, self._large_commits = engine.transactions, engine.large_commits
        self._with_files = engine.transactions.table.with_files
        self._when_forced = engine.when_forced
        self.producers, self.groups = _fold(engine, ProducersFold), _fold(engine, GroupsFold)
        self.accounts, self.latencies = Accounts(engine), Latencies(engine)
        self.parked_requests = ParkedRequests(
            engine, self.sessions, self.accounts, self._carry_out, self._give_up, call_later
        )
        self._line = self.parked_requests.line
        self.sending = Sending(engine, settings, self.producers, self.sessions)
        self.stepwise = Stepwise(run_blocking, self.accounts, engine.when_forced, self._broke, self._refused)
        self.fetching = Fetching(engine, settings, run_blocking, call_later, self.accounts, self.groups)
        self.consuming = Consuming(engine, settings, self.groups, self.stepwise, random)
        self.coordinator = Coordinator(
            engine, settings, self.groups, self.consuming, self._deliver, run_blocking, call_later, random,
        )  # fmt: skip
        self.idle_groups = self._idle_groups()
        self.delivering = Delivering(engine, _fold(engine, StreamsFold), settings.max_streams)
        self.transacting = Transacting(engine, settings, self.consuming, self.delivering, self.sessions)
        self.dead_letters = DeadLetters(
            engine, self.groups, self.consuming.recorded, run_blocking, self.transacting.new_session, random
        )
        self._proving = Proving(self.transacting, run_blocking, self.accounts, self.received)
        self.orphans, self.pinning = Orphans(engine, settings), Pinning(engine)
        self.describing = Describing(
            engine, settings, self.transacting.number_of, self.orphans.policy, self.accounts, self.stepwise
        )
        self._schedule_and_queue(run_blocking, call_later, random)
        self.scrubbed, self.transacting.next_session = nothing_scrubbed, (engine.start_number << 32) + 1
        logins = Logins(
            _fold(engine, AccessFold), run_passwords or run_blocking, engine.clock, random, issuers
        )
        self._let_in(logins, call_later, random)
        self._handlers = self._make_handlers()
        self._tell_each_other()

    def _let_in(
        self,
        logins: Logins,
        call_later: CallLater | None,
        random: Callable[[int], bytes],
    ) -> None:
        """Make what lets clients in, and what says whom."""
        engine, sessions = self.engine, self.sessions
        self.access: AccessFold = _fold(engine, AccessFold)
        self.access_policy = AccessPolicy(
            engine, self.access, self.delivering.fold, self.groups, self.coordinator.member_of,
            _fold(engine, QueuesFold),
        )  # fmt: skip
        self.policy: Policy = self.access_policy
        ends = Ends(self._supersede, self._end, self._finish, self._send_away)
        self.greeting, self.quotas, self.entrance, self.access_admin = letting_in(
            self, engine, self.access, _fold(engine, IdentityFold), self.access_policy, logins, ends, call_later,
            random,
        )  # fmt: skip
        self.session_list = SessionList(engine, sessions, self._send_away)

    def _schedule_and_queue(
        self, run_blocking: RunBlocking, call_later: CallLater | None, random: Callable[[int], bytes]
    ) -> None:
        """Make what takes messages for later and lets them go, and what has queues."""
        self.queues = queueing(
            self.engine, self.settings, _fold(self.engine, QueuesFold), self.groups, self.consuming, self.stepwise,
            self.accounts, call_later, random,
        )  # fmt: skip
        removals, timeouts = self.queues.takes.removals, self.queues.timeouts
        self.scheduling = Scheduling(self.engine, self.settings, self.stepwise)
        schedule = self.scheduling.schedule
        schedule.on_placed, timeouts.session_of = self.latencies.placed, self.sessions.get
        self.delaying = delaying(
            self.engine, self.settings, self.queues, self.scheduling, self.consuming, self.transacting.new_session,
        )  # fmt: skip
        self.schedule_passes, self.removal_passes, timeout_passes, delay_passes = self.passes = passes_of(
            {
                "placing what is due": schedule, "ending messages of queues": removals,
                "returning late ones": timeouts, "scheduling what came to delayed exchanges": self.delaying,
            },
            self.engine, run_blocking, call_later, self._failed,
        )  # fmt: skip
        """What the broker does by itself; it is to be woken at the start, and stopped."""
        removals.wake, removals.remind = self.removal_passes.wake, self.removal_passes.remind
        timeouts.remind, self.delaying.wake = timeout_passes.remind, delay_passes.wake

    def _idle_groups(self) -> IdleGroups:
        grace = self.settings.reconnect_grace + self.settings.rejoin_timeout
        return IdleGroups(
            self.engine, self.groups, self.settings.group_expiry, grace, self.coordinator.count_members,
            self.fetching.read_groups, self.coordinator.end,
        )  # fmt: skip

    def _tell_each_other(self) -> None:
        """Let each module know what it needs of those that are made after it."""
        coordinator = self.coordinator
        coordinator.on_failure = self._failed
        self.dead_letters.settle = self.consuming.settle
        self.fetching.on_read = self.latencies.read
        self.fetching.filtering.settle = self.consuming.settle
        self.consuming.catch_up = self.fetching.filtering.catch_up
        self.consuming.filter_begins = self.fetching.filtering.begins
        self.dead_letters.on_topic = coordinator.topic_changed
        self.dead_letters.on_failure = self._failed
        self.consuming.count_members = coordinator.count_members
        self.consuming.end_memberships = coordinator.end
        self.describing.on_changed = self.fetching.look_again
        self.describing.on_topic = self._topic_changed
        self.describing.bound_for = self.scheduling.schedule.bound_for
        self.describing.status = partial(status_of, self)
        self.describing.judge_topic = self.quotas.judge_topic
        self.sending.judge_producer = self.quotas.judge_producer
        self.transacting.content.judge_prepare = self.quotas.judge_prepare
        self.fetching.gave = self.scheduling.gave = self.quotas.gave
        self.sending.judge_scheduled = self.transacting.content.judge_scheduled = self.scheduling.judge
        self.transacting.content.judge_cancels = self.scheduling.taken_back
        tell_of(self.queues, self.sending, self.transacting.content, self.dead_letters)
        self.queues.takes.giving.gave, self.queues.is_open = self.quotas.gave, self.sessions.__contains__
        self.engine.on_published = self._published
        self.engine.on_idle = self._idle

    def _make_handlers(self) -> dict[type, Handler]:
        transacting, consuming, describing = self.transacting, self.consuming, self.describing
        handlers: dict[type, Handler] = {
            **PLAIN_ANSWERS,
            Send: self.sending.send,
            OpenProducer: self.sending.open_producer,
            Fetch: self.fetching.fetch,
            Cancel: self._cancel,
            OffsetsForTime: TimeOffsets(self.engine, self.stepwise).find,
            FindMessages: MessageSearch(self.engine, self.stepwise).find,
            Add: transacting.add,
            AddOffsets: transacting.add_offsets,
            Prepare: transacting.prepare,
            Commit: transacting.commit,
            Rollback: transacting.rollback,
            AskOutcome: transacting.ask,
            Forget: transacting.forget,
            **consuming.handlers,
            **describing.handlers,
            **self.scheduling.handlers,
            **self.queues.handlers,
            **self.coordinator.handlers,
            DescribeGroup: GroupDescription(
                self.engine, consuming, self.groups, self.coordinator, self.stepwise
            ).describe,
            **ParkedOffsets(self.engine, self.groups, consuming.settle).handlers,
            **self.delivering.handlers,
            **self.pinning.handlers,
            **self.session_list.handlers,
            **self.access_admin.handlers,
            Disconnected: self._disconnect,
        }
        return handlers | {
            Timed: Timing(self.engine, handlers).carry_out,
            Hello: self.entrance.take,
            Login: self.entrance.take,
        }

    # -- sessions ---------------------------------------------------------------------------------

    def opened(
        self,
        peer: str,
        deliver: Callable[[bytes], None],
        close: Callable[[str], None],
        learn: Callable[[], ConnectionFacts] | None = None,
    ) -> Session:
        """Take a connection. It has a session, with a number, once its client has logged in. ``deliver`` takes bytes
        of answers, ``close`` ends it after those for a reason, ``learn`` finds out what is known of it.
        """
        found = learn or partial(ConnectionFacts, address=peer)
        session = Session(self.greeting.new_secret(), peer, deliver, close, self.engine.now(), found)
        session.on_drained = self.queues.drains(self.fetching.drained)
        return session

    def closed(self, session: Session) -> None:
        """End a session whose connection is gone: roll back its active transactions after its waiting requests."""
        if session.step(SessionInput.DISCONNECT) is SessionAction.END:
            self._end(session)

    def _end(self, session: Session) -> None:
        self.entrance.forget(session)
        self.fetching.forget(session)
        self.queues.takes.stop_waiting(session)
        self.pinning.forget(session)
        self.coordinator.forget(session)
        if session.parked or self.engine.busy:
            self.parked_requests.park(session, Disconnected(), _NO_DATA)
        else:
            self._carry_out(session, Disconnected(), _NO_DATA)

    def _disconnect(self, session: Session, command: Disconnected, data: memoryview) -> None:  # noqa: ARG002
        if session.last_serial:
            self._transactions.disconnect(session.number)
        self.queues.takes.returns.forget(session)
        self.queues.session_ended(session)
        self.sessions.pop(session.number, None)

    def _supersede(self, session: Session) -> None:
        """End a session whose client continues on another one: its unjudged requests must not follow that one's."""
        self.parked_requests.drop(session)
        self._finish(session, "its client has connected anew")

    def _finish(self, session: Session, reason: str) -> None:
        """End a session for a reason that is not its peer's: the connection is closed behind the answers."""
        if session.step(SessionInput.DISCONNECT) is SessionAction.END:
            session.close(reason)
            self._end(session)

    def _send_away(self, session: Session, reason: str) -> None:
        """End a session, and tell its client why, and that it may connect again."""
        session.deliver(encode(GoingAway(0, reason, COME_AGAIN)))
        self._finish(session, reason)

    # -- requests ---------------------------------------------------------------------------------

    def received(self, session: Session, command: AnyRequest, data: memoryview) -> None:
        """Take a request with its data, valid for good. Answers come through the session's ``deliver``."""
        kind = type(command)
        if session.state is not OPEN:
            self.entrance.take(session, command, data)
            return
        if kind is Commit and self._with_files and self._proving.takes(session, command, data):
            return
        waits = self._line or self._large_commits.current is not None
        if waits and self.parked_requests.must_wait(session, command, len(data)):
            self.parked_requests.park(session, command, data)
            return
        if len(data) >= LARGE and self.parked_requests.holds_back(session, command, data):
            return
        try:
            if waits:
                self._let_pass(session, command, data)
            else:
                self._carry_out(session, command, data)
        except MemoryExhausted:
            self.parked_requests.short_of_memory(session, command, data)

    def _let_pass(self, session: Session, command: Any, data: memoryview) -> None:
        """Carry out a request while others wait."""
        self.engine.passing = True
        try:
            self._carry_out(session, command, data)
        finally:
            self.engine.passing = False

    def _carry_out(self, session: Session, command: Any, data: memoryview) -> None:
        """Judge, decide, and answer when it is forced; raises ``MemoryExhausted`` if it must be tried again."""
        try:
            if session.rights is not None and type(command) is not Disconnected:
                judge_rights(session.rights, command)
            answer = self._handlers[type(command)](session, command, data)
            if answer is None:
                return
            encoded = encode(answer)
            if len(encoded) > MAX_ANSWER_HEAD:
                encoded = encode_bounded(answer)
        except MemoryExhausted:
            raise
        except TxBrokerError as error:
            if self.engine.failed and not isinstance(error, JournalPoisoned):
                # A fold raised it, so the record is queued: a refusal would be false.
                self._broke(session, command, error)
                return
            encoded = self._refused(session, command, error)
        except OSError as error:
            if self.engine.failed:
                self._broke(session, command, error)
                return
            # The disk failed while a request was judged: nothing has changed, and no other request is affected.
            self.log.error("{command}: reading failed: {error}", command=type(command).__name__, error=error)
            encoded = encode(refusal(command.correlation, unreadable(error)))
        except Exception as error:  # noqa: BLE001  (see the module's docstring)
            self._broke(session, command, error)
            return
        self._deliver(session, encoded)
        if type(command) in self.latencies.wanted:
            self.latencies.measure(type(command))

    def _refused(self, session: Session, command: Any, error: TxBrokerError) -> bytes:
        """Return the answer for an error, and tell who wants to know of it."""
        if isinstance(error, AccessDenied):
            self.on_denied(session, error)
        if self.tells_refusals:  # 12 µs each, also if nobody reads them
            self.log.debug(
                "refused {kind}, request {session}-{number} of {client!r} ({peer}): {error}",
                kind=type(command).__name__, session=session.number, number=command.correlation,
                client=session.client, peer=session.peer, error=f"{type(error).__name__}: {error}",
            )  # fmt: skip
        return encode(refusal(command.correlation, error))

    def _deliver(self, session: Session, encoded: bytes) -> None:
        """Deliver an answer once everything that has been accepted is forced."""
        if len(encoded) <= SMALL:
            self._when_forced(session.deliver, encoded)
        else:
            self.accounts.put(session, encoded)

    def _give_up(self, session: Session, command: Any, error: MemoryExhausted) -> None:
        """Refuse a request because there is no memory even after flushing; its transaction cannot continue."""
        if isinstance(command, Add | AddOffsets | Prepare | Commit):
            self.transacting.gave_up(session, command, error)
        self._when_forced(session.deliver, encode(refusal(command.correlation, error)))

    def _broke(self, session: Session, command: Any, error: Exception) -> None:
        """Handle a bug; the module's docstring says what it costs."""
        kind = command if isinstance(command, str) else type(command).__name__
        self.log.failure(
            "{command} of {peer} ({client!r}) broke the broker",
            command=kind, peer=session.peer, client=session.client,
        )  # fmt: skip
        if self.engine.failed:
            self._failed(f"{kind} of {session.peer}", error)
            return
        self._finish(session, f"{kind} broke the broker; see its log")

    def _failed(self, doing: str, error: BaseException) -> None:
        if self.on_failure is not None:
            self.on_failure(doing, error)

    def _cancel(self, session: Session, command: Cancel, data: memoryview) -> None:
        self.fetching.cancel(session, command, data)
        self.queues.takes.cancel(session, command.fetch)

    def _idle(self) -> None:
        self.stepwise.idle()  # first: it is little, and what is parked may be the next large commit
        self.parked_requests.move()

    def _published(self, stores: list[MessageStore]) -> None:
        self.fetching.published(stores)
        if internal := [store for store in stores if store.internal]:
            self.queues.takes.published(internal)
            self.delaying.published(internal)
            if any(store.topic == SCHEDULE_TOPIC for store in internal):
                self.schedule_passes.wake()

    def _topic_changed(self, name: str) -> None:
        self.coordinator.topic_changed(name)
        if self.scheduling.schedule.fold.targets:  # some may be gone
            self.schedule_passes.wake()

    # -- time passes ------------------------------------------------------------------------------

    def expire_transactions(self, now: int) -> None:
        """Roll back transactions that were active for too long, apply the orphan policy, evict outcomes. Every second
        or so.
        """
        if self.engine.busy:
            return
        self._transactions.expire(now, self.settings.transaction_timeout)
        if self.orphans.treat(now):
            self._transactions.trim(min(self.sessions, default=self.transacting.next_session))

    def answer_waiting(self) -> None:
        """Answer the fetches that wait for messages, because the broker is stopping."""
        self.queues.takes.returns.is_stopping = True
        self.fetching.answer_all(self.sessions.values())


def _fold(engine: Engine, kind: type[Any]) -> Any:
    found = next((fold for fold in engine.folds if isinstance(fold, kind)), None)
    if found is None:
        raise AssertionError(f"the engine was recovered without a {kind.__name__}")
    return found
