"""The generator runs the processes of a load: it starts them together, reads their progress, and stops them."""

from __future__ import annotations

import selectors
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec

from txbroker.bench.plan import Share
from txbroker.bench.tally import Counted, Progress
from txbroker.bench.worker import Said

MARGIN = 0.2
"""Seconds from the order to the common start."""

PATIENCE = 10.0
"""Seconds beyond their own time-outs after which processes that say nothing have failed."""


class GeneratorFailed(Exception):
    """A process of the generator could not do its work; the message says why."""


class _Process:
    """One process of the generator, in a session of its own: Ctrl-C at the terminal reaches only the command, which
    then sends ``stop``.
    """

    def __init__(self, share: Share) -> None:
        command = [sys.executable, "-m", "txbroker.bench.worker"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self.stdout = self._process.stdin, self._process.stdout
        self.ready = False
        self.progress: Progress | None = None
        self.counted: Counted | None = None
        self._begun = b""
        self.tell(msgspec.json.encode(share).decode())

    def tell(self, line: str) -> None:
        """Write a line to the process; that it has ended is noticed when it is read from."""
        try:
            self._stdin.write(line.encode() + b"\n")
            self._stdin.flush()
        except BrokenPipeError:
            return

    def heard(self, data: bytes) -> None:
        """Read what the process has written. Raises :class:`GeneratorFailed` if it cannot go on, or has ended
        unasked.
        """
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            said = msgspec.json.decode(line, type=Said)
            if said.failed:
                raise GeneratorFailed(said.failed)
            self.ready = self.ready or said.ready
            self.progress = said.progress or self.progress
            self.counted = said.counted or self.counted
        if not data and self.counted is None:
            raise GeneratorFailed(f"a process of the generator ended with {self._process.wait()}")

    def end(self) -> None:
        """Wait for the end of the process; kill it if it does not end."""
        self._stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.stdout.close()


class Generator:
    """All processes of a load. As a context manager, it ends them all."""

    def __init__(self, shares: Sequence[Share]) -> None:
        self._timeout = shares[0].plan.timeout + PATIENCE
        self._selector = selectors.DefaultSelector()
        self._processes = [_Process(share) for share in shares]
        for process in self._processes:
            self._selector.register(process.stdout, selectors.EVENT_READ, process)

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.end()
        self._selector.close()

    def start(self) -> float:
        """Wait until all processes are ready and have them start together; return when."""
        deadline = time.monotonic() + self._timeout
        while not all(process.ready for process in self._processes):
            self._listen(deadline - time.monotonic())
        at = time.monotonic() + MARGIN
        for process in self._processes:
            process.tell(f"start {at!r}")
        return at

    def stop(self) -> None:
        """Have all processes begin nothing more, and report their counts."""
        for process in self._processes:
            process.tell("stop")

    def listen(self, seconds: float) -> Progress | None:
        """Read what the processes write for so long; return their common progress."""
        self._listen(seconds, must_speak=False)
        said = [process.progress for process in self._processes if process.progress is not None]
        if not said:
            return None
        return Progress(
            sum(each.done for each in said),
            sum(each.errors for each in said),
            max(each.p50 for each in said),
            max(each.p99 for each in said),
        )

    @property
    def counted(self) -> list[Counted] | None:
        """Return the counts of all processes; None while one still works."""
        found = [process.counted for process in self._processes if process.counted is not None]
        return found if len(found) == len(self._processes) else None

    def _listen(self, seconds: float, must_speak: bool = True) -> None:
        events = self._selector.select(max(seconds, 0.0))
        if not events and must_speak:
            raise GeneratorFailed(f"a process of the generator has said nothing for {self._timeout:g} s")
        for key, _ in events:
            process: _Process = key.data
            process.heard(process.stdout.read1(1 << 16))  # type: ignore[attr-defined]
            if process.counted is not None and process.stdout in self._selector.get_map():
                self._selector.unregister(process.stdout)
