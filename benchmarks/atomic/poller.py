"""The poller of an outbox table, as programs have it: it takes rows, sends them to the broker, deletes them.

:mod:`benchmarks.atomic` starts it beside its workers, and ends it by closing its standard input.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Final

import psycopg

import txbroker

BATCH: Final = 500
PAUSE: Final = 0.002
"""Seconds between two looks at an empty table."""

TAKE = (
    "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) "
    "RETURNING id, topic, key, body"
)


def main() -> None:
    """Run until standard input ends, and until nothing is left."""
    database_url, broker_url = sys.argv[1:3]
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    with psycopg.connect(database_url) as database, txbroker.connect(broker_url) as broker:
        threading.Thread(target=wait_for_end, daemon=True).start()
        print("ready", flush=True)
        rows: list[Any] = []
        is_last = False
        while rows or not is_last:
            is_last = ended.is_set()  # asked before the look, which does not see what comes meanwhile
            rows = database.execute(TAKE, (BATCH,)).fetchall()
            for _, topic, key, body in sorted(rows):
                broker.send_async(topic, body, key=key)
            broker.flush()  # acknowledged, so forced: then the rows may go
            database.commit()
            if not rows:
                ended.wait(PAUSE)
    print("closed", flush=True)


if __name__ == "__main__":
    main()
