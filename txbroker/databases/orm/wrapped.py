"""A driver's connection of which a mapper begins and ends the transactions."""

from __future__ import annotations

from typing import Any

from txbroker.databases.adapters.database import Database


class WrappedDatabase:
    """A :class:`Database` whose class says what the mapper does; the driver's database does all else."""

    driver: Database

    def __getattr__(self, name: str) -> Any:
        if name == "driver":
            raise AttributeError("the session's connection has not been got hold of")
        return getattr(self.driver, name)

    async def begin_marked(self, token: str) -> bool:  # noqa: ARG002
        """The mapper begins."""
        return False
