"""Clients that run one transaction after the other, as dialogues for :func:`benchmarks.harness.load.converse`."""

from __future__ import annotations

from benchmarks.harness.peer import Peer, UnexpectedAnswer, expected
from journal.xid import Xid
from txbroker.wire.codec import encode
from txbroker.wire.messages import Commit, Committed, Done, Prepare


class OnePhase:
    """A transaction: one request with its messages, one answer."""

    def __init__(self, peer: Peer, partition: int, frames: bytes) -> None:
        self.socket = peer.socket
        self._peer = peer
        self._partition = partition
        self._frames = frames
        self._serial = 0

    def begin(self) -> bytes:
        seen, self._serial = self._serial, self._serial + 1
        serial = self._serial
        runs = [(self._partition, len(self._frames))]
        return encode(Commit(2 * serial + 1, 0, serial, seen=seen, runs=runs), self._frames)

    def heard(self, data: bytes) -> bytes | None:
        messages = self._peer.decoder.feed(data)
        if not messages:
            return b""
        [(answer, _)] = messages
        if expected(answer, Committed).correlation != 2 * self._serial + 1:
            raise UnexpectedAnswer("an answer to another request")
        return None


class TwoPhase:
    """A transaction of one message: Prepare, its answer, then Commit and its answer."""

    def __init__(self, peer: Peer, partition: int, frames: bytes) -> None:
        self.socket = peer.socket
        self._peer = peer
        self._partition = partition
        self._frames = frames
        self._serial = 0
        self._prepared = False

    def begin(self) -> bytes:
        seen, self._serial = self._serial, self._serial + 1
        serial = self._serial
        self._prepared = False
        xid = Xid(1, b"%d-%d" % (self._peer.session, serial), b"benchmark")
        runs = [(self._partition, len(self._frames))]
        return encode(Prepare(3 * serial + 1, serial, xid, None, seen, runs), self._frames)

    def heard(self, data: bytes) -> bytes | None:
        messages = self._peer.decoder.feed(data)
        if not messages:
            return b""
        [(answer, _)] = messages
        kind = Committed if self._prepared else Done
        if expected(answer, kind).correlation != 3 * self._serial + 1 + self._prepared:
            raise UnexpectedAnswer("an answer to another request")
        if self._prepared:
            return None
        self._prepared = True
        return encode(Commit(3 * self._serial + 2, 0, self._serial, None, None, self._serial - 1))
