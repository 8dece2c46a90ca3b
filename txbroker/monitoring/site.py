"""The HTTP listener for those who watch: ``/livez``, ``/readyz`` and ``/metrics``, answered by Twisted's own server.

It is open before recovery begins, so that a start that takes minutes can be told from one that hangs. Whoever reaches
the endpoint may come: requests have no body, heads and connections are bounded, and what goes to a peer that does not
read waits as a generator, not as bytes.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from twisted.internet.interfaces import IAddress, IDelayedCall, IPushProducer, IReactorTime
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site
from zope.interface import implementer

from txbroker.monitoring.exposition import CONTENT_TYPE
from txbroker.monitoring.health import Health
from txbroker.monitoring.management import Management

MAX_CONNECTIONS: Final = 64
"""Connections of one endpoint at a time; one more is closed at once. A Prometheus has one, a probe for a moment."""

PATIENCE: Final = 10
"""Seconds for which a connection may be silent, or a peer may not read."""

LIFETIME: Final = 60
"""Seconds that a connection lasts at most, whatever its peer does: each is for one request."""

PIECE: Final = 16 << 10
"""Bytes that are made in one turn of the reactor, about."""


class Bounded(ProtocolWrapper):
    """A connection that ends after :data:`LIFETIME` seconds."""

    def makeConnection(self, transport: Any) -> None:
        """Begin."""
        super().makeConnection(transport)  # type: ignore[no-untyped-call]
        factory = cast(Listener, self.factory)
        self._over = factory.clock.callLater(LIFETIME, self._is_over)

    def connectionLost(self, reason: Any = None) -> None:
        """End."""
        if self._over.active():
            self._over.cancel()
        super().connectionLost(reason)  # type: ignore[no-untyped-call]

    def _is_over(self) -> None:
        cast(Any, self.transport).abortConnection()


class Listener(WrappingFactory):
    """The factory of the connections to one endpoint; a connection too many is closed at once."""

    noisy = False
    protocol = Bounded

    def __init__(self, root: Resource, clock: IReactorTime) -> None:
        self.clock = clock
        site: Any = Site(root, requestFactory=BodylessRequest, timeout=PATIENCE)
        site.displayTracebacks = site.noisy = False
        site.log = _no_access_log
        super().__init__(site)  # type: ignore[no-untyped-call]

    def buildProtocol(self, addr: IAddress | None) -> ProtocolWrapper:
        """Make the protocol of a connection."""
        if len(self.protocols) >= MAX_CONNECTIONS:
            return cast(ProtocolWrapper, None)  # which Twisted takes, though its types do not say so
        return super().buildProtocol(addr)

    def close(self) -> None:
        """Close all connections at once."""
        for connection in list(self.protocols):
            connection.transport.abortConnection()


def _no_access_log(request: Request) -> None:
    """Write nothing: a probe comes every second."""


class BodylessRequest(Request):
    """The only request of its connection, without a body: when one is announced, that is refused before it is read.

    Twisted answers all requests that come in one read in one turn: a thousand of them would hold up everybody else.
    """

    def gotLength(self, length: int | None) -> None:
        """Take the length of the body that was announced; None if it comes in pieces."""
        super().gotLength(0)  # type: ignore[no-untyped-call]
        self.channel.persistent = False
        self.responseHeaders.setRawHeaders(b"connection", [b"close"])
        if length is None or length > 0:
            cast(Any, self.channel.transport).write(
                b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
            self.channel.loseConnection()


class Answer(Resource):
    """A page that is one line of text, with its status."""

    isLeaf = True

    def __init__(self, answer: Callable[[], tuple[int, str]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._answer = answer

    def render_GET(self, request: Request) -> bytes:
        """Answer GET."""
        return self._begun(request)

    def render_HEAD(self, request: Request) -> bytes:
        """Answer HEAD: Twisted's own warns in the log, each time, of a GET that returns a body."""
        body = self._begun(request)
        request.setHeader(b"content-length", str(len(body)).encode())
        return b""

    def _begun(self, request: Request) -> bytes:
        """Set status and header; return the body."""
        status, text = self._answer()
        request.setResponseCode(status)
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        request.setHeader(b"cache-control", b"no-store")
        return f"{text}\n".encode()


