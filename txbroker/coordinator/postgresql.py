"""PostgreSQL as a participant, over psycopg.

``PREPARE TRANSACTION`` is executed as a statement, not by ``tpc_prepare()``. In a failed transaction PostgreSQL answers
it with success and the tag ROLLBACK, which psycopg does not look at. After a refused one a psycopg connection accepts
neither ``rollback()`` nor ``tpc_rollback()``. The id is the one that psycopg makes of an xid: ``tpc_recover()`` finds
it.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from journal.transaction_states import State
from txbroker import errors
from txbroker.coordinator.gids import Branch
from txbroker.coordinator.resource import Content, Ending, Resource, decided
from txbroker.databases.adapters.adapter import run
from txbroker.databases.adapters.database import Condition
from txbroker.databases.adapters.postgresql import PsycopgDatabase, sqlstate

MAX_GID: Final = 199
"""Bytes of an identifier of PostgreSQL's prepared transactions."""

_NO_SUCH: Final = "42704"
_BEGIN: Final = (
    "SELECT set_config('txbroker.block', %s, true), current_setting('max_prepared_transactions'), "
    "pg_is_in_recovery()"
)
_LOOK: Final = "SELECT pg_current_xact_id_if_assigned()::text, current_setting('txbroker.block', true)"
_IDENTITY: Final = (
    "SELECT s.system_identifier || '/' || d.oid FROM pg_control_system() AS s, pg_database AS d "
    "WHERE d.datname = current_database()"
)


class PostgresqlResource(Resource):
    """One psycopg connection. Its witness is PostgreSQL's number of the transaction, whose outcome PostgreSQL
    remembers.
    """

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._database = PsycopgDatabase(connection)
        self._token = ""
        self._identity = ""
        self._begun = self._prepared = False

    @property
    def identity(self) -> str:
        """Return the cluster's system identifier and the database's number."""
        return self._identity or self._read_identity()

    def _read_identity(self) -> str:
        within = self._database.condition() is Condition.OPEN
        self._identity = str(self._ask(_IDENTITY)[0])
        if not within:
            self.connection.rollback()
        return self._identity

    def _ask(self, statement: str, *parameters: Any) -> Any:
        return run(self._database.execute(statement, parameters)).rows[0]

    # -- in a transaction --------------------------------------------------------------------------

    def begin(self, branch: Branch) -> None:
        """Begin and mark the transaction. Raises Misuse if it could not be prepared."""
        condition = self._database.condition()
        if condition is not Condition.IDLE:
            raise errors.Misuse(
                f"participant {branch.name!r}: {condition.value}. A two-phase transaction begins on a connection that "
                "is in no transaction and not in autocommit mode: commit or roll back first; nothing was done"
            )
        self._branch, self._token, self._prepared = branch, secrets.token_hex(8), False
        self.connection.tpc_begin(self._xid(branch))
        self._begun = True
        try:
            _, places, standby = self._ask(_BEGIN, self._token)
            if places == "0" or standby:
                raise errors.Misuse(_cannot_prepare(branch.name, standby))
            if not self._identity:
                self._read_identity()
        except BaseException:
            self.finish(False, "")
            raise

    def look(self) -> Content:
        """Return whether it has written anything. Raises Misuse if the transaction failed, or is no longer the
        one begun.
        """
        condition = self._database.condition()
        number, token = self._ask(_LOOK) if condition is Condition.OPEN else (None, "")
        if token != self._token:
            reason = (
                "a statement has failed in it and was not rolled back to a savepoint"
                if condition is Condition.FAILED
                else "the program committed or rolled it back itself"
            )
            raise errors.Misuse(
                f"the transaction of participant {self._branch.name!r} cannot be prepared: {reason}. Everything else "
                "is rolled back; what the program committed itself stays"
            )
        return Content(number is None, number or "")

    def prepare(self) -> None:
        """Prepare, and check that it was prepared."""
        gid = str(self._xid_of(self._branch))
        cursor = self._database.cursor()
        try:
            cursor.execute(f"PREPARE TRANSACTION '{gid}'")
            if cursor.statusmessage != "PREPARE TRANSACTION":
                raise errors.TransactionRolledBack(
                    f"PostgreSQL answered PREPARE TRANSACTION of {self._branch.name!r} with {cursor.statusmessage}: it "
                    "rolled back instead; everything is rolled back"
                )
        finally:
            cursor.close()
        self._begun, self._prepared = False, True
        # clears only psycopg's own state: the connection is in no transaction now
        self.connection.tpc_rollback()

    def finish(self, commit: bool, witness: str) -> Ending:
        """Run the second phase, or roll back an unprepared one."""
        if self._prepared:
            return self._end(self._branch, commit, witness)
        if self._begun:
            self._begun = False
            self.connection.tpc_rollback()
        return decided(False)

    def commit_alone(self) -> None:
        """Commit in one phase; after it psycopg has no two-phase transaction, whatever its result."""
        self._begun = False
        self.connection.tpc_commit()

    def did_not_commit(self, error: BaseException) -> bool:
        """Return whether it certainly was not committed, by psycopg and the SQLSTATE."""
        return self._database.did_not_commit(error)

    def abandon(self) -> None:
        """Close a connection that is in another state; only the server knows of prepared transactions."""
        if self._database.condition() is not Condition.IDLE:
            self.connection.close()

    # -- over what others began ----------------------------------------------------------------------

    def _is_here(self, xid: Any) -> bool:
        """Return whether it is of this database: PostgreSQL lists those of all, and ends them from their own only."""
        return bool(xid.database == self.connection.info.dbname)

    def end(self, branch: Branch, commit: bool, witness: str, is_listed: bool) -> Ending:  # noqa: ARG002
        """End it, or ask the server how it ended."""
        return self._end(branch, commit, witness)

    def _end(self, branch: Branch, commit: bool, witness: str) -> Ending:
        try:
            return super()._end(branch, commit, witness)
        except Exception as error:
            if sqlstate(error) != _NO_SUCH or self.connection.closed:
                raise
        return self._how_it_ended(branch, commit, witness)

    def _how_it_ended(self, branch: Branch, commit: bool, witness: str) -> Ending:
        """Return how it ended: PostgreSQL keeps outcomes until the numbers are recycled, millions later."""
        if not witness:
            return decided(commit)
        (status,) = self._ask("SELECT pg_xact_status(%s::xid8)", witness)
        self.connection.rollback()
        if status == "in progress":
            raise errors.OutcomeUnknown(
                f"PostgreSQL's transaction {witness} ({branch.gid}, {branch.name!r}) is neither prepared nor ended at "
                "this moment; it is asked again"
            )
        if status is None:
            return decided(commit)
        state = State.COMMITTED if status == "committed" else State.ROLLED_BACK
        return Ending(state, "", f"PostgreSQL says of its transaction {witness}: {status}")

    def _xid_of(self, branch: Branch) -> Any:
        xid = self._xid(branch)
        assert len(str(xid)) <= MAX_GID
        return xid


def _cannot_prepare(name: str, standby: bool) -> str:
    if standby:
        return f"participant {name!r} is a hot standby, which prepares nothing: use the primary; nothing was done"
    return (
        f"participant {name!r}: PostgreSQL has max_prepared_transactions = 0 (as it is shipped), so nothing can be "
        "prepared. Set it to at least max_connections and restart PostgreSQL, or use txbroker.atomic, which does not "
        "need it; nothing was done"
    )
