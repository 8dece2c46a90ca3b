"""The limits of the machine, measured in the same run as the broker: the disk, the loopback interface, the reactor."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from benchmarks.harness import processes
from benchmarks.harness.load import FIRST_CORRELATION, SendDialogue, Tally, converse
from benchmarks.harness.peer import PATIENCE, connect
from journal.constants import GROUP_BYTES, KIB, MIB
from txbroker.wire.codec import encode, request_decoder
from txbroker.wire.messages import Send

FILE_BYTES = 64 * MIB
BLOCK = 4 * KIB
MAX_DATA = 1 * MIB


def forces(folder: Path, seconds: float) -> Tally:
    """Write 4 KiB and force it, one block after the other of a zero-filled file, as the journal does."""
    return _write_and_force(folder, BLOCK, seconds)


def sequential(folder: Path, seconds: float) -> Tally:
    """Write 4 MiB and force it, as the journal's largest groups; count the bytes."""
    tally = _write_and_force(folder, GROUP_BYTES, seconds)
    tally.completed *= GROUP_BYTES
    return tally


def _write_and_force(folder: Path, size: int, seconds: float) -> Tally:
    path = folder / "physical"
    data = os.urandom(size)
    tally, clock = Tally(), time.perf_counter
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for position in range(0, FILE_BYTES, MIB):
            os.pwrite(descriptor, bytes(MIB), position)
        os.fsync(descriptor)
        began = clock()
        while (now := clock()) - began < seconds:
            os.pwrite(descriptor, data, tally.completed * size % FILE_BYTES)
            os.fdatasync(descriptor)
            tally.latencies.append(clock() - now)
            tally.completed += 1
        tally.seconds = clock() - began
    finally:
        os.close(descriptor)
        path.unlink()
    return tally


def echo(clients: int, frames: bytes, seconds: float) -> Tally:
    """Measure round trips of a bare Twisted echo server, with the generator and the request that the broker gets."""
    request = encode(Send(FIRST_CORRELATION, 1), frames)
    with processes.bare("echo") as server:
        connections = [connect(server.port) for _ in range(clients)]
        try:
            return converse(
                [SendDialogue(one, request_decoder(MAX_DATA), request, Send) for one in connections], seconds
            )
        finally:
            for connection in connections:
                connection.close()


def loopback(seconds: float) -> Tally:
    """Count the bytes from a server that does nothing but send."""
    tally, buffer = Tally(), bytearray(MIB)
    with processes.bare("stream") as server, connect(server.port) as connection:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            tally.completed += connection.recv_into(buffer, 0, socket.MSG_WAITALL)
        tally.seconds = time.perf_counter() - began
    return tally


def seconds_of(code: str) -> float:
    """Return how long a fresh interpreter takes for a piece of code."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
    return time.perf_counter() - began


def read_and_check(paths: Sequence[Path]) -> Tally:
    """Read files in pieces of 4 MiB and take the CRC-32C of each, in a plain loop; count the bytes."""
    tally = Tally()
    began = time.perf_counter()
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while data := file.read(GROUP_BYTES):
                crc32c(data)
                tally.completed += len(data)
    tally.seconds = time.perf_counter() - began
    return tally


INTERPRETER = "pass"
IMPORTS = (
    "import twisted.scripts.twistd, twisted.internet.reactor, txbroker.server.tap, txbroker.server.service"
)