class Made(Resource):
    """A page that is made while the peer reads it: ``make()`` returns its status and its pieces."""

    isLeaf = True

    def __init__(self, kind: str, make: Callable[[], tuple[int, Iterator[str]]], clock: IReactorTime) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kind, self._make, self._clock = kind, make, clock

    def render_GET(self, request: Request) -> int:
        """Begin an answer that goes on in further turns."""
        Pieces(request, self._begun(request), self._clock).begin()
        return NOT_DONE_YET

    def render_HEAD(self, request: Request) -> bytes:
        """Answer without making the page."""
        self._begun(request)
        return b""

    def _begun(self, request: Request) -> Iterator[str]:
        """Set status and headers; return the pieces."""
        status, pieces = self._make()
        request.setResponseCode(status)
        request.setHeader(b"content-type", self._kind.encode())
        request.setHeader(b"cache-control", b"no-store")
        return pieces


@implementer(IPushProducer)
class Pieces:
    """The pieces of a page, one in a turn of the reactor, while the peer takes them. One that takes none for
    :data:`PATIENCE` seconds loses its connection.
    """

    def __init__(self, request: Request, lines: Iterator[str], clock: IReactorTime) -> None:
        self._request = request
        self._lines = lines
        self._clock = clock
        self._next: IDelayedCall | None = None
        self._late = clock.callLater(PATIENCE, self._is_late)

    def begin(self) -> None:
        """Begin to send."""
        self._request.registerProducer(self, True)
        self.resumeProducing()

    def resumeProducing(self) -> None:
        """Go on: the peer has read."""
        if self._next is None and self._late.active():
            self._late.reset(PATIENCE)
            self._next = self._clock.callLater(0, self._make)

    def pauseProducing(self) -> None:
        """Make nothing until the peer has read."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def stopProducing(self) -> None:
        """Make no more: the peer is gone."""
        self.pauseProducing()
        if self._late.active():
            self._late.cancel()

    def _make(self) -> None:
        """Make the next piece and send it."""
        self._next = None
        made, size, is_all = list[str](), 0, True
        for line in self._lines:
            made.append(line)
            size += len(line)
            if not line or size >= PIECE:
                is_all = False  # others are served first
                break
        if is_all:
            self.stopProducing()
            self._request.unregisterProducer()
            self._request.write("".join(made).encode())
            self._request.finish()
            return
        self.resumeProducing()
        self._request.write("".join(made).encode())  # may have it paused

    def _is_late(self) -> None:
        cast(Any, self._request.transport).abortConnection()


class Pages(Resource):
    """The pages: metrics, and what RabbitMQ's management API says of queues, for who shows the token, if there is one.
    ``/livez`` and ``/readyz`` say nothing that is secret, and probes cannot show one.
    """

    def __init__(
        self,
        health: Health,
        families: Callable[[], Iterator[str]],
        management: Management,
        clock: IReactorTime,
        token: bytes = b"",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.token = token
        self._management, self._clock = management, clock
        self._pages = {
            b"livez": Answer(lambda: (200, "alive")),
            b"readyz": Answer(lambda: (200 if health.is_ready else 503, health.sentence)),
            b"metrics": Made(CONTENT_TYPE, lambda: (200, families()), clock),
        }

    def getChild(self, path: bytes, request: Request) -> Resource:
        """Return a page by its name."""
        parts = [each.decode(errors="replace") for each in request.postpath or ()]
        page = self._pages.get(path) if path != b"api" else self._api(parts)
        if page is None or (parts and path != b"api"):
            return Answer(lambda: (404, "there are /livez, /readyz, /metrics, /api/overview and /api/queues"))
        if path in (b"metrics", b"api") and self.token and not self._is_shown(request):
            return _refusal(request)
        return page

    def _api(self, parts: list[str]) -> Resource:
        return Made("application/json", lambda: self._management.answer(parts), self._clock)

    def _is_shown(self, request: Request) -> bool:
        """Return whether the token is shown: as such, or as the password of any user, as RabbitMQ's watchers can."""
        shown = request.getHeader(b"authorization") or b""
        kind, _, token = shown.partition(b" ")
        if kind.lower() == b"basic":
            token = request.getPassword()
        elif kind.lower() != b"bearer":
            return False
        return hmac.compare_digest(token.strip(), self.token)


def _refusal(request: Request) -> Resource:
    request.setHeader(b"www-authenticate", b'Bearer realm="txbroker"')
    return Answer(
        lambda: (401, "this page is for who shows the token (http_token_file), as a bearer or as a password")
    )
