"""A scene with a delayed exchange."""

from __future__ import annotations

from typing import Any

from journal.records.queue_entries import ExchangeKind
from tests.broker.queues.scene import Scene, framed, pass_time
from tests.support.broker_room import Room
from txbroker.wire import messages


def delayed(key: str, milliseconds: object, *values: bytes, **more: bytes) -> bytes:
    headers = {"x-delay": str(milliseconds).encode(), **more}
    return framed(key, *values, headers=headers)


class Delays(Scene):
    """A scene with a delayed exchange ``d`` and a queue ``q`` that is bound to it with key ``k``."""

    def __init__(
        self, kind: ExchangeKind = ExchangeKind.DIRECT, room: Room | None = None, **settings: Any
    ) -> None:
        super().__init__(room, **settings)
        self.to = self.exchange("d", kind, mandatory=False, delayed=True)
        self.q = self.queue()
        self.bind("d", "k", "q")

    def wait(self, milliseconds: object, *values: bytes, key: str = "k", **more: Any) -> Any:
        """Publish messages that wait, and let them be scheduled."""
        answer = self.peer.ask(messages.Send, self.to, data=delayed(key, milliseconds, *values), **more)
        pass_time(self, 0)
        return answer

    def restart(self) -> None:
        super().restart()
        for each in self.room.broker.passes:
            each.wake()
        pass_time(self, 0)

    def listed(self, **which: Any) -> list[messages.ScheduledInfo]:
        answer = self.peer.ask(messages.ListScheduled, **which)
        assert isinstance(answer, messages.ScheduledList), answer
        return answer.messages

    def shown(self, name: str = "d") -> messages.ExchangeInfo:
        answer = self.peer.ask(messages.ListExchanges, [name])
        assert isinstance(answer, messages.Exchanges), answer
        return answer.exchanges[0]

    def scheduled(self) -> int:
        return self.room.broker.scheduling.schedule.waiting()
