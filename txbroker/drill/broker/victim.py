"""The broker of a drill is started and timed, killed at once or at a point, paused, and stopped."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

import txbroker
from txbroker.drill.broker.broker_process import BrokerProcess
from txbroker.drill.broker.kill_points import DISARMED, POINTS, POWER_CUT, RECOVERY
from txbroker.drill.broker.schedule import RANDOM
from txbroker.drill.clients.life import LOST

KILLED: Final = -9
START_WITHIN: Final = 600.0
"""Seconds; a start that has accepted no request by then has failed."""

STOP_WITHIN: Final = 120.0
"""Seconds that a stop on request may take."""

REACH_WITHIN: Final = 4.0
"""Seconds after which a point that the load has not reached is no longer waited for."""

CUT_WITHIN: Final = 10.0
"""Seconds for deciding what a power cut leaves; a broker that has not died by then is killed, and has lost all."""

POLL: Final = 0.004
"""Seconds between two attempts to connect, and between two checks whether the process has died."""

Tick = Callable[[], None]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the broker. Times in seconds on the monotonic clock.

    ``seconds`` is the time from the execution of the process to the first request that it accepted; None if it died
    before.
    """

    executed_at: float
    seconds: float | None = None


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """One event that happened to the broker or to a client.

    ``planned`` is the point (or what else was to be done), ``how`` the result. The broker did not answer from
    ``down_at``, and answered again from ``up_at``.
    """

    kind: str
    planned: str
    how: str
    down_at: float
    up_at: float | None = None


class Victim:
    """The broker's process over the whole drill. ``tick`` is called while waiting, often.

    With ``power_cuts`` a kill asks the process to die of one.
    """

    def __init__(
        self,
        process: BrokerProcess,
        probe: Callable[[txbroker.Connection], None],
        tick: Tick,
        power_cuts: bool = False,
    ) -> None:
        self.kills = 0
        self.restarts = 0
        self.starts: list[Start] = []
        self.state = "not started"
        self._process = process
        self._probe = probe
        self._tick = tick
        self._power_cuts = power_cuts

    # -- starting ----------------------------------------------------------------------------------

    def start(self, armed: str = DISARMED) -> bool:
        """Start, and wait until a request has been accepted. Returns False if the broker was killed where it
        was armed.
        """
        began = time.monotonic()
        self.state = "recovering"
        self.restarts += bool(self.starts)
        self._process.launch(armed)
        while not self._accepts():
            code = self._process.exit_code
            if code == KILLED and armed != DISARMED:
                self.kills += 1
                self.starts.append(Start(executed_at=began))
                self.state = "killed"
                return False
            if code is not None:
                raise self._process.failed(f"the broker ended by itself with {code} while it started")
            if time.monotonic() - began > START_WITHIN:
                raise self._process.failed(
                    f"the broker accepted no request within {START_WITHIN:.0f} s of its start"
                )
            self._wait(POLL)
        self._process.tell(DISARMED)
        self.starts.append(Start(executed_at=began, seconds=time.monotonic() - began))
        self.state = "up"
        return True

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._process.port), timeout=1.0).close()
        except OSError:
            return False
        try:
            with txbroker.connect(
                self._process.address, client="drill's probe", reconnect=False
            ) as connection:
                self._probe(connection)
        except LOST:
            return False
        return True

    # -- ending ------------------------------------------------------------------------------------

    def kill(self) -> float:
        """Send SIGKILL, or cut the power; returns the time of the kill."""
        self.check()
        at = time.monotonic()
        if self._power_cuts:
            self._process.tell(POWER_CUT)
            if self._dies_within(CUT_WITHIN):
                return at
        self._process.kill()
        self.kills += 1
        self.state = "killed"
        return at

    def die_at(self, point: str, nth: int) -> tuple[str, float]:
        """Kill the broker at a point; returns what happened, and since when the broker is down.

        A point that the load does not reach may be one that a stop on request reaches. If the stop does not reach it
        either, the broker is killed where it is.
        """
        if point == RANDOM:
            return "killed", self.kill()
        self.check()
        self._process.tell(f"{point}:{nth}")
        if self._dies_within(REACH_WITHIN):
            return "killed there", time.monotonic()
        if not POINTS[point].clean_stop:
            return "not reached: killed", self.kill()
        self._process.tell(f"{point}:1")
        self._process.terminate()
        if self._dies_within(STOP_WITHIN):
            return "killed there, while stopping", time.monotonic()
        self._check_stopped()
        return "not reached: stopped", time.monotonic()

    def _dies_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            code = self._process.exit_code
            if code == KILLED:
                self.kills += 1
                self.state = "killed"
                return True
            if code is not None:
                return False
            self._wait(POLL)
        return False

    def die_recovering(self, nth: int) -> str:
        """Start the broker so that it is killed at the nth change of its recovery; the recovery may be complete
        before.
        """
        if self.start(f"{RECOVERY}:{nth}"):
            self.kill()
            return f"recovered before change {nth}: killed then"
        return f"killed at change {nth}"

    def stop(self) -> float:
        """Send SIGTERM and wait for the orderly end; returns the time of the request."""
        self.check()
        at = time.monotonic()
        self.state = "stopping"
        self._process.terminate()
        self._dies_within(STOP_WITHIN)
        self._check_stopped()
        return at

    def _check_stopped(self) -> None:
        code = self._process.exit_code
        if code is None:
            raise self._process.failed(f"the broker did not stop within {STOP_WITHIN:.0f} s of SIGTERM")
        if code:
            raise self._process.failed(f"the broker stopped on SIGTERM with {code}")
        self.state = "stopped"

    def pause(self, seconds: float) -> float:
        """Send SIGSTOP, and SIGCONT after so many seconds; returns the time of the stop."""
        self.check()
        at = time.monotonic()
        self.state = "paused"
        self._process.pause()
        try:
            self._wait(seconds)
        finally:
            self._process.resume()
        self.state = "up"
        return at

    def check(self) -> None:
        """Raise BrokerFailed if the broker has ended by itself."""
        if (code := self._process.exit_code) is not None:
            raise self._process.failed(f"the broker ended by itself with {code} under load")

    def end(self) -> None:
        """End the process, whatever it is doing."""
        with suppress(ProcessLookupError):
            self._process.kill_for_good()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._tick()
            time.sleep(min(left, 0.1))
