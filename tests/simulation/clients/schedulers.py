"""The clients that schedule: they send messages that are due later, take some of them back, and ask about them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from journal.formats import envelope as formats
from journal.formats import frame
from journal.formats.envelope import HORIZONS, seal
from journal.formats.frame import HEADER
from journal.message_headers import ID_HEADER
from tests.simulation.clients.transactions import Begun, TransactionalClient
from tests.simulation.model import schedule_answers_model as schedule_answers
from tests.simulation.model.model import OPEN, Intent
from tests.simulation.model.scheduled_message_model import Clock, Envelope, Later
from txbroker.wire import messages as commands

SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
DELAYS = (
    0, 1, 777, 1_000, 1_001, 59_999, 60_000, 500_500, SECOND, 2 * SECOND, 5 * SECOND, 30 * SECOND, 30 * SECOND,
    10 * MINUTE, 100 * MINUTE, 5 * HOUR, 26 * HOUR, 70 * HOUR,
)  # fmt: skip
LONGEST = DELAYS[-1]

_OTHERS = (
    "DiskFull", "MemoryExhausted", "LimitExceeded", "UnknownPartition", "MessageTooLarge", "InvalidSetting",
)  # fmt: skip
"""What a request about the schedule may be refused with."""


class SchedulingClient(TransactionalClient):
    """A client that schedules messages."""

    def play(self, random: Random) -> None:
        """One act."""
        if not self.world.schedule.logs:
            self.ask(commands.AskSchedule, then=self._told)
            return
        deeds: Sequence[tuple[int, Callable[[Random], object]]] = (
            (8, self.later), (6, self.later_once), (6, self.begin_later), (4, self.take_back), (4, self.show),
            (5, self.take_back_in_transaction), (1, self.list_all), (3, self.end), (1, self.fetch), (1, self.release),
            (1, self.delete_topic), (1, self.create_topic),
        )  # fmt: skip
        [deed] = random.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])
        deed(random)

    def _told(self, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.ScheduleTold):
            self.world.schedule.told(answer.partitions)

    # -- messages that are due later ---------------------------------------------------------------------

    def envelope(self, random: Random, delays: Sequence[int] = DELAYS) -> Envelope | None:
        """Return the envelope of a message for some partition."""
        schedule = self.world.schedule
        partition = self.world.some_partition(random)
        if partition is None or not schedule.logs:
            return None
        after = random.choice(delays) + random.choice((0, 0, random.randrange(2000)))
        clock = random.choice((Clock.ELAPSED, Clock.ELAPSED, Clock.WALL))
        now = schedule.clock.least() if clock is Clock.ELAPSED else self.world.clock.wall()
        fitting = [index for index, horizon in enumerate(HORIZONS) if after <= horizon]
        log = random.choice((fitting[0], fitting[0], *fitting[:3]))
        number = self.world.name_intent()
        value = b"%d later " % number + b"v" * random.choice((0, 0, 50, 300))
        message_id = b"m%d" % number if random.random() < 0.6 else b""
        inner = frame.encode(value, 1, None, {ID_HEADER: message_id} if message_id else None)
        sealed = seal(inner, partition, formats.Clock(clock), now + after)
        checksum: int = HEADER.unpack_from(sealed)[1]
        return Envelope(sealed, checksum, log, partition, value, clock, now + after, message_id)

    def later(self, random: Random, delays: Sequence[int] = DELAYS) -> Later | None:
        """Send one by itself."""
        envelope = self.envelope(random, delays)
        if envelope is None:
            return None
        self._sends += 1
        intent = Intent(f"send {self.world.name_intent()} to the schedule", self._stream, self._sends)
        later = self.world.schedule.sent(intent, envelope)
        self._send(intent, self.world.schedule.logs[envelope.log], envelope.frame)
        self.world.count("scheduled")
        return later

    def later_once(self, random: Random) -> None:
        """Send one or two by a producer, which are stored once, however often they are sent."""
        producer = self.producer
        if producer is None:
            self.ask(commands.OpenProducer, self.world.producer_name(random), then=self._opened)
            return
        envelope = self.envelope(random)
        if producer.stale or envelope is None:
            self.send_again(random)
            return
        log = self.world.schedule.logs[envelope.log]
        sequence = producer.next.setdefault(log, 0)
        producer.next[log] += 1
        intent = Intent(
            f"send {self.world.name_intent()} to the schedule",
            f"producer {producer.id}.{producer.epoch}",
            sequence,
        )
        self.world.schedule.sent(intent, envelope)
        producer.unanswered.setdefault(log, deque()).append((sequence, intent, envelope.frame))
        self._send(intent, log, envelope.frame, producer.id, producer.epoch, sequence)
        self.world.count("scheduled once")

    def _sent(self, *arguments: Any) -> None:
        """Go on with another producer after a refusal: what follows would be out of order."""
        _, partition, producer, answer, _, _ = arguments
        super()._sent(*arguments)
        refused = not isinstance(answer, commands.Sent)
        is_own = producer is not None and producer is self.producer
        if refused and is_own and partition in self.world.schedule.logs:
            self.producer = None

    def begin_later(self, random: Random) -> None:
        """A transaction with such messages, and perhaps others."""
        begun = self._new()
        begun.whole = random.random() < 0.4
        for _ in range(random.choice((1, 1, 2, 3))):
            self._add_later(random, begun)
        if random.random() < 0.3:
            self.add(random, begun)
        if random.random() < 0.3:
            self._take_some(random, begun)
        self._decide_later(random, begun)

    def _add_later(self, random: Random, begun: Begun) -> None:
        envelope = self.envelope(random)
        if envelope is None:
            return
        log = self.world.schedule.logs[envelope.log]
        self.world.schedule.sent(self.add_frames(random, begun, log, 1, envelope.frame), envelope)
        self.world.count("scheduled in transactions")

    def _decide_later(self, random: Random, begun: Begun) -> None:
        match random.random():
            case x if x < 0.4:
                self.prepare(random, begun)
                if random.random() < 0.3:
                    self.decide(random, begun, random.random() < 0.6)
            case x if x < 0.8:
                self.commit_own(random, begun)

    # -- taking back -----------------------------------------------------------------------------------

    def _some(self, random: Random, most: int) -> list[Later]:
        """Return some whose ids are known, rather such as wait."""
        schedule = self.world.schedule
        known = [each for each in schedule.messages if schedule.offset(each) is not None]
        waiting = [each for each in known if each.state == OPEN]
        chosen = waiting if waiting and random.random() < 0.8 else known
        return random.sample(chosen, min(len(chosen), random.randint(1, most)))

    def _ids(self, several: Sequence[Later]) -> list[tuple[int, int, int]]:
        offset = self.world.schedule.offset
        return [(each.envelope.log, offset(each) or 0, each.envelope.checksum) for each in several]

    def take_back(self, random: Random) -> None:
        """Take some back, in one request."""
        several = self._some(random, 3)
        for each in several:
            each.cancels += 1
            each.doubts += 1
        if several:
            ids = self._ids(several)
            self.ask(commands.CancelScheduled, ids, then=partial(self._taken_back, several, self.session))
            self.world.count("taken back")

    def _taken_back(self, several: list[Later], session: int, answer: Any, data: bytes, since: int) -> None:
        for each in several:
            each.doubts = max(0, each.doubts - 1)
        self._shown(several, answer, data, since)
        if isinstance(answer, commands.ScheduledStates):
            for state in answer.states:
                self.world.count(f"taken back: {state.state}")

    def show(self, random: Random) -> None:
        """Ask what has become of some."""
        self.ask_about(self._some(random, 3))

    def ask_about(self, several: list[Later]) -> None:
        """Ask what has become of these."""
        if several:
            self.ask(commands.ShowScheduled, self._ids(several), then=partial(self._shown, several))

    def _shown(self, several: list[Later], answer: Any, data: bytes, since: int) -> None:
        if not isinstance(answer, commands.ScheduledStates):
            self._refused_schedule(answer)
            return
        for later, state in zip(several, answer.states, strict=True):
            schedule_answers.told(self.world.schedule, later, state, since)

    def _refused_schedule(self, answer: Any) -> None:
        if answer.error not in _OTHERS:
            self.world.storage_error(answer.error, answer.message)

    def take_back_in_transaction(self, random: Random) -> None:
        """A transaction that takes some back, and perhaps schedules others in their places."""
        begun = self._new()
        begun.whole = random.random() < 0.6
        self._take_some(random, begun)
        if random.random() < 0.5:
            self._add_later(random, begun)
        self._decide_later(random, begun)

    def _take_some(self, random: Random, begun: Begun) -> None:
        several = self._some(random, 2)
        if random.random() < 0.9:
            self.ask_about(several)
        begun.cancels = self._ids(several)
        for each in several:
            each.takers.append(begun)
            self.world.count("taken back in transactions")

    # -- the whole of it ---------------------------------------------------------------------------------

    def list_all(self, random: Random) -> None:
        """List all that waits, page by page."""
        self._list(random.choice((2, 1000)), (0, -1), [], self.model.now)

    def _list(self, limit: int, after: tuple[int, int], found: list[Any], began: int) -> None:
        self.ask(commands.ListScheduled, "", after, limit, then=partial(self._listed, limit, found, began))

    def _listed(self, limit: int, found: list[Any], began: int, answer: Any, data: bytes, since: int) -> None:
        if not isinstance(answer, commands.ScheduledList):
            self._refused_schedule(answer)
            return
        found += answer.messages
        if answer.next is None:
            schedule_answers.listed(self.world.schedule, found, began)
            self.world.count("lists of the schedule")
        elif self.ready:
            self._list(limit, answer.next, found, began)

    def release(self, random: Random) -> None:
        """Let go what is held since the wall clock has jumped."""
        if random.random() < 0.3:
            self.ask_release()

    def ask_release(self) -> None:
        """Let go what is held, now."""
        self.world.schedule.clock.released()
        self.ask(commands.ReleaseScheduled, then=self._released)

    def _released(self, answer: Any, data: bytes, since: int) -> None:
        if not isinstance(answer, commands.Done):
            self._refused_schedule(answer)
