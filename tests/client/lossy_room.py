"""The broker itself, in memory, for a rig: it loses answers, with the connection."""

from __future__ import annotations

from tests.support.broker_room import Room
from txbroker.wire.codec import request_decoder


class LossyRoom:
    """A broker for a rig. The answer to the first request of the kind ``lose`` is lost, with the connection."""

    def __init__(self, **settings) -> None:
        self.room = Room(**settings)
        self.session = 0
        self.lose: type | None = None
        self._sessions = {}

    def connection(self):
        answers: list[bytes] = []
        decoder = request_decoder(1 << 26)
        session = self.room.broker.opened("client:1", answers.append, lambda why: None)
        self.session = session.number
        self._sessions[session.number] = session

        def feed(data: bytes) -> bytes:
            for head, body in decoder.feed(data):
                self.room.broker.received(session, head, body)
                self.room.engine.sync()
                if type(head) is self.lose:
                    self.lose = None
                    answers.clear()
            given = b"".join(answers)
            answers.clear()
            return given

        return feed

    def disconnected(self, session: int) -> None:
        self.room.broker.closed(self._sessions.pop(session))
        self.room.engine.sync()


def lost(rig, broker, kind, operation):
    """Start an operation whose request of that kind is carried out and not answered."""
    broker.lose = kind
    promise = rig.start(operation)
    assert not promise.done
    assert broker.lose is None, "it was not sent"
    rig.cut()
    return promise
