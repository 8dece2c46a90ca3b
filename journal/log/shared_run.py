"""Large messages that go to several queues: until they are flushed their bytes are in memory once.

The first log that takes them has them whole in its tail. The others have headers of their own, because the offsets in
these are theirs, and references to the first one's buffer for the rest, which is the same everywhere. Where that buffer
is much larger than the run, which would keep it all, the run gets one of its own, and all logs refer to that.
"""

from __future__ import annotations

from typing import Self

from journal.interfaces import IBuffer
from journal.records.copies import is_shared


class SharedRun:
    """A run of frames on its way into several logs. ``buffer`` has it from ``start`` on once one of them has taken it.

    Whoever makes it calls :meth:`release` at the end, also if not all logs have it: then another one for the same run
    begins with a log that lends anew.
    """

    __slots__ = ("buffer", "frames", "start")

    def __init__(self, frames: memoryview) -> None:
        self.frames = frames
        self.buffer: IBuffer | None = None
        self.start = 0

    @classmethod
    def of(cls, frames: bytes | memoryview, count: int, logs: int) -> Self | None:
        """Return the run, None if each log takes a copy."""
        return cls(memoryview(frames)) if is_shared(len(frames), count, logs) else None

    def lend(self, buffer: IBuffer, start: int) -> None:
        """Let other logs have the bytes that the first one has there."""
        buffer.retain()
        self.buffer, self.start = buffer, start

    def keep(self, buffer: IBuffer) -> None:
        """Have the bytes in memory of the run's own, which it takes over."""
        buffer.view[: len(self.frames)] = self.frames
        self.buffer, self.start = buffer, 0

    def release(self) -> None:
        """Lend it to no further log. Those that have it keep it."""
        if self.buffer is not None:
            self.buffer.release()
            self.buffer = None
