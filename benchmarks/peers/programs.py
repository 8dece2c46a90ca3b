"""Load programs print their results as one line of JSON: those of this project in Java, and those of Python clients."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.peers.contender import Measure
from benchmarks.peers.jars import GATHERED, classpath
from benchmarks.peers.server import PeerFailed, PeerMissing

SOURCES = Path(__file__).with_name("java")
HEAP = "-Xmx1g"
JAVA_WARM_UP = 3.0
"""How many times longer the warm-up is than that of others: with 1 s instead of 5, Artemis did a fifteenth of the
transactions.
"""

TIMEOUT = 120.0
"""Seconds that a program may take beyond its load."""


class Said(msgspec.Struct):
    """The line that a load program prints. Latencies are in seconds."""

    acknowledged: int
    counted: int
    seconds: float
    p50: float | None = None
    p99: float | None = None

    def measure(self) -> Measure:
        return Measure(self.counted / self.seconds, self.p50, self.p99, self.acknowledged)


def classes(peer: str) -> Path:
    """Return the folder with the compiled ``java/`` of a peer; it is compiled anew when its sources change."""
    sources = [SOURCES / "Load.java", *sorted(SOURCES.glob(f"{peer.capitalize()}*.java"))]
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    folder = GATHERED / f"{peer}-classes-{version}"
    if not folder.is_dir():
        path = classpath(peer)
        with tempfile.TemporaryDirectory(dir=GATHERED, prefix=f".{peer}-") as scratch:
            made = Path(scratch, "classes")
            command = ["javac", "-d", str(made), "-cp", path, *map(str, sources)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            except FileNotFoundError:
                raise PeerMissing(
                    "javac is not installed: .ci/need-debian javac=openjdk-17-jdk-headless installs it"
                ) from None
            if done.returncode:
                raise PeerFailed(f"javac ended with {done.returncode}:\n{done.stdout}{done.stderr}")
            try:
                os.rename(made, folder)
            except OSError:
                if not folder.is_dir():
                    raise  # otherwise another run was faster
    return folder


def java(peer: str, main: str, options: Sequence[str] = (HEAP,)) -> list[str]:
    """Return the beginning of a command that runs a class, of this project or of the peer's jars."""
    return ["java", *options, "-cp", f"{classes(peer)}:{classpath(peer)}", main]


def run_java(peer: str, main: str, arguments: Sequence[object], warm_up: float, seconds: float) -> Measure:
    """Run a load program of this project; the two times are its last arguments."""
    command = [*java(peer, main), *map(str, arguments), str(warm_up), str(seconds)]
    return said(output_of(command, warm_up + seconds)).measure()


def output_of(command: Sequence[str], seconds: float) -> str:
    """Return the output of a load program; raises :class:`PeerFailed` with all of it unless it ended well."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds + TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{command[0]} did not end within {seconds + TIMEOUT:.0f} s: {command!r}") from None
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise PeerFailed(f"{command[0]} ended with {done.returncode}; it said:\n{end}\nIt was: {command!r}")
    return done.stdout


def said(output: str) -> Said:
    """Return the last line of JSON in the output of a load program."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise PeerFailed(f"a load program said nothing that counts: {output!r}")
    return msgspec.json.decode(lines[-1], type=Said)
