"""The coordinator: participants by name, transactions over them, and its unfinished transactions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from txbroker import errors
from txbroker.coordinator.decision_log import Decision, DecisionLog, Heuristic
from txbroker.coordinator.gids import Branch, check_name
from txbroker.coordinator.participant_threads import ParticipantThread
from txbroker.coordinator.participation import resource_of
from txbroker.coordinator.resource import Ending
from txbroker.coordinator.transaction_registry import TransactionRegistry
from txbroker.coordinator.two_phase import CoordinatedTransaction

INTERVAL = 10.0
"""Seconds between passes over a participant's prepared branches, by default."""


class InDoubt(NamedTuple):
    """A committed transaction that a participant has not acknowledged: why, by participant (as far as known)."""

    gid: str
    waiting: dict[str, str]
    decided_at: int
    """µs since 1970 UTC."""


class Resolution(NamedTuple):
    """The results of one pass over all participants: (global id, participant). ``failed`` has reasons by
    participant.
    """

    committed: list[tuple[str, str]]
    rolled_back: list[tuple[str, str]]
    failed: dict[str, str]


class Coordinator:
    """A coordinator that decides in ``directory``, which only it uses. A context manager; for several threads.

    ``participants`` are functions by name, each of which opens one more connection to a participant. A name must never
    change, because it is part of the prepared xids. The functions are used in the background (logger
    ``txbroker.coordinator``) to finish what an earlier process or a lost connection has left: at once, then every
    ``interval`` seconds.

    Raises DirectoryLocked if another coordinator uses the directory.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        participants: Mapping[str, Callable[[], Any]],
        *,
        interval: float = INTERVAL,
        start: bool = True,
    ) -> None:
        """With ``start`` False nothing runs in the background: :meth:`resolve` does it."""
        for name in participants:
            check_name(name)
        self._log = DecisionLog(directory)
        self._registry = TransactionRegistry(self._log)
        self._process = os.getpid()
        self._closed = False
        self._participant_threads = {
            name: ParticipantThread(name, connect, self._registry, interval)
            for name, connect in participants.items()
        }
        if start:
            for thread in self._participant_threads.values():
                thread.start()

    @property
    def identity(self) -> str:
        """The beginning of this coordinator's global ids."""
        return self._log.identity

    # -- transactions ------------------------------------------------------------------------------

    def transaction(self, **participants: Any) -> CoordinatedTransaction:
        """Return a transaction over these connections, by the names of their participants: a ``with`` that commits at
        all or none.

        Work on the connections inside of it belongs to it. Connections to brokers are for one thread meanwhile.
        """
        for name in participants:
            self.check_registered(name)
        return CoordinatedTransaction(
            self, {name: resource_of(connection) for name, connection in participants.items()}
        )

    def join(self, manager: Any, **connections: Any) -> None:
        """Let these connections take part in the manager's current transaction (the package ``transaction``).

        Call it once per transaction, before any work on them: later work belongs to it.
        """
        from txbroker.coordinator.joined_transaction import join_connections

        join_connections(self, manager, connections)

    def check_registered(self, name: str) -> None:
        """Raise Misuse for a name that recovery could not reach."""
        if name not in self._participant_threads:
            raise errors.Misuse(
                f"{name!r} is no participant of this coordinator "
                f"({', '.join(self._participant_threads) or 'it has none'}): what it "
                "prepares could never be finished after a crash. Give the coordinator a function that connects to it; "
                "nothing was done"
            )

    # -- unfinished transactions -------------------------------------------------------------------

    def in_doubt(self) -> list[InDoubt]:
        """Return committed transactions that a participant has not acknowledged yet, and why."""
        decisions = dict(self._log.decisions)
        return [
            InDoubt(gid, {name: self._reason(name, gid) for name in waiting}, decisions[gid].at)
            for gid, waiting in self._registry.waiting().items()
            if gid in decisions
        ]

    def _reason(self, name: str, gid: str) -> str:
        thread = self._participant_threads.get(name)
        if thread is None:
            return "no participant of that name is registered"
        return thread.failures.get(gid) or thread.failure or "not looked at yet"

    def heuristics(self) -> list[Heuristic]:
        """Return branches that were ended the other way than decided. They are kept until :meth:`forget`."""
        return self._registry.heuristics()

    def forget(self, gid: str, participant: str) -> None:
        """Note that a person has ended this branch by hand: it is neither waited for nor reported any more. Forced.

        End it at the participant first. When the transaction's last branch is forgotten, its decision is gone, and a
        branch that is still prepared is rolled back when it is found.
        """
        self._check_open()
        self._registry.forget(Branch(gid, participant))

    def back_up(self, backups: str | os.PathLike[str]) -> str:
        """Make a backup of the directory in a directory of backups, which is made if it is missing; return its name.

        Decisions go on meanwhile; all that were made before are in it. ``txbroker restore`` restores it
        (docs/backup.md). Raises DiskFull, FilesReleased, DirectoryLocked, CorruptData: then no backup was made.
        """
        self._check_open()
        return self._log.back_up(backups)

    def resolve(self) -> Resolution:
        """Make one pass over all participants now, in this thread, one after the other; an unreachable one
        raises nothing.
        """
        self._check_open()
        done = Resolution([], [], {})
        for name, thread in self._participant_threads.items():
            try:
                passed = thread.look()
            except Exception:  # noqa: BLE001 - told in `failed`
                done.failed[name] = thread.failure
                continue
            done.committed.extend((gid, name) for gid in passed.committed)
            done.rolled_back.extend((gid, name) for gid in passed.rolled_back)
            if passed.failed:
                done.failed[name] = thread.failure
        self._log.flush()
        return done

    # -- for transactions --------------------------------------------------------------------------

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise errors.ProcessForked(
                "this coordinator was opened before fork(), and its log is the parent's: open another directory in the "
                "child; nothing was done"
            )
        if self._closed:
            raise errors.ConnectionClosed("this coordinator has been closed; nothing was done")

    def begun(self) -> str:
        """Return a global id whose transaction only its thread ends until :meth:`left`; raises if nothing can
        be decided.
        """
        self._check_open()
        self._log.check()
        return self._registry.begun()

    def check_identity(self, name: str, identity: str) -> None:
        """Raise Misuse if a connection leads to other data than the registered function, as far as that is known."""
        known = self._participant_threads[name].identity
        if known and identity != known:
            raise errors.Misuse(
                f"the connection given for {name!r} leads to other data ({identity}) than the registered participant "
                f"({known}): what it prepares could not be found after a crash; nothing was done"
            )

    def decided(self, decision: Decision) -> None:
        """Force a decision."""
        self._registry.decided(decision)

    def acknowledged(self, branch: Branch, ending: Ending) -> None:
        """Note that a participant has acknowledged a commit."""
        self._registry.acknowledged(branch, ending)

    def rolled_back(self, branch: Branch, ending: Ending) -> None:
        """Note that a participant has acknowledged a rollback."""
        self._registry.rolled_back(branch, ending)

    def left(self, gid: str) -> None:
        """Note that its thread is done with it."""
        self._registry.left(gid)

    def hurry(self, gid: str, names: Iterable[str]) -> None:  # noqa: ARG002 - each finds out by itself
        """Have the participant threads make a pass now: a participant could not be told of this transaction."""
        for name in names:
            self._participant_threads[name].hurry()

    def mixed(self, gid: str) -> errors.HeuristicMixed | None:
        """Return the error for a transaction of which a branch was ended otherwise; None if there is none."""
        found = self._registry.heuristics(gid)
        if not found:
            return None
        what = "; ".join(
            f"{one.participant!r} was {one.ended}"
            + (f" by {one.by}" if one.by else "")
            + (f": {one.why}" if one.why else "")
            for one in found
        )
        return errors.HeuristicMixed(
            f"transaction {gid} was {found[0].decided}, but {what}. Make the participants agree by hand, then "
            f"coordinator.forget({gid!r}, participant); until then it is listed in coordinator.heuristics()",
            [one.participant for one in found],
        )

    # -- the end -----------------------------------------------------------------------------------

    def close(self, timeout: float = 5.0) -> None:
        """Stop the background (wait ``timeout`` seconds at most for each), and release the directory.

        The next coordinator on the directory finishes the unfinished transactions. Closing twice does nothing.
        """
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._process:
            return
        for thread in self._participant_threads.values():
            thread.stop(0.0)
        for thread in self._participant_threads.values():
            thread.stop(timeout)
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
