"""The resolver thread beside a broker connection: it deletes acknowledged rows, resolves transactions in doubt, and
keeps the outbox.

It is one daemon thread, with its own database connections. It never raises into a program: :attr:`Background.status`
and the logger ``txbroker.resolver`` report failures.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from journal.transaction_states import State
from journal.xid import Xid
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.blocking.held_output import PACER
from txbroker.client.blocking.semaphore import BinarySemaphore
from txbroker.client.core.background_worker import makers
from txbroker.client.core.promise import Promise
from txbroker.client.loop.connection import LoopConnection
from txbroker.databases.adapters.database import Connector
from txbroker.databases.charge import TIDY, Charge
from txbroker.databases.charge import drive as take_in_answers
from txbroker.databases.outbox.streams import Streams, outcome_in_process
from txbroker.databases.resolver import Resolver
from txbroker.databases.resolver_status import Status
from txbroker.databases.tables.xids import row_of

log = logging.getLogger("txbroker.resolver")

SWEEP = 60.0
"""Seconds between sweeps for rows that were not deleted."""

INTERVAL = 10.0
"""Seconds between passes over transactions in doubt, by default."""

GRACE = 1.0
"""Seconds for which a prepared transaction is left to its program. A pass that met such a one is soon repeated."""

MOST_IN_MEMORY = 64 << 20
"""Bytes of undelivered messages in memory, by default; those beyond are read from the database again."""

EXIT = 5.0
"""Seconds for which the end of a connection, or of the interpreter, waits for the thread at most."""

CLOSE_IDLE = 5.0
"""Seconds after which a database connection that is not needed is closed."""


class Background:
    """The resolver in the background of one connection: ``broker.resolver``.

    ``open_broker`` returns the connection that it resolves with: the program's own, if ``drive`` moves that, else a
    separate one. ``interval`` may be set at any time.
    """

    def __init__(
        self,
        open_broker: Callable[[], Connection],
        drive: Callable[[Promise[Any]], None] | None = None,
        most: int = MOST_IN_MEMORY,
    ) -> None:
        self._interval = INTERVAL
        self._most = most
        self._open_broker = open_broker
        self._drive = drive
        self._broker: Connection | None = None
        self._charges: dict[str, Charge] = {}
        """It is replaced, never changed, because the thread iterates over it while others add tables."""
        self._told: deque[tuple[Promise[Any], str]] = deque()
        self._wake = BinarySemaphore()
        self._asleep = False
        self._stopping = False
        self._failure = ""
        self._deadline = math.inf
        self._process = os.getpid()
        self._watching = threading.Lock()
        self._thread: threading.Thread | None = None
        self._passes = self._committed = self._rolled_back = self._removed = 0

    # -- for blocks --------------------------------------------------------------------------------

    def knows(self, name: str) -> bool:
        """Return whether this decision table is resolved here."""
        return name in self._charges

    def watch(self, name: str, connector: Connector | None) -> None:
        """Resolve for a decision table from now on, beginning with a pass at once."""
        if connector is not None:
            _connectors[name] = connector
        with self._watching:
            if name not in self._charges:
                self._charges = {**self._charges, name: Charge(connector)}
            if connector is None:
                self._charges[name].failure = (
                    "this driver does not tell how to open another connection: say connect_database= to "
                    "txbroker.atomic, or run 'txbroker resolve --watch'"
                )
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="txbroker-resolver", daemon=True)
                thread.start()
                self._thread = thread
                _running.add(self)
        self._wake.release()

    def streams(self, name: str) -> Streams | None:
        """Return the streams for blocks that leave their messages in the database; None if no connection can be opened
        to look after them.
        """
        charge = self._charges[name]
        if charge.connector is None:
            return None
        if charge.streams is None:
            with self._watching:
                if charge.streams is None:
                    # Beside an event loop nobody reads answers but this thread.
                    awaited = self._wake.release if self._drive is None else lambda: None
                    attend = partial(self._attend_soon, charge)
                    charge.streams = Streams(name, self._most, attend, self._stir, awaited)
        return charge.streams

    def known_streams(self, name: str) -> Streams | None:
        """Return the streams for a table, if there are some."""
        charge = self._charges.get(name)
        return None if charge is None else charge.streams

    def _attend_soon(self, charge: Charge) -> None:
        charge.attend_due = 0.0
        self._wake.release()

    def row_outcome(self, xid: Xid) -> State | None:
        """Return how a block has ended that left its messages in the database; None if that is not known yet: the
        thread finds out, ask again.

        Raises OutcomeForgotten, and Misuse for a table that no block of this process has used.
        """
        table, stream, number = row_of(xid) or ("", "", 0)
        if table and (known := outcome_in_process(table, bytes.fromhex(stream), number)) is not None:
            return known
        if table not in self._charges and table in _connectors:
            self.watch(table, _connectors[table])
        charge = self._charges.get(table)
        if charge is None or self.streams(table) is None:
            raise errors.Misuse(
                f"{xid} names a row of the decision table {table!r}, which this process does not look after: begin "
                "a block of txbroker.atomic on that database first, then ask again"
            )
        question = stream, number
        found = charge.questions.get(question)
        if found is None:
            charge.questions[question] = None
            self._attend_soon(charge)
            return None
        del charge.questions[question]
        if isinstance(found, errors.TxBrokerError):
            raise found
        return found

    def track(self, told: Promise[Any], key: str) -> None:
        """Note that the broker is being told of a decision; the row with this key is deleted after the
        acknowledgement.
        """
        self._told.append((told, key))
        self._stir()

    def _stir(self) -> None:
        """End a sleep: there is something to be tidied up soon."""
        if self._asleep:
            self._asleep = False
            self._wake.release()

    def hurry(self) -> None:
        """Make a pass now, because something is in doubt."""
        for charge in self._charges.values():
            charge.due = 0.0
        self._wake.release()

    @property
    def interval(self) -> float:
        """Seconds between passes over what is in doubt."""
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._interval = seconds
        self.hurry()

    @property
    def status(self) -> Status:
        """What the background has done."""
        charges = self._charges
        failures = [self._failure] if self._failure else []
        failures += [f"{name}: {charge.failure}" for name, charge in charges.items() if charge.failure]
        failures += [
            f"{name}: {charge.look_failure}" for name, charge in charges.items() if charge.look_failure
        ]
        keepers = [charge.keeper for charge in charges.values() if charge.keeper is not None]
        return Status(
            self._thread is not None and self._thread.is_alive(),
            list(charges),
            self._passes,
            self._committed,
            self._rolled_back,
            self._removed,
            [
                str(xid)
                for charge in charges.values()
                for xid in (*charge.last.waiting, *charge.last.restored)
            ],
            [key for charge in charges.values() for key in charge.last.contradicted],
            len(self._told),
            "; ".join(failures),
            sum(charge.streams.undelivered for charge in charges.values() if charge.streams is not None),
            sum(keeper.delivered for keeper in keepers),
            sum(keeper.refused for keeper in keepers),
            [f"{name}: {why}" for keeper in keepers for name, why in list(keeper.stopped.items())],
        )

    def stop(self, timeout: float, waits: bool = True) -> None:
        """Finish what can be finished in ``timeout`` seconds, then end; with ``waits`` return after that, or after five
        seconds.
        """
        self._stopping = True
        self._deadline = time.monotonic() + timeout
        self._wake.release()
        if self._thread is not None and self._thread is not threading.current_thread() and waits:
            self._thread.join(min(timeout, EXIT))

    def finish_at_exit(self) -> None:
        """Deliver what is committed, as :meth:`stop` does, for five seconds at most; not in a child process."""
        if os.getpid() == self._process and any(
            charge.streams is not None for charge in self._charges.values()
        ):
            self.stop(EXIT)

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        with self._watching:
            self._thread = self._thread or threading.current_thread()  # none: the starter was interrupted
            if self._thread is not threading.current_thread():
                return
        while not self._stopping:
            try:
                self._round(time.monotonic())
                self._failure = ""
                self._rest()
            except BaseException as error:  # noqa: BLE001 - without this thread, what is in doubt would stay so
                self._failed("a round of the resolver failed; it goes on", error)
                self._wake.acquire(TIDY)
        try:
            self._finish()
        except BaseException as error:  # noqa: BLE001 - a thread that ends with SystemExit says nothing
            self._failed("the resolver's end failed", error)

    def _failed(self, what: str, error: BaseException) -> None:
        failure = f"{type(error).__name__}: {str(error).strip()}"
        if failure != self._failure:
            log.error("%s", what, exc_info=error)
        self._failure = failure

    def _finish(self) -> None:
        """Clean up once more, then close everything that was opened, even if some of it cannot be closed."""
        try:
            self._tidy()
            for name, charge in self._charges.items():
                if charge.streams is not None:
                    self._guard(name, charge, partial(Charge.finish, deadline=self._deadline))
        finally:  # the clean-up may have opened connections
            with ExitStack() as ending:
                if self._broker is not None and self._drive is None:  # a connection of the resolver
                    ending.callback(self._broker.close, 0.0)
                for charge in self._charges.values():
                    if charge.streams is not None:
                        ending.callback(PACER.forget, charge.streams)
                    if charge.resolver is not None:
                        ending.callback(charge.resolver.close_database)
                        ending.callback(charge.resolver.stop_looking, TIDY)

    def _rest(self) -> None:
        if self._told or any(charge.is_busy for charge in self._charges.values()):
            due = min((charge.attend_due for charge in self._charges.values()), default=math.inf)
            self._wake.acquire(max(0.0, min(TIDY, due - time.monotonic())))
        else:
            self._sleep()

    def _sleep(self) -> None:
        """Sleep until something is due; :meth:`track` ends the sleep."""
        now = time.monotonic()
        charges = self._charges.values()
        due = [charge.next_due for charge in charges if charge.connector is not None]
        due += [charge.used + CLOSE_IDLE for charge in charges if charge.used + CLOSE_IDLE > now]
        self._asleep = True
        if not self._told:  # checked again, because it may have come before the flag was set
            self._wake.acquire(max(0.0, min(due, default=now + self.interval) - now))
        self._asleep = False
        is_asked = any(charge.attend_due <= time.monotonic() for charge in self._charges.values())
        if self._told and not self._stopping and not is_asked:
            time.sleep(TIDY / 5)  # so that a burst of blocks is cleaned up at once

    def _round(self, now: float) -> None:
        self._tidy()
        for name, charge in self._charges.items():
            self._keep(name, charge, now)
            if charge.connector is not None and now >= charge.due:
                # Set before the pass, because another call may come meanwhile.
                is_hurried, charge.due = not charge.due, now + self.interval
                self._guard(name, charge, self._pass)
                # The transaction that it was called for may be too young, and is left alone then. It may have been
                # prepared while the rows were tidied, so the time until it is old enough counts from here.
                if is_hurried or charge.last.waiting or charge.last.young:
                    charge.due = min(charge.due, time.monotonic() + GRACE)
            if charge.resolver is not None and now - charge.used > CLOSE_IDLE:
                charge.resolver.close_database()

    def _keep(self, name: str, charge: Charge, now: float) -> None:
        """Look after the streams of this process."""
        streams = charge.streams
        if now >= charge.attend_due:
            charge.attend_due = math.inf
            if not self._guard(name, charge, Charge.attend):
                charge.attend_due = min(charge.attend_due, time.monotonic() + TIDY)
        if streams is not None:
            if charge.take_in():
                streams.send_left()
            if streams.removable:
                self._guard(name, charge, Charge.remove_delivered)

    def _pass(self, charge: Charge) -> None:
        assert charge.resolver is not None
        now = time.monotonic()
        sweep = now >= charge.sweep_due
        found = charge.resolver.resolve(sweep)
        if sweep:
            charge.sweep_due = now + SWEEP
        else:
            found = found._replace(contradicted=charge.last.contradicted)
        charge.last = found
        self._passes += 1
        self._committed += len(found.committed)
        self._rolled_back += len(found.rolled_back)
        self._removed += found.removed
        charge.look()

    def _tidy(self) -> None:
        """Collect acknowledgements, then delete their rows, many at once."""
        drive = self._drive
        for _ in range(len(self._told)):
            told, key = self._told.popleft()
            if not told.done and drive is not None:
                drive(told)
            if not told.done:
                drive = None  # the broker is silent: one wait is enough
                self._told.append((told, key))
            elif told.error is not None:
                self._untold(told.error, key)
            elif key:
                self._of(key).keys.append(key)
        for name, charge in self._charges.items():
            if charge.keys and charge.connector is not None:
                self._guard(name, charge, Charge.remove_decisions)

    def _untold(self, error: BaseException, key: str) -> None:
        if isinstance(error, errors.HeuristicOutcome):
            log.error(
                "transaction %s was decided by its database, and otherwise at the broker: %s", key, error
            )
        else:
            level = (
                logging.DEBUG if self._stopping else logging.INFO
            )  # a closed connection has asked for no answer
            log.log(level, "the broker could not be told of a decision (%s); the resolver will", error)
        self.hurry()

    def _of(self, key: str) -> Charge:
        return self._charges[key.partition("-")[0]]

    def _guard(self, name: str, charge: Charge, act: Callable[[Charge], None]) -> bool:
        """Run an action; report a failure, and try again later with a new database connection. Return whether it
        worked.
        """
        try:
            if charge.resolver is None:
                assert charge.connector is not None
                if self._broker is None:
                    self._broker = self._open_broker()
                charge.resolver = Resolver(
                    charge.connector, self._broker, grace=GRACE, table=name, outbox=False
                )
            charge.keeper = charge.resolver.keeper
            if charge.keeper is not None:
                charge.keeper.streams = charge.streams
            charge.used = time.monotonic()
            act(charge)
            charge.failure = ""
            return True
        except BaseException as error:  # noqa: BLE001 - whatever is raised: the other tables do not wait for it
            failure = f"{type(error).__name__}: {str(error).strip()}"
            if failure != charge.failure and not self._stopping:
                level = logging.INFO if self._is_passing(charge, error) else logging.WARNING
                log.log(level, "decision table %s cannot be looked after now: %s", name, failure)
            charge.failure = failure
            if charge.resolver is not None:
                charge.resolver.close_database()
            return False

    def _is_passing(self, charge: Charge, error: BaseException) -> bool:
        """Return whether another program was writing."""
        resolver = charge.resolver
        return isinstance(error, errors.StorageUnavailable) or (
            resolver is not None and resolver.connection.is_blocked(error)
        )


_starting = threading.Lock()
_connectors: dict[str, Connector] = {}
"""How the decision tables of this process are connected to, for those who ask about them over a new connection."""
_running: weakref.WeakSet[Background] = weakref.WeakSet()


@atexit.register
def _finish_all() -> None:
    """Deliver what is committed before the interpreter ends: its threads end with it."""
    for background in list(_running):
        background.finish_at_exit()


def background_of(connection: Connection) -> Background:
    """Return the worker beside a blocking connection; it is made when it is first asked for."""
    with _starting:
        if connection.resolver is None:
            driver = connection._driver

            def own() -> Connection:
                driver.outlives_losses(threading.get_ident())
                return connection

            def drive(promise: Promise[Any]) -> None:
                driver.outlives_losses(threading.get_ident())
                take_in_answers(connection, promise)

            connection.resolver = Background(own, drive, connection.core.options.max_buffered)
        assert isinstance(connection.resolver, Background)
        return connection.resolver


def background_beside(connection: LoopConnection) -> Background:
    """Return the worker beside a connection on an event loop, with a blocking connection to the same broker."""
    with _starting:
        if connection.resolver is None:
            options = connection.core.options
            own = options._replace(client=f"{options.client[:200]}-resolver", producer="")

            def open_broker() -> Connection:
                opened = Connection(connection.address, own)
                try:
                    opened.run(opened.core.opened(time.monotonic() + options.timeout))
                    if opened.identity != connection.identity:
                        raise errors.BrokerReplaced(
                            "the broker behind the address has other data than the one that the program is "
                            "connected to; "
                            "nothing is resolved"
                        )
                except BaseException:
                    opened.close(0.0)
                    raise
                return opened

            connection.resolver = Background(open_broker, most=options.max_buffered)
        assert isinstance(connection.resolver, Background)
        return connection.resolver


def _background(connection: Any) -> Background:
    return background_of(connection) if isinstance(connection, Connection) else background_beside(connection)


makers.append(_background)
