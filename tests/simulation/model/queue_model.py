"""The model of queues, as clients that speak AMQP know them: what was published lies in the logs of its queues as any
message lies in a log, is delivered until it is acknowledged, and never after that.

That it lies there once and wholly is judged by :class:`Model`, and when it may come from a delayed exchange by
:class:`ScheduleModel`; here is what is delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.simulation.model.copy_model import Copy, Holder, Waiting
from tests.simulation.model.intent_model import DONE, OPEN, VOID, Intent
from tests.simulation.model.log_model import require
from tests.simulation.model.model import Model
from tests.simulation.model.schedule_model import ScheduleModel


class QueueModel:
    """All queues and what was published to them. ``partitions`` are those of the queues, by name."""

    def __init__(self, model: Model, schedule: ScheduleModel) -> None:
        self.model, self.schedule = model, schedule
        self.partitions: dict[str, int] = {}
        self._copies: dict[bytes, Copy] = {}
        """By the value that the model of logs knows a message by, in one of its queues."""
        model.seen.finished = self.finished

    # -- values --------------------------------------------------------------------------------------

    def value(self, partition: int, body: bytes) -> bytes:
        """Return what the model of logs calls a message there: one has the same bytes in each of its queues."""
        return b"%d: " % partition + body if partition in self.partitions.values() else body

    def copy(self, queue: str, body: bytes) -> Copy:
        """Return the message of a queue with that body."""
        found = self._copies.get(self.value(self.partitions[queue], body))
        require(found is not None, f"queue {queue} delivers what was published", body[:40])
        assert found is not None
        return found

    def finished(self, partition: int) -> set[bytes]:
        """Return the messages of a log that may be finished: a compaction may remove them. What is acknowledged for
        certain is among them, and what somebody has acknowledged who was not told what became of that.
        """
        return {
            value
            for value, copy in self._copies.items()
            if self.partitions[copy.queue] == partition and copy.may_be_finished
        }

    # -- what clients do -------------------------------------------------------------------------------

    def publish(
        self, carrier: Intent, queues: Sequence[str], body: bytes, said: tuple[str, str], delay: int | None
    ) -> None:
        """Somebody is about to publish this for these queues, as a part of ``carrier``, by this exchange and key; it
        waits for ``delay`` µs, unless that is None.
        """
        places = {self.partitions[each]: self.value(self.partitions[each], body) for each in queues}
        intent = carrier
        if delay:
            intent = Waiting(self.schedule, carrier, body, delay, places)
            self.schedule.messages.append(intent)
            carrier.vague = True
        for queue in queues:
            partition = self.partitions[queue]
            self.model.put_into(intent, partition, [places[partition]])
            told = None if delay is None else -delay // 1000
            self._copies[places[partition]] = Copy(intent, queue, body, (*said, told))

    def delivered(
        self, copy: Copy, holder: Holder, again: bool, said: tuple[str, str, int | None], own: Iterable[Copy]
    ) -> None:
        """It came to a client, which has ``own`` by now."""
        name = f"{copy.intent.name} in {copy.queue}"
        require(said == copy.said, f"{name} is delivered as it was published: {copy.said}", said)
        require(not copy.is_finished, f"{name} is finished", "it is delivered")
        require(copy not in own, f"{name} is delivered once", "it comes again")
        other = copy.holder
        is_with_other = other not in (None, holder) and other.taker.goes_on(other.connection)
        require(not is_with_other, f"{name} is with one client", "another one gets it")
        require(again or not copy.was_delivered, f"{name} is told to come again", "it is not")
        for each in copy.finishers:
            if each.state == OPEN and each.asked:
                self.model.void(each)
        self.model.done(copy.intent)
        copy.holder, copy.was_delivered, copy.drained = holder, True, True

    def dies(self, copy: Copy, into: str, said: tuple[str, str]) -> None:
        """It was just rejected: once that is done, it is never delivered again, and some time later it is in another
        queue, by that exchange and key.
        """
        partition = self.partitions[into]
        value = self.value(partition, copy.body)
        letter = Intent(f"{copy.intent.name} as a dead letter", stream=f"letter {value!r}", vague=True)
        self.model.put_into(letter, partition, [value])
        self._copies[value] = Copy(letter, into, copy.body, (*said, copy.said[2]))
        copy.death = copy.finishers[-1], letter
        copy.finishers.append(letter)
        self.model.ask(letter)

    # -- what must be so ---------------------------------------------------------------------------------

    def settle(self, told: Mapping[str, Any]) -> None:
        """Nothing is under way, all logs were read, and the broker has told of its queues, by their names: what is not
        finished is in them.
        """
        require(told.keys() == self.partitions.keys(), f"queues {sorted(self.partitions)}", sorted(told))
        for name, each in told.items():
            require(each.partition == self.partitions[name], f"{name}: {self.partitions[name]}", each)
            there = [copy for value, copy in self._copies.items() if self._is_in(name, value, copy)]
            least = sum(not copy.may_be_finished for copy in there)
            most = sum(copy.may_be_counted for copy in there)
            require(least <= each.messages <= most, f"{least} to {most} messages in {name}", each.messages)

    def _is_in(self, queue: str, value: bytes, copy: Copy) -> bool:
        return copy.queue == queue and value in self.model.seen.places

    def drain(self) -> None:
        """From now on all that is there is delivered, to one client."""
        for copy in self._copies.values():
            copy.drained = False

    def all_were_delivered(self) -> None:
        """All that can be got was: what did not come is finished, and of a transaction all that it acknowledges."""
        for value, copy in self._copies.items():
            if value in self.model.seen.places and not copy.drained:
                name = copy.intent.name
                require(copy.may_be_finished, f"{name} is in {copy.queue} until it is finished", "gone")
                self._is_dead_letter(copy)
                asked = [each for each in copy.finishers if each.asked and each.state == OPEN]
                if len(asked) == 1 and not copy.is_finished:
                    self.model.done(asked[0])

    @staticmethod
    def _is_dead_letter(copy: Copy) -> None:
        """What was rejected and did not come again is a dead letter, unless something else has finished it."""
        others = [each for each in copy.finishers if each.state != VOID and each not in (copy.death or ())]
        if copy.death is not None and not others:
            require(copy.death[1].state == DONE, f"{copy.death[1].name} is there", "it is nowhere")
