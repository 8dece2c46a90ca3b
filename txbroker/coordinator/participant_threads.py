"""Participant threads of a coordinator: one for each participant ends decided branches there and rolls others back.

Participants that cannot be reached delay no others. :attr:`ParticipantThread.failure`, :meth:`Coordinator.in_doubt`
and the logger ``txbroker.coordinator`` report what could not be done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from txbroker.client.blocking.semaphore import BinarySemaphore
from txbroker.coordinator.gids import Branch
from txbroker.coordinator.participation import resource_of
from txbroker.coordinator.resource import Resource

if TYPE_CHECKING:
    from txbroker.coordinator.transaction_registry import TransactionRegistry

log = logging.getLogger("txbroker.coordinator")


RESTORED = (
    "it was begun before the coordinator's log was restored from a backup, and the log has no decision: it may have "
    "been decided since, and ended elsewhere. It is not rolled back. Look what the others have, and end it here "
    "by hand"
)
"""Why a prepared branch waits that a restored log knows nothing of."""


class Passed(NamedTuple):
    """The results of one pass over a participant: global ids."""

    committed: list[str]
    rolled_back: list[str]
    failed: dict[str, str]


class ParticipantThread:
    """The thread that looks after one participant, with its own connection."""

    def __init__(
        self, name: str, connect: Callable[[], Any], registry: TransactionRegistry, interval: float
    ) -> None:
        self.name = name
        self.failure = ""
        """Why the last pass could not do everything, "" if it could."""
        self.failures: dict[str, str] = {}
        """The branches that could not be ended in the last pass, by global id."""
        self.identity = ""
        """The identity of the participant's data, once it was reached."""
        self._connect = connect
        self._registry = registry
        self._interval = interval
        self._resource: Resource | None = None
        self._passing = threading.Lock()
        self._wake = BinarySemaphore()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"txbroker-coordinator-{name}", daemon=True)

    def start(self) -> None:
        """Begin, with a pass at once."""
        self._thread.start()

    def hurry(self) -> None:
        """Make a pass now, because there is something to do."""
        self._wake.release()

    def stop(self, timeout: float) -> None:
        """End; if a pass waits for its participant, wait no longer than this for it."""
        self._stopping = True
        self._wake.release()
        if self._thread.is_alive():
            self._thread.join(timeout)
        else:
            with self._passing:
                self._close()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self.look()
            except BaseException:  # noqa: BLE001 - told by `failure` and the log; the next pass tries again
                self._wake.acquire(min(1.0, self._interval))
            else:
                self._wake.acquire(self._interval)
        with self._passing:
            self._close()

    def look(self) -> Passed:
        """Make one pass; raises the error that kept it from finishing."""
        with self._passing:
            try:
                passed = self._pass()
            except BaseException as error:
                self._failed(f"{type(error).__name__}: {error}".strip())
                self._close()
                raise
            self._registry.flush()
            self.failures = passed.failed
            self._failed("; ".join(f"{gid}: {reason}" for gid, reason in passed.failed.items()))
            return passed

    def _failed(self, reason: str) -> None:
        if reason and not self.failure:
            log.warning("participant %s: %s; tried again every %g s", self.name, reason, self._interval)
        elif self.failure and not reason:
            log.info("participant %s: all is done again", self.name)
        self.failure = reason

    def _pass(self) -> Passed:
        resource = self._open()
        registry = self._registry
        before = registry.view()
        passed = Passed([], [], {})
        listed = resource.listed(self.name, registry.identity)
        for gid, record in registry.to_tell(self.name).items():
            if record.identity != self.identity:
                passed.failed[gid] = (
                    f"{self.name!r} leads to other data ({self.identity}) than those that prepared it "
                    f"({record.identity}): register the right ones, or forget() it once it is dealt with by hand"
                )
                continue
            self._end(resource, gid, True, record.witness, gid in listed, passed)
        for gid in sorted(listed):
            if not registry.is_undecided(gid, before):
                continue
            if registry.is_restored(gid):
                passed.failed[gid] = RESTORED
            else:
                self._end(resource, gid, False, "", True, passed)
        return passed

    def _end(
        self, resource: Resource, gid: str, commit: bool, witness: str, is_listed: bool, passed: Passed
    ) -> None:
        """End one branch; its failure does not delay the others."""
        branch = Branch(gid, self.name)
        try:
            ending = resource.end(branch, commit, witness, is_listed)
        except Exception as error:  # noqa: BLE001 - it is told, and tried again
            passed.failed[gid] = f"{type(error).__name__}: {error}".strip()
            return
        if commit:
            self._registry.acknowledged(branch, ending)
        else:
            self._registry.rolled_back(branch, ending)
        (passed.committed if commit else passed.rolled_back).append(gid)
        log.info("%s: %s at %s", gid, "committed" if commit else "rolled back", self.name)

    def _open(self) -> Resource:
        if self._resource is None:
            connection = self._connect()
            try:
                self._resource = resource_of(connection)
                self.identity = self._resource.identity
            except BaseException:
                self._resource = None
                connection.close()
                raise
        return self._resource

    def _close(self) -> None:
        resource, self._resource = self._resource, None
        if resource is not None:
            try:
                resource.close()
            except Exception as error:  # noqa: BLE001 - it is a broken connection that is thrown away
                log.debug("participant %s: closing: %s", self.name, error)
