"""The audit: what is said of administration, of forced decisions, of logins and of refusals, line by line.

Administration and forced decisions are records of the journal. Their lines are made of the records alone, once these
are forced, in the order of their LSNs: so a line that a crash has prevented comes after the next start, from the replay
of the journal, and is the same. :class:`RecordLines` sees the records in both. What stands between a record and its
line, and what happens if the broker dies there:

======================================  ==========================================================================
the record is not forced                it never was: the start may find it or not; if it does, the line comes then
it is forced, the line in the queue     the start finds the record above the last line of the file, and tells it
a part of the line is written           that part becomes a line that says nothing, and the whole line comes behind it
the line is written, not forced         it is there, or the case is one of those before
the line is forced                      the start reads its LSN at the end of the file, and tells what is above it
a checkpoint is above the lines         the files of the journal that are still there are read for what is missing
                                        below the checkpoint; what they do not reach back to is named in a line
======================================  ==========================================================================

So that the last case is rare, each checkpoint is followed by a line that says up to where all has been told. Logins,
refusals and closed sessions are no records: a crash loses what waits of them.

No line has a secret: no verifier of a password, no key, no token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from twisted.logger import Logger
from zope.interface import implementer

from journal.interfaces import IObserver
from journal.parties import Actor, parts_of, parts_of_actor
from journal.records.access_entries import User
from journal.records.record import (
    AccessSet,
    AnyRecord,
    CoordinatorTold,
    GroupAltered,
    GroupDeleted,
    LogStartMoved,
    RuleSet,
    Started,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TransactionCommitted,
    TransactionRolledBack,
    TransactionsForgotten,
    UserRemoved,
    UserSet,
    WallClockTold,
)
from journal.records.transient import is_unwritten
from journal.transaction_states import Cause, State, TransactionNumber
from journal.wal.reader import JournalEntry
from journal.walks.findings import Finding
from journal.walks.journal_walk import surveyed, walk_journal
from txbroker.broker.access.queue_lines import QUEUE_RECORDS, told_of_queues
from txbroker.broker.sessions.settings import SECOND

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from txbroker.broker.sessions.session import Session
    from txbroker.errors import AccessDenied

Line = dict[str, Any]

FORCED: Final = frozenset({Cause.OPERATOR, Cause.ORPHAN_POLICY})
"""Why a prepared transaction ended without its coordinator."""

IN_A_STEP: Final = 500
"""Lines that a start tells before it writes them."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AuditTrail(Protocol):
    """Takes lines; never waits and never raises."""

    def put(self, line: Line, lsn: int = 0) -> None:
        """Write a line soon. ``lsn``: with it everything has been told up to there; 0 if it tells no record."""

    def settle(self) -> None:
        """Write what was put so far, before anything else is put; only while nothing else runs."""


def time_of(wall: int) -> str:
    """Return µs since 1970 UTC in ISO 8601."""
    return (_EPOCH + timedelta(microseconds=wall)).isoformat(timespec="microseconds")


# -- records ------------------------------------------------------------------------------------


