"""``python -m txbroker.drill.clients.client FOLDER CLIENT LIFE`` runs one client of a drill in its own process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from txbroker.drill.clients.amqp_queuer import queue_up_over_amqp
from txbroker.drill.clients.feeder import feed
from txbroker.drill.clients.life import Life
from txbroker.drill.clients.queuer import queue_up
from txbroker.drill.clients.reader import look
from txbroker.drill.clients.relay import relay
from txbroker.drill.clients.scheduler import schedule
from txbroker.drill.clients.senders import send_on, send_plainly
from txbroker.drill.clients.transactor import LeftToCoordinator, transact
from txbroker.drill.clients.worker import work
from txbroker.drill.plan.plan import read_plan
from txbroker.errors import StorageUnavailable
from txbroker.quiet_logger import quieted

ROLES: Final[dict[str, Callable[[Life], None]]] = {
    "transactor": transact,
    "sender": send_on,
    "plain": send_plainly,
    "relay": relay,
    "reader": look,
    "feeder": feed,
    "worker": work,
    "scheduler": schedule,
    "queuer": queue_up,
    "amqp": queue_up_over_amqp,
}
"""What a client does, by the first part of its name (``transactor-1``)."""


def run(folder: str, client: str, life: str) -> None:
    """Run until a stop is requested. An unexpected error is written to the ledger, and ends the life with a
    traceback.
    """
    with quieted("txbroker.client"):  # the broker is killed all the time: the client would log little else
        _live(Life(read_plan(Path(folder)), client, int(life)))


def _live(living: Life) -> None:
    try:
        with suppress(LeftToCoordinator):  # an end of a life like others: the ledger says what is open
            ROLES[living.client.partition("-")[0]](living)
    except StorageUnavailable:  # a life may end while no broker runs at the end of a drill
        if living.goes_on():
            raise
    except Exception as error:
        living.surprised("living", error)
        raise


if __name__ == "__main__":
    run(*sys.argv[1:])
