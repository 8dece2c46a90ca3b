"""The premises of the shop: PostgreSQL, the broker and the shop's programs, which can be started and killed."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from demo.database_process import DatabaseFailed
from demo.premises import ShopPremises
from demo.program import Program, ProgramFailed
from examples.orders.shop import TOPICS, open_shop
from txbroker.drill.broker.broker_process import BrokerFailed, BrokerProcess

BUSY_WITHIN = 90.0
"""Seconds for the shop to be at work again once all its parties are up."""

FAILURES = (BrokerFailed, DatabaseFailed)


class Premises(ShopPremises):
    """A shop with so many producers, a consumer for each half of the partitions, and a resolver. A context manager."""

    def __init__(self, folder: Path, producers: int, rate: float) -> None:
        super().__init__(folder, "txbroker-shop-", BrokerProcess(folder / "broker", folder / "broker.log"))
        module = [sys.executable, "-m"]
        place = [self.database_url, self.broker.address]
        halves = ["0", "1"], [str(number) for number in range(2, TOPICS["orders"])]
        self.producers = [
            Program(folder, f"producer-{number}", [*module, "examples.orders.producer", *place, str(rate)])
            for number in range(producers)
        ]
        self.consumers = [
            Program(folder, f"consumer-{number}", [*module, "examples.orders.consumer", *place, *partitions])
            for number, partitions in enumerate(halves)
        ]
        txbroker = os.fspath(Path(sys.executable).with_name("txbroker"))
        watch = ["resolve", "--database", self.database_url, "--watch", "--interval", "1s"]
        self.resolver = Program(folder, "resolver", [txbroker, "--broker", self.broker.address, *watch])

    @property
    def programs(self) -> list[Program]:
        """Return all programs of the shop."""
        return [*self.producers, *self.consumers, self.resolver]

    def begin(self) -> None:
        """Open the shop, and start its programs."""
        open_shop(self.database_url, self.broker.address)
        for program in self.programs:
            program.start()

    def wait_for_business(self) -> None:
        """Return once each producer has placed another order and another invoice has been written."""
        before = self._business()
        deadline = time.monotonic() + BUSY_WITHIN
        while any(now <= then for now, then in zip(self._business(), before, strict=True)):
            self.check()
            if time.monotonic() > deadline:
                raise ProgramFailed(
                    f"not every program got on within {BUSY_WITHIN:.0f} s; producers and consumers had said {before} "
                    f"bytes of what they did, and now {self._business()}"
                )
            time.sleep(0.05)

    def _business(self) -> list[int]:
        """Return how many bytes each producer has reported, and all consumers together."""
        said = [size_of(program.out) for program in (*self.producers, *self.consumers)]
        return [*said[: len(self.producers)], sum(said[len(self.producers) :])]


def size_of(file: Path) -> int:
    """Return the size of a file that need not exist."""
    return file.stat().st_size if file.exists() else 0
