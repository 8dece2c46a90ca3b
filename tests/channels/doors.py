"""Clients at a broker's door: what they say first, and how they are sent away."""

from __future__ import annotations

from tests.broker.access.gate import Gate
from tests.channels.talk import House, Talker
from txbroker.amqp import connection_methods as c
from txbroker.amqp.framing import (
    PROTOCOL_HEADER,
)
from txbroker.amqp.reply_codes import Reply
from txbroker.channels.connection import CHANNEL_MAX, FRAME_MAX
from txbroker.channels.directory import Directory

PLAIN = b"\0alice\0pencil"


class GateHouse(Gate, House):
    """A house whose door is locked: alice comes in by "pencil"."""

    def made_broker(self):
        broker = Gate.made_broker(self)
        self.directory = Directory(broker)
        return broker

    def settle(self, turns: int = 6) -> None:
        for _ in range(turns):
            while self.worker.work:
                self.worker.step()
            self.timers.advance(1)
            super().settle(1)


def start(house: House, mechanism: str = "PLAIN", response: bytes = PLAIN, facts=None, client=None) -> Talker:
    """Return a client that has said its first."""
    talker = Talker(house, facts=facts, client=client)
    talker.feed(PROTOCOL_HEADER)
    [talker.start] = talker.methods()
    talker.say(c.ConnectionStartOk(talker.client, mechanism, response, "en_US"), on=0)
    house.settle()
    return talker


def tuning(house: House) -> Talker:
    talker = start(house)
    assert talker.methods() == [c.ConnectionTune(CHANNEL_MAX, FRAME_MAX, 60)]
    return talker


def closed_by(talker: Talker, reply: Reply) -> c.ConnectionClose:
    [close] = [each for each in talker.methods() if isinstance(each, c.ConnectionClose)]
    assert close.reply_code == reply, close
    return close
