"""A driver's connection whose transactions a mapper begins and ends."""

from __future__ import annotations

from typing import Any

from txbroker.databases.adapters.database import Database


class WrappedDatabase:
    """A :class:`Database` whose class calls the mapper to begin and end; the driver's database does everything else."""

    driver: Database

    def __getattr__(self, name: str) -> Any:
        if name == "driver":
            raise AttributeError("the session's connection has not been got hold of")
        return getattr(self.driver, name)

    commits_with_row = False
    """The mapper commits."""

    async def begin_marked(self, token: str) -> bool:  # noqa: ARG002
        """Return False: the mapper begins."""
        return False
