"""The requests of one AMQP connection to the broker, which are those of its own protocol, and their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from journal.constants import MAX_REQUEST_DATA
from journal.records.access_entries import Resource, Right
from txbroker.amqp.reply_codes import AmqpError
from txbroker.broker.sessions.rights import has_right
from txbroker.channels.refusals import access_refused, amqp_error
from txbroker.channels.virtual_hosts import ROOT
from txbroker.wire.codec import answer_decoder
from txbroker.wire.messages import Refused, Request

if TYPE_CHECKING:
    from txbroker.broker.broker import Broker
    from txbroker.broker.sessions.session import Session

Then = Callable[[Any, memoryview], None]
Refusal = Callable[[Refused], None]


class Requests:
    """Sends requests of a session, and calls back with what answers them: ``then(answer, data)``, or
    ``refused(refusal)``.
    """

    def __init__(
        self, broker: Broker, told: Callable[[Any], None], failed: Callable[[AmqpError], None]
    ) -> None:
        """``told`` takes what answers nothing, ``failed`` a refusal that nobody waits for."""
        self._broker, self._told, self._failed = broker, told, failed
        self.session: Session
        self.host = ROOT
        """The virtual host of its client."""
        self._decoder = answer_decoder(MAX_REQUEST_DATA * 2)
        self._last = 0
        self._waiting: dict[int, tuple[Then, Refusal]] = {}

    def ask(
        self,
        kind: Callable[..., Request],
        *fields: Any,
        then: Then,
        refused: Refusal | None = None,
        data: bytes = b"",
        **named: Any,
    ) -> int:
        """Send a request, and return its number. Its answer may have come before this returns."""
        self._last = number = self._last + 1
        self._waiting[number] = then, refused or self._refused
        self._broker.received(self.session, kind(number, *fields, **named), memoryview(data))  # type: ignore[arg-type]
        return number

    def tell(self, kind: Callable[..., Request], *fields: Any, **named: Any) -> None:
        """Send a request that has no answer."""
        self._last = number = self._last + 1
        self._broker.received(self.session, kind(number, *fields, **named), memoryview(b""))  # type: ignore[arg-type]

    def check(self, right: Right, resource: Resource, name: str) -> None:
        """Raise AmqpError, ACCESS_REFUSED, unless the session has a right on what has that name.

        It is asked before anything is said of it, even that there is no such thing: the broker judges the request
        itself once more.
        """
        session = self.session
        if not has_right(session.rights, right, resource, name):
            raise access_refused(right, resource, name, session.principal, self.host)

    def _refused(self, refused: Refused) -> None:
        self._failed(amqp_error(refused, self.host))

    def answered(self, encoded: bytes) -> None:
        """Take an answer of the broker."""
        for answer, data in self._decoder.feed(encoded):
            then, refused = self._waiting.pop(answer.correlation, (None, None))
            if isinstance(answer, Refused):
                if refused is not None:
                    refused(answer)
                else:
                    self._told(answer)
            elif then is not None:
                then(answer, data)
            else:
                self._told(answer)
