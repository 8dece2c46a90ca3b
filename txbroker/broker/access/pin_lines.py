"""The audit's lines of pins: who has read the files of the data directory, beside the broker, and to which end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txbroker.broker.access.audit import AuditTrail, time_of
from txbroker.broker.sessions.settings import SECOND

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from txbroker.broker.fetches.file_pins import Taken
    from txbroker.broker.sessions.session import Session


class PinLines:
    """Tells pins to an audit trail: a backup takes one, and so does an audit on Spark.

    Pins are no records: what waits of their lines is lost in a crash, and a pin that a crash has ended has no second
    line.
    """

    def __init__(self, trail: AuditTrail, engine: Engine) -> None:
        self._trail = trail
        self._engine = engine

    def pinned(self, session: Session, taken: Taken) -> None:
        """Say that files are kept for a session, which may read them."""
        self._put("files.pinned", session, taken, {"checkpoint_lsn": taken.pin.lsn})

    def released(self, session: Session, taken: Taken, is_asked: bool) -> None:
        """Say that they are kept no longer: whether the session asked for that, and whether all had been kept."""
        seconds = round((self._engine.now() - taken.at) / SECOND, 3)
        more = {"kept": taken.pin.held, "ended": "asked" if is_asked else "session ended", "seconds": seconds}
        self._put("files.released", session, taken, more)

    def _put(self, what: str, session: Session, taken: Taken, more: dict[str, Any]) -> None:
        now = self._engine.now() + self._engine.wall_offset
        who = {"principal": session.principal, "by": session.client, "address": session.peer}
        self._trail.put({"time": time_of(now), "what": what, **who, "cut": taken.cut, **more})
