"""Clients for Python are measured in a process each: how fast they send, and how fast they read that back."""

from __future__ import annotations

import sys

import msgspec

from benchmarks.peers.contender import Measures
from benchmarks.peers.programs import Said, output_of

BODY = bytes(100)


class SaidBoth(msgspec.Struct):
    """The results of one such process: ``sent`` with an answer for each, and all of that ``read``."""

    sent: Said
    read: Said


def run_python(client: str, address: str, warm_up: float, seconds: float) -> Measures:
    """Run :mod:`benchmarks.peers.python_worker`, which measures sending and reading."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.peers.python_worker",
        client,
        address,
        str(warm_up),
        str(seconds),
    ]
    both = msgspec.json.decode(output_of(command, warm_up + seconds), type=SaidBoth)
    return {"python-send": both.sent.measure(), "python-read": both.read.measure()}
