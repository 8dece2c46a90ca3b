"""Raw peers that speak to a broker over blocking sockets."""

from __future__ import annotations

import socket

import pytest

from journal.formats import frame
from journal.settings import TopicSettings
from tests.support.broker_process import PATIENCE
from txbroker.wire import messages as commands
from txbroker.wire.codec import answer_decoder, encode


def frames(*values):
    return b"".join(frame.encode(value, 1) for value in values)


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
            self.say(commands.Hello, commands.MAGIC, list(commands.VERSIONS), "tester")
            self.say(commands.Login, "ANONYMOUS")
            answer = (self.read() or [None])[0]
            if isinstance(answer, commands.Offered):
                answer = (self.read() or [None])[0]
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
        """Return the next answer with its data; None where the broker has closed the connection."""
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
        """Create a topic of one partition, if it does not exist; return the partition's number."""
        self.ask(commands.CreateTopic, name, 1, TopicSettings())
        return self.ask(commands.DescribeTopics, [name]).topics[0].partitions[0].number

    def values(self, partition):
        """Return all messages of a partition."""
        found = []
        while True:
            self.say(commands.Fetch, [(partition, len(found), 0)], 1 << 20)
            _, data = self.read()
            if not data:
                return found
            found += [message.value for message in frame.decode_run(data, len(found))]

    def is_closed(self):
        """Return whether the broker closes the connection, after the answers that it still sends."""
        while self.read() is not None:
            pass
        return True
