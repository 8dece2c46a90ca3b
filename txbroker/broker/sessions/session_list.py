"""The list of sessions, for operators, and the end of one that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from txbroker.broker.sessions.session import Session, unheard
from txbroker.broker.sessions.settings import SECOND
from txbroker.errors import InvalidSetting, UnknownSession
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    MAX_SESSIONS_LISTED,
    CloseSession,
    Done,
    ListSessions,
    Request,
    SessionInfo,
    Sessions,
)
from txbroker.wire.refusals import check_text

if TYPE_CHECKING:
    from journal.engine.engine import Engine

COME_AGAIN: Final = SECOND
"""µs after which a client that was told that the broker goes, or that its session was closed, connects again: by then a
broker is back that was only restarted.
"""


class SessionList:
    """The meaning of ListSessions and CloseSession. Neither waits for a force: an operator needs them when the disk
    hangs, too. ``sessions`` are those that go on, by number; ``end`` ends one whose peer was told why.
    """

    log = Logger()

    def __init__(
        self, engine: Engine, sessions: Mapping[int, Session], end: Callable[[Session, str], None]
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._end = end
        self.on_closed: Callable[[Session, Session, str], object] = unheard
        """Called with the session that asked, the one that was closed, and why."""
        self.handlers: dict[type[Request], Any] = {ListSessions: self.list, CloseSession: self.close}
        """The requests, each with its meaning."""

    def list(self, session: Session, command: ListSessions, data: memoryview) -> None:  # noqa: ARG002
        """Answer with the open sessions, by their numbers."""
        wanted = (each for number, each in self._sessions.items() if number > command.after and each.is_open)
        found = list(islice(wanted, MAX_SESSIONS_LISTED + 1))
        told = [self._info(each) for each in found[:MAX_SESSIONS_LISTED]]
        session.deliver(encode(Sessions(command.correlation, told, len(found) > MAX_SESSIONS_LISTED)))

    def _info(self, session: Session) -> SessionInfo:
        return SessionInfo(
            session.number,
            session.client,
            session.principal,
            session.peer,
            self._engine.now() - session.opened_at,
            session.held,
            session.unsent(),
            session.parked,
            len(session.fetches),
            len(session.members),
        )

    def close(self, session: Session, command: CloseSession, data: memoryview) -> None:  # noqa: ARG002
        """End another session, and answer at once."""
        check_text("by", command.by)
        check_text("why", command.why)
        other = self._sessions.get(command.session)
        if other is None or not other.is_open:
            raise UnknownSession(
                f"there is no session {command.session} (any more); nothing was done. 'txbroker sessions list' has "
                "those that there are"
            )
        if other is session:
            raise InvalidSetting(
                f"session {command.session} is the one that asks; nothing was done. Close its connection instead"
            )
        by = command.by or session.client or session.peer
        self.log.warn(
            "session {number} of {client!r} ({peer}) is closed by {by}: {why}",
            number=other.number, client=other.client, peer=other.peer, by=by, why=command.why,
        )  # fmt: skip
        self.on_closed(session, other, command.why)
        reason = f"the session was closed by {by}" + (f": {command.why}" if command.why else "")
        self._end(other, reason)
        session.deliver(encode(Done(command.correlation)))
