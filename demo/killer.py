"""The killer kills the broker as planned while the producer works, and starts it again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from demo.kills import Kill, Phase, UsualDurations
from txbroker.drill.broker.broker_process import BrokerFailed, BrokerProcess


@dataclass(frozen=True)
class Killed:
    """A kill that was carried out. ``back_after`` is the time in seconds from the signal until the broker is ready.

    ``day`` and ``phase`` say what the producer was doing when the signal was sent; aimed it was as ``kill`` says.
    """

    kill: Kill
    day: str
    phase: Phase
    back_after: float


class Killer:
    """The killer is told by the producer which phase begins; it sends signals from its own threads, on real timers."""

    def __init__(self, broker: BrokerProcess, plan: Mapping[str, Kill], tell: Callable[[str], None]) -> None:
        self.killed: list[Killed] = []
        self.failure: BrokerFailed | None = None
        self._broker = broker
        self._to_come = dict(plan)
        self._tell = tell
        self._usual = UsualDurations()
        self._one_at_a_time = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._now = "", Phase.ADDING, 0.0
        """What the producer does: day, phase, and since when."""

    def begins(self, day: str, phase: Phase) -> None:
        """Note that the producer begins a phase of a day. A kill that is planned for it is started, once.

        That may be in a later attempt: a late kill of another day can keep the first from getting so far.
        """
        self._now = day, phase, time.monotonic()
        kill = self._to_come.get(day)
        if kill is None or kill.phase is not phase:
            return
        del self._to_come[day]
        delay = kill.delay(self._usual.of(phase))
        dead = threading.Event()
        thread = threading.Thread(target=self._carry_out, args=(kill, delay, dead), name=f"kill on {day}")
        self._threads.append(thread)
        thread.start()
        if phase is Phase.PREPARED:
            dead.wait()

    def ended(self) -> None:
        """Note that the phase ended well, and learn its duration."""
        _, phase, began = self._now
        self._usual.add(phase, time.monotonic() - began)

    def check(self) -> None:
        """Raise what went wrong in a thread, if anything did."""
        if self.failure is not None:
            raise self.failure

    def finish(self) -> None:
        """Wait for the kills that come late and for the broker to be back; raise what went wrong."""
        for thread in self._threads:
            thread.join()
        self.check()

    def _carry_out(self, kill: Kill, delay: float, dead: threading.Event) -> None:
        time.sleep(delay)
        try:
            with self._one_at_a_time:
                day, phase, _ = self._now
                began = time.monotonic()
                self._broker.kill()
                self._tell(f"{day}: SIGKILL while {phase.value}")
                dead.set()
                self._broker.start()
                self.killed.append(Killed(kill, day, phase, time.monotonic() - began))
        except BrokerFailed as error:
            self.failure = error
        finally:
            dead.set()
