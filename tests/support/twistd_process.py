"""``twistd txbroker`` with any options, however it ends, and raw peers that speak to it over blocking sockets."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.formats import frame
from journal.settings import TopicSettings
from txbroker.wire import messages as commands
from txbroker.wire.codec import answer_decoder, encode

PATIENCE = 30.0
READY = re.compile(r"txbroker ready listening=tcp:127\.0\.0\.1:(\d+).*")
TWISTD = Path(sys.executable).with_name("twistd")


def frames(*values):
    return b"".join(frame.encode(value, 1) for value in values)


class TwistdProcess:
    """Started at once; what it says is kept in ``lines``."""

    def __init__(self, *options, cwd=None, descriptors=None):
        self.lines = []
        self.ready_line = ""
        self._said = threading.Condition()
        self._ended = False
        limited = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"] if descriptors else []
        self._process = subprocess.Popen(
            [*limited, TWISTD, "--nodaemon", "--pidfile=", "txbroker", *map(str, options)],
            cwd=cwd,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self):
        return self._process.pid

    @property
    def output(self):
        return "".join(self.lines)

    def _read(self):
        for line in self._process.stdout:
            with self._said:
                self.lines.append(line)
                self._said.notify_all()
        with self._said:
            self._ended = True
            self._said.notify_all()

    def wait_for(self, pattern):
        """The first line that has the pattern; fails if the process ends without having said it."""

        def found():
            return next((line for line in self.lines if re.search(pattern, line)), None)

        with self._said:
            self._said.wait_for(lambda: found() or self._ended, PATIENCE)
        return found() or pytest.fail(
            f"the process never said {pattern!r} but:\n{self.output}", pytrace=False
        )

    def ready(self):
        """Wait for the ready line; return the port."""
        self.ready_line = self.wait_for(READY)
        return int(READY.search(self.ready_line)[1])

    def field(self, name):
        """A number of the ready line."""
        return int(re.search(rf"\b{name}=(\d+)", self.ready_line)[1])

    def send_signal(self, number):
        self._process.send_signal(number)

    def wait(self):
        """Its exit status, once it has ended and all that it said is known."""
        status = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self._process.stdout.close()
        return status

    def stop(self):
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        self._process.kill()
        return self.wait()

    def resident_bytes(self):
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def twistd_process(data, *options, descriptors=None) -> Iterator[TwistdProcess]:
    """A process on any free port; killed at the end if it still runs."""
    process = TwistdProcess(
        "--data", data, "--listen", "tcp:0:interface=127.0.0.1", *options, descriptors=descriptors
    )
    try:
        yield process
    finally:
        process.kill()


class Peer:
    """A blocking connection to a port or a path, or over a connected socket.

    It fails a test rather than wait for ever.
    """

    def __init__(self, place, hello=True):
        if isinstance(place, socket.socket):
            self.socket = place
        elif isinstance(place, int):
            self.socket = socket.create_connection(("127.0.0.1", place), timeout=PATIENCE)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(PATIENCE)
            self.socket.connect(str(place))
        self._decoder = answer_decoder(1 << 26)
        self._answers = []
        self.correlation = 0
        if hello:
            answer = self.ask(commands.Hello, commands.MAGIC, [2], "tester")
            if not isinstance(answer, commands.Welcome):
                self.socket.close()
                pytest.fail(f"instead of a welcome the broker says {answer}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    @property
    def name(self):
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def say(self, kind, *fields, data=b""):
        """Send a request; return its correlation number."""
        self.correlation += 1
        self.socket.sendall(encode(kind(self.correlation, *fields), data))
        return self.correlation

    def read(self):
        """The next answer with its data; None where the broker has closed the connection."""
        while not self._answers:
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._answers += self._decoder.feed(data)
        return self._answers.pop(0)

    def ask(self, kind, *fields, data=b""):
        self.say(kind, *fields, data=data)
        found = self.read()
        return None if found is None else found[0]

    def topic(self, name="t"):
        """Make a topic of one partition, if it is not there; return the partition's number."""
        self.ask(commands.CreateTopic, name, 1, TopicSettings())
        return self.ask(commands.DescribeTopics, [name]).topics[0].partitions[0].number

    def values(self, partition):
        """All messages of a partition."""
        found = []
        while True:
            self.say(commands.Fetch, [(partition, len(found), 0)], 1 << 20)
            _, data = self.read()
            if not data:
                return found
            found += [message.value for message in frame.decode_run(data, len(found))]

    def is_closed(self):
        """Whether the broker closes the connection, after whatever it still says."""
        while self.read() is not None:
            pass
        return True
