"""One transaction of a coordinator, step by step; ``docs/coordinator.md`` names the steps and the crashes in
between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Protocol, Self

from journal.transaction_states import State
from txbroker import errors
from txbroker.coordinator.decision_log import BranchRecord, Decision
from txbroker.coordinator.gids import Branch
from txbroker.coordinator.resource import Content, Ending, Resource

log = logging.getLogger("txbroker.coordinator")


class Decides(Protocol):
    """The part of a coordinator that a transaction needs; :class:`txbroker.coordinator.Coordinator` documents it."""

    def begun(self) -> str:
        """Return a global id."""

    def check_identity(self, name: str, identity: str) -> None:
        """Raise unless a connection leads to the registered participant."""

    def decided(self, decision: Decision) -> None:
        """Force a decision."""

    def acknowledged(self, branch: Branch, ending: Ending) -> None:
        """Note that a participant has acknowledged a commit."""

    def rolled_back(self, branch: Branch, ending: Ending) -> None:
        """Note that a participant has acknowledged a rollback."""

    def left(self, gid: str) -> None:
        """Note that its thread is done with it."""

    def hurry(self, gid: str, names: Iterable[str]) -> None:
        """Have participant threads make a pass: a participant could not be told."""

    def mixed(self, gid: str) -> errors.HeuristicMixed | None:
        """Return the error if a branch was ended otherwise."""


class Registry(Decides, Protocol):
    """A coordinator that knows its participants by name."""

    def check_registered(self, name: str) -> None:
        """Raise Misuse for a name that recovery could not reach."""


class CoordinatedTransaction:
    """A transaction that commits at the end of its ``with`` at all participants, or at none. For one thread.

    The steps are methods, for callers with other hooks than a ``with``: :meth:`enter`, the work, :meth:`prepare`,
    :meth:`commit`; or :meth:`rollback` at any time before ``commit``.
    """

    def __init__(self, coordinator: Decides, resources: Mapping[str, Resource]) -> None:
        self.gid = ""
        """The global id, once begun: in every participant's xid, in the logs, for :meth:`Coordinator.in_doubt`."""
        self.outcome = State.ACTIVE
        """ACTIVE inside of the block; PREPARED before the decision, or if it is not known; COMMITTED; ROLLED_BACK."""
        self._coordinator = coordinator
        self._resources = dict(resources)
        self._begun: list[str] = []
        self._voters: list[str] = []
        self._contents: dict[str, Content] = {}
        self._alone = False
        self._is_open_question = False

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.outcome is not State.ACTIVE:
            return
        if error is not None:
            self._abort(error)
            return
        self.prepare(alone=True)
        self.commit()

    # -- first phase -------------------------------------------------------------------------------

    def enter(self) -> None:
        """Begin at every participant; if it raises, nothing was done."""
        if self.gid:
            raise errors.Misuse(f"transaction {self.gid} is begun already; begin a new one; nothing was done")
        self.gid = self._coordinator.begun()
        try:
            for name in self._resources:
                self.enlist(name)
        except BaseException as error:
            self._abort(error)
            raise

    def add(self, name: str, resource: Resource) -> None:
        """Let one more participant take part, before anything is prepared."""
        if name in self._resources:
            raise errors.Misuse(f"participant {name!r} takes part in {self.gid} already; nothing was done")
        self._resources[name] = resource
        self.enlist(name)

    def enlist(self, name: str) -> None:
        """Begin at one participant."""
        resource = self._resources[name]
        resource.begin(Branch(self.gid, name))
        self._begun.append(name)
        self._coordinator.check_identity(name, resource.identity)

    def restart(self, name: str) -> None:
        """Undo the work of one participant, and begin there anew."""
        self._begun.remove(name)
        self._resources[name].finish(False, "")
        self.enlist(name)

    def prepare(self, alone: bool = False) -> None:
        """Run the first phase. After any failure everything is rolled back, and the participant's own error raised.

        Participants without contents are left out. With ``alone`` no other manager takes part, so one participant needs
        no preparing.
        """
        try:
            for name in self._begun:
                self._contents[name] = self._resources[name].look()
            self._voters = [name for name in self._begun if not self._contents[name].is_empty]
            self._alone = alone and len(self._voters) <= 1
            for name in [name for name in self._begun if self._contents[name].is_empty]:
                self._resources[name].commit_alone()
                self._begun.remove(name)
            if not self._alone:
                for name in self._voters:
                    self._resources[name].prepare()
        except BaseException as error:
            self._abort(error)
            raise
        self.outcome = State.PREPARED

    # -- decision and second phase -----------------------------------------------------------------

    def commit(self) -> None:
        """Decide, then tell the participants.

        Raises DeliveryPending if one could not be told yet, HeuristicMixed if one was ended otherwise by force,
        OutcomeUnknown if the decision is not known; any other error means "rolled back".
        """
        if self.outcome is not State.PREPARED or self._is_open_question:
            raise errors.Misuse(f"transaction {self.gid} is not prepared; nothing was done")
        if not self._voters or self._alone:
            self._commit_alone()
            return
        self.decide()
        self.tell()

    def _commit_alone(self) -> None:
        """Commit at one participant, or none: its own commit decides."""
        for name in self._voters:
            resource = self._resources[name]
            try:
                resource.commit_alone()
            except BaseException as error:
                self._coordinator.left(self.gid)
                witness = self._contents[name].witness
                self.outcome = State.ROLLED_BACK
                if not resource.did_not_commit(error):
                    self.outcome, self._is_open_question = State.PREPARED, True
                    resource.abandon()
                    raise errors.OutcomeUnknown(_alone_unknown(self.gid, name, witness, error)) from error
                resource.finish(False, "")
                raise
        self._ended(State.COMMITTED)

    def decide(self) -> None:
        """Force the decision. From here on it is committed, whatever happens."""
        branches = [
            BranchRecord(name, self._resources[name].identity, self._contents[name].witness)
            for name in self._voters
        ]
        try:
            self._coordinator.decided(Decision(self.gid, branches, time.time_ns() // 1000))
        except (errors.RequestRefused, errors.StorageUnavailable) as error:
            self._abort(error)
            raise
        except BaseException:
            self._is_open_question = True
            # it may be decided: they stay prepared now, and the next start ends them
            for name in self._voters:
                self._resources[name].abandon()
            raise
        self.outcome = State.COMMITTED

    def tell(self) -> None:
        """Run the second phase. Participants that cannot be told now are told in the background."""
        untold: list[str] = []
        failure: BaseException | None = None
        try:
            for name in self._voters:
                try:
                    ending = self._resources[name].finish(True, self._contents[name].witness)
                except Exception as error:  # noqa: BLE001 - the decision stands, whatever a driver says
                    failure = error
                    untold.append(name)
                    log.warning("%s is committed; %s could not be told yet: %s", self.gid, name, error)
                    self._resources[name].abandon()
                else:
                    self._coordinator.acknowledged(Branch(self.gid, name), ending)
        finally:
            self._coordinator.left(self.gid)
        if untold:
            self._coordinator.hurry(self.gid, untold)
        if (mixed := self._coordinator.mixed(self.gid)) is not None:
            raise mixed
        if untold:
            raise errors.DeliveryPending(
                f"transaction {self.gid} is committed, but {', '.join(untold)} could not be told ({failure}) and "
                "shows it later, by itself. Do not do the work again"
            ) from failure

    # -- the other end -----------------------------------------------------------------------------

    def rollback(self) -> None:
        """Roll back at every participant; does nothing if it has ended, or if it is unknown whether it is decided."""
        if self.outcome in (State.ACTIVE, State.PREPARED) and not self._is_open_question:
            self._abort(None)

    def _abort(self, error: BaseException | None) -> None:
        """Roll everything back. Nothing is logged: a participant thread rolls back any branch without a decision."""
        self.outcome = State.ROLLED_BACK
        untold = []
        try:
            for name in self._begun:
                resource = self._resources[name]
                try:
                    ending = resource.finish(False, self._contents.get(name, Content(True)).witness)
                    self._coordinator.rolled_back(Branch(self.gid, name), ending)
                except Exception as failure:  # noqa: BLE001 - presumed abort: the background does it
                    untold.append(name)
                    note = f"{name!r} could not be told to roll back {self.gid} ({failure}); it is told later"
                    log.warning("%s", note)
                    if error is not None:
                        error.add_note(note)
                    resource.abandon()
        finally:
            self._coordinator.left(self.gid)
        if untold:
            self._coordinator.hurry(self.gid, untold)

    def _ended(self, state: State) -> None:
        self.outcome = state
        self._coordinator.left(self.gid)


def _alone_unknown(gid: str, name: str, witness: str, error: BaseException) -> str:
    ask = f" (PostgreSQL: SELECT pg_xact_status('{witness}'))" if witness else ""
    return (
        f"{name!r} was the only participant of {gid} with anything to commit, so it was committed in one phase, and "
        f"the answer was lost ({error}). Whether it is committed only {name!r} knows{ask}; no other one took part"
    )
