"""A real broker in a process of its own, for tests that kill it or read its output."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import pytest

from tests.support.repository import PACKAGES
from txbroker.drill.broker import broker_process

PATIENCE = 30.0
SMALL_FILES = "file_bytes=4MiB"
"""What the tests' brokers are started with: by itself each lays out 192 MiB, a quarter of what its start takes."""
ENVIRONMENT = {**os.environ, "PYTHONPATH": PACKAGES}


class BrokerProcess(broker_process.BrokerProcess):
    """One broker on one data directory, with settings as ``NAME=VALUE``; its log lies beside the directory.

    Its journal files are small unless a setting says otherwise: the last word on a setting counts.
    """

    certificate: ClassVar[Path | None] = None
    """A file with a key and a certificate for 127.0.0.1: if there is one, every broker speaks TLS."""

    def __init__(self, data_dir: Path | str, *settings: str) -> None:
        directory = Path(data_dir)
        options = [word for setting in (SMALL_FILES, *settings) for word in ("--set", setting)]
        log = directory.with_name(f"{directory.name}.log")
        super().__init__(directory, log, options, certificate=self.certificate, environment=ENVIRONMENT)


class AmqpBroker(broker_process.BrokerProcess):
    """A broker that listens for AMQP, too; always at the same port. It has the virtual host ``shop`` beside ``/``."""

    def __init__(self, data: Path, environment: Mapping[str, str] = ENVIRONMENT) -> None:
        self.amqp_port = broker_process.free_port()
        listen = f"tcp:{self.amqp_port}:interface=127.0.0.1"
        options = ("--listen-amqp", listen, "--set", SMALL_FILES, "--set", "virtual_hosts=shop")
        super().__init__(data, data.with_name("broker.log"), options, environment=environment)

    @property
    def amqp_url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.amqp_port}//"


class ToldBroker(broker_process.BrokerProcess):
    """A broker with any options of ``twistd txbroker``, which may fail to start; tests wait for lines of its output."""

    def wait_for(self, pattern: str) -> str:
        """Return the first line that has the pattern; the test fails if the process ends without that line."""
        pause = threading.Event()
        for _ in range(int(PATIENCE / 0.01)):
            ended = self.exit_code is not None
            for line in self.output.splitlines():
                if re.search(pattern, line):
                    return line
            if ended:
                break
            pause.wait(0.01)
        return pytest.fail(f"the process never said {pattern!r} but:\n{self.output}", pytrace=False)

    def ready(self) -> int:
        """Wait until the broker is ready, and return the port."""
        self.wait_for(r"txbroker ready ")
        return self.port

    def field(self, name: str) -> int:
        """Return a number of the ready line."""
        found = re.search(rf"\b{name}=(\d+)", self.ready_line)
        assert found is not None, self.ready_line
        return int(found[1])

    def resident_bytes(self) -> int:
        """Return how much of its memory is resident."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def told_broker(data: Path, *options: str, descriptors: int | None = None) -> Iterator[ToldBroker]:
    """A broker whose process has been executed, ready or not; killed at the end if it still runs."""
    with TemporaryDirectory(prefix="txbroker-log-") as folder:
        log = Path(folder) / "broker.log"
        process = ToldBroker(data, log, options, environment=ENVIRONMENT, descriptors=descriptors)
        process.launch()
        try:
            yield process
        finally:
            process.kill()