@implementer(IObserver)
class RecordLines:
    """Tells records to an audit trail once they are forced, each once.

    ``known()`` returns the LSN up to which the trail has been told everything, 0 if nothing is known of that, None if
    it cannot be known. It is asked when the directory is locked.
    """

    log = Logger()
    name = "audit"
    handles: tuple[type, ...] = (
        Started, UserSet, UserRemoved, RuleSet, AccessSet, TopicCreated, TopicAltered, TopicDeleted, LogStartMoved,
        GroupAltered, GroupDeleted, TransactionCommitted, TransactionRolledBack, TransactionsForgotten, CoordinatorTold,
        WallClockTold, *QUEUE_RECORDS,
    )  # fmt: skip

    def __init__(self, trail: AuditTrail, known: Callable[[], int | None]) -> None:
        self._trail = trail
        self._ask = known
        self._known: int | None = 0
        self._engine: Engine
        self._pending: deque[tuple[int, Line]] = deque()
        self._replayed: list[tuple[int, Line]] = []
        self._has_begun = False
        self._checkpoint = self._start = 0
        self.failures = 0
        """Records of which no line could be made."""

    def observes(self, engine: Engine) -> None:
        """Note the engine, and ask what has been told."""
        self._engine = engine
        self._known = self._ask()

    def apply(self, lsn: int, record: AnyRecord, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Make the line of a record, to be told when it is forced. One that the journal gets nothing of has no LSN, and
        is told when it is shown.
        """
        if (queues := self._engine.catalog.transient) and is_unwritten(record, queues):
            if (line := self._line(0, record, self._engine.wall_offset)) is not None:
                line.pop("lsn")
                self._engine.when_forced(self._trail.put, line)
            return
        is_replayed = lsn <= self._engine.forced_lsn
        if not self._start and not is_replayed:
            self._start = lsn
        if is_replayed and lsn <= (self._known or 0):
            return
        line = self._line(lsn, record, self._engine.wall_offset)
        if line is None:
            return
        if is_replayed:
            self._replayed.append((lsn, line))
        else:
            self._pending.append((lsn, line))
            self._engine.when_forced(self._forced, None)

    def _line(self, lsn: int, record: Any, wall_offset: int | None) -> Line | None:
        try:
            return line_of(lsn, record, wall_offset, self._engine)
        except Exception:  # noqa: BLE001  (the audit stops nothing)
            self.failures += 1
            self.log.failure("no line of the audit could be made of LSN {lsn}", lsn=lsn)
            return {"time": None, "what": type(record).__name__, "lsn": lsn}

    def _forced(self, _: object) -> None:
        """Tell what is forced. A large commit may have held this back, so it tells later records as well."""
        pending, forced = self._pending, self._engine.forced_lsn
        while self._has_begun and pending and pending[0][0] <= forced:
            lsn, line = pending.popleft()
            self._trail.put(line, lsn)

    def begin(self) -> None:
        """Tell what the start has found, once it is through: what lies below its checkpoint, what it has replayed,
        and the start itself. Nothing else runs yet.
        """
        for count, (lsn, line) in enumerate(chain(self._missed(), self._replayed), 1):
            self._trail.put(line, lsn)
            if count % IN_A_STEP == 0:
                self._trail.settle()
        self._replayed.clear()
        self._has_begun = True
        self._forced(None)
        self._trail.settle()

    def _missed(self) -> Iterator[tuple[int, Line]]:
        """Yield what was not told of what is in the newest checkpoint, as far as the journal has it."""
        known, engine = self._known, self._engine
        checkpoint = engine.housekeeping.checkpoint_lsn
        if known is None:
            return
        if known >= self._start:
            text = f"the data are of an earlier moment, LSN {self._start}, than this audit, LSN {known}"
            yield 0, self._note("audit.older_data", text)
            return
        files = surveyed(engine.filesystem)
        reaches = next((file.header.previous_end for file in files if file.header is not None), 1)
        if known == 0:
            text = "nothing is known of what was told before; this begins with what the journal still has"
            yield 0, self._note("audit.begun", text) | {"from_lsn": max(reaches, 1)}
        elif reaches > known + 1 and known < checkpoint:
            text = "the journal does not reach back to what was told last: records in between are not told"
            yield 0, self._note("audit.gap", text) | {"from_lsn": known + 1, "to_lsn": reaches - 1}
        if known < checkpoint:
            yield from self._walked(known, checkpoint)

    def _walked(self, known: int, checkpoint: int) -> Iterator[tuple[int, Line]]:
        wall_offset: int | None = None
        for each in walk_journal(self._engine.filesystem):
            if isinstance(each, Finding):
                if not each.harmless:
                    yield 0, self._note("audit.gap", f"{each.path}: {each.problem}")
                continue
            if each.lsn > checkpoint:
                return
            yield from self._of_entry(each, known, wall_offset)
            if isinstance(each.record, Started):
                wall_offset = each.record.wall - each.record.at

    def _of_entry(
        self, entry: JournalEntry, known: int, wall_offset: int | None
    ) -> Iterator[tuple[int, Line]]:
        if entry.lsn > known and isinstance(entry.record, self.handles):
            if isinstance(entry.record, Started):
                wall_offset = entry.record.wall - entry.record.at
            line = self._line(entry.lsn, entry.record, wall_offset)
            if line is not None:
                yield entry.lsn, line

    def _note(self, what: str, text: str) -> Line:
        return {"time": time_of(self._engine.clock.wall()), "what": what, "text": text}

    def look(self) -> None:
        """Say up to where all has been told if there is a new checkpoint; every second or so."""
        checkpoint = self._engine.housekeeping.checkpoint_lsn
        if checkpoint != self._checkpoint and not self._pending:
            self._checkpoint = checkpoint
            self.conclude()

    def conclude(self) -> None:
        """Say up to where all has been told."""
        if not self._pending:
            lsn = self._engine.forced_lsn
            self._trail.put({"time": time_of(self._engine.clock.wall()), "what": "audit.through"}, lsn)


def line_of(lsn: int, record: Any, wall_offset: int | None, engine: Engine) -> Line | None:
    """Return what is said of a record; None if nothing is. Without ``wall_offset`` it is not known when it was."""
    told = _told(record, engine)
    if told is None:
        return None
    what, actor, more = told
    by, principal = parts_of_actor(actor)
    line = {
        "time": None if wall_offset is None else time_of(record.at + wall_offset),
        "what": what,
        "lsn": lsn,
        "principal": principal,
        "by": by,
    }
    if wall_offset is None:
        line["journal_time"] = record.at
    if actor is not None and what not in _NAMED:
        line["address"] = actor.name.rpartition("@")[2]
    return line | more


_NAMED: Final = frozenset({"transaction.forced", "transaction.forgotten", "transaction.coordinator_told"})
"""Where ``by`` is what a person has said, so that no address can be taken from it."""


def _told(record: Any, engine: Engine) -> tuple[str, Actor | None, Line] | None:
    match record:
        case UserSet():
            return "user.set", record.by, _of_user(record.user)
        case UserRemoved():
            return "user.removed", record.by, {"user": record.name}
        case RuleSet():
            rights = [right.value for right in record.rule.rights]
            return "rule.set", record.by, {"rule": str(record.rule), "rights": rights}
        case AccessSet():
            return "access.set", record.by, {"on": record.is_on, "confirmed": record.is_confirmed}
        case WallClockTold() if record.by is not None:
            return "schedule.released", record.by, {}
        case Started():
            return "broker.started", None, {"start": record.start}
        case TransactionCommitted() | TransactionRolledBack() | TransactionsForgotten() | CoordinatorTold():
            return _of_transaction(record, engine)
    return told_of_queues(record) or _of_topic_or_group(record, engine)


def _of_topic_or_group(record: Any, engine: Engine) -> tuple[str, Actor | None, Line] | None:
    match record:
        case TopicCreated() if record.by is not None:
            return "topic.created", record.by, {"topic": record.topic, "partitions": record.partitions}
        case TopicAltered():
            added = 0 if record.added is None else record.added.partitions
            settings = {name: getattr(record.settings, name) for name in record.settings.__struct_fields__}
            return "topic.altered", record.by, {"topic": record.topic, "added": added, "settings": settings}
        case TopicDeleted():
            return "topic.deleted", record.by, {"topic": record.topic}
        case LogStartMoved() if record.by is not None:
            store = engine.catalog.stores.get(record.partition)
            topic = {} if store is None else {"topic": store.topic, "index": store.index}
            more = topic | {"partition": record.partition, "start_offset": record.start_offset}
            return "topic.purged", record.by, more
        case GroupAltered() if record.by is not None:
            return "group.altered", record.by, {"group": record.group}
        case GroupDeleted():
            return "group.deleted", record.by, {"group": record.group}
    return None


def _of_user(user: User) -> Line:
    return {
        "user": user.name,
        "has_password": user.scram is not None,
        "certificates": user.certificates,
        "tokens": [f"{each.issuer} {each.subject}" for each in user.tokens],
        "roles": user.roles,
        "quotas": user.quotas.given(),
    }


def _of_transaction(record: Any, engine: Engine) -> tuple[str, Actor | None, Line] | None:
    match record:
        case TransactionCommitted() | TransactionRolledBack() if record.cause in FORCED:
            outcome = State.COMMITTED if type(record) is TransactionCommitted else State.ROLLED_BACK
            more = _named(record, engine) | {
                "outcome": outcome.name.lower(),
                "cause": record.cause.name.lower(),
            }
            return "transaction.forced", record.by, more | {"why": record.why}
        case TransactionsForgotten() if record.by is not None:
            numbers = [str(TransactionNumber(*number)) for number in record.numbers]
            return "transaction.forgotten", record.by, {"transactions": numbers, "why": record.why}
        case CoordinatorTold():
            more = _named(record, engine) | {"decided": record.decided.name.lower()}
            return "transaction.coordinator_told", record.by, more
    return None


def _named(record: Any, engine: Engine) -> Line:
    """Which transaction it is, and whose, as far as that is still known."""
    number = TransactionNumber(record.session, record.serial)
    outcome = engine.transactions.outcomes.find(number)
    owner, client, address = parts_of(None if outcome is None else outcome.owner)
    return {
        "transaction": str(number),
        "xid": None if outcome is None or outcome.xid is None else str(outcome.xid),
        "owner": owner,
        "client": client,
        "owner_address": address,
    }


# -- encounters ---------------------------------------------------------------------------------

SPAN: Final = 10 * SECOND
"""µs for which what is alike is counted before it is told."""

MOST_KEPT: Final = 256
"""Most different encounters that are counted at a time, of strangers, and of those who have logged in."""

MOST_DETAILS: Final = 5
MAX_TEXT: Final = 255


@dataclass(slots=True)
class _Alike:
    """Encounters of one kind, address and user. ``details`` are the first few different ones."""

    since: int
    until: int
    count: int = 0
    details: dict[str, None] = field(default_factory=dict)


class _Counted:
    """Counts what is alike, in a bounded table; tells at most ``rate`` lines a second, and ``burst`` at once."""

    def __init__(self, rate: int, burst: int) -> None:
        self._rate, self._burst = rate, burst
        self._credit = float(burst)
        self._looked_at: int | None = None
        self._table: dict[tuple[str, str, str], _Alike] = {}
        self.untold = 0

    def note(self, key: tuple[str, str, str], now: int, detail: str) -> None:
        known = self._table.get(key)
        if known is None:
            if len(self._table) >= MOST_KEPT:
                self.untold += 1
                return
            known = self._table[key] = _Alike(now, now)
        known.until = now
        known.count += 1
        if len(known.details) < MOST_DETAILS:
            known.details[detail[:MAX_TEXT]] = None

    def due(self, now: int, is_last: bool) -> Iterator[tuple[tuple[str, str, str], _Alike]]:
        """Take what has been counted for long enough, oldest first, as much as may be told."""
        passed = 0 if self._looked_at is None else max(now - self._looked_at, 0)
        self._looked_at = now
        self._credit = min(float(self._burst), self._credit + self._rate * passed / SECOND)
        for key, alike in list(self._table.items()):
            if self._credit < 1 or (alike.since > now - SPAN and not is_last):
                return
            self._credit -= 1
            del self._table[key]
            yield key, alike


class Encounters:
    """Logins and refusals. What is alike (kind, address, user) within :data:`SPAN` is one line, with how often it was.

    Whoever has not logged in can make it tell one line a second, whatever he does: 20 MB a day. What is not told is
    counted.
    """

    def __init__(self, trail: AuditTrail, engine: Engine) -> None:
        self._trail = trail
        self._engine = engine
        self._summed_up = engine.now()
        self._strangers, self._users = _Counted(1, 60), _Counted(10, 100)

    def logged_in(self, session: Session) -> None:
        """Note that a session has begun, or goes on, with a login."""
        self._users.note(_key("login", session, session.principal), self._engine.now(), session.client)

    def not_logged_in(self, session: Session, user: str, reason: str) -> None:
        """Note that a login was refused; ``user`` is who it was said to be, if that is a name of a user."""
        self._strangers.note(_key("login.refused", session, user), self._engine.now(), reason)

    def denied(self, session: Session, error: AccessDenied) -> None:
        """Note that a request was refused for lack of a right."""
        key = _key("access.denied", session, session.principal)
        self._users.note(key, self._engine.now(), f"{error.right} {error.resource}")

    def closed(self, session: Session, other: Session, why: str) -> None:
        """Say that a session was closed by another one's request."""
        by, principal = parts_of_actor(session.as_actor())
        line = self._line(self._engine.now(), "session.closed") | {"principal": principal, "by": by}
        line |= {
            "address": session.peer,
            "session": other.number,
            "user": other.principal,
            "client": other.client,
        }
        self._trail.put(line | {"user_address": other.peer, "why": why})

    def look(self, is_last: bool = False) -> None:
        """Tell what has been counted; every second or so."""
        now = self._engine.now()
        sums_up = is_last or now - self._summed_up >= SPAN
        if sums_up:
            self._summed_up = now
        for whose, counted in (("strangers", self._strangers), ("users", self._users)):
            for (what, address, user), alike in counted.due(now, is_last):
                line = self._line(alike.until, what) | {"principal": user, "address": address}
                since = time_of(alike.since + self._engine.wall_offset)
                self._trail.put(line | {"count": alike.count, "since": since, "details": list(alike.details)})
            if counted.untold and sums_up:
                self._trail.put(self._line(now, "audit.untold") | {"of": whose, "count": counted.untold})
                counted.untold = 0

    def _line(self, at: int, what: str) -> Line:
        return {"time": time_of(at + self._engine.wall_offset), "what": what}


def _key(what: str, session: Session, user: str) -> tuple[str, str, str]:
    return what, host_of(session.peer), user[:MAX_TEXT]


def host_of(peer: str) -> str:
    """Return a peer's address without its port: it has another one with each connection."""
    return peer.rpartition(":")[0] or peer
