"""A real broker in a process of its own, for tests that must see it die."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from tests.support.repository import ROOT
from txbroker.drill.broker import broker_process


class BrokerProcess(broker_process.BrokerProcess):
    """One broker on one data directory, with settings as ``NAME=VALUE``; its log lies beside the directory."""

    certificate: ClassVar[Path | None] = None
    """A file with a key and a certificate for 127.0.0.1: if there is one, every broker speaks TLS."""

    def __init__(self, data_dir: Path | str, *settings: str) -> None:
        directory = Path(data_dir)
        options = [word for setting in settings for word in ("--set", setting)]
        log = directory.with_name(f"{directory.name}.log")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        super().__init__(directory, log, options, certificate=self.certificate, environment=environment)
