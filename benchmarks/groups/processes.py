"""The worker processes of a group: started, asked, and ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

Worker = subprocess.Popen[str]


class BenchmarkFailed(Exception):
    """A worker failed, or has handled all there was; the message says which."""


@contextmanager
def workers(address: str, topic: str, **choices: Any) -> Iterator[Callable[[], Worker]]:
    """Yield what starts a worker of the group that has the topic's name; all are ended, in order, at the end."""
    command = [sys.executable, "-m", "benchmarks.groups.worker", address, topic, topic, json.dumps(choices)]
    with ExitStack() as stack:

        def start() -> Worker:
            worker = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.callback(ended, worker)
            return worker

        yield start


def ended(worker: Worker) -> None:
    """End a worker. One that was killed has ended as it was to."""
    pipe(worker.stdin).close()
    code = worker.wait()
    pipe(worker.stdout).close()
    if code > 0 and sys.exception() is None:
        raise BenchmarkFailed(f"a worker ended with {code}")


def pipe(stream: IO[str] | None) -> IO[str]:
    """Return a pipe of a process that has one."""
    assert stream is not None
    return stream


def say(worker: Worker, word: str = "") -> None:
    """Write a line to a worker."""
    pipe(worker.stdin).write(f"{word}\n")
    pipe(worker.stdin).flush()


def handled(some: Sequence[Worker]) -> list[int]:
    """Ask how many messages each has handled."""
    for worker in some:
        say(worker)
    answers = [pipe(worker.stdout).readline() for worker in some]
    if not all(answers):
        raise BenchmarkFailed("a worker has ended by itself")
    return [int(answer) for answer in answers]
