"""Who owns a transaction, and who acts on one from elsewhere: as records, checkpoints and answers have them.

A *principal* is who somebody has proven to be; :data:`ANONYMOUS` has proven nothing. Nobody states a principal himself:
it is the session's. Names of clients and of people are what they say of themselves.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

ANONYMOUS: Final = "anonymous"
"""The principal of a session that has not logged in."""
ADMINISTRATOR: Final = "@admin"
"""The principal of a session that came through the administrator's socket. No user can have this name."""
MAX_PRINCIPAL: Final = 64
MAX_CLIENT: Final = 255
MAX_ADDRESS: Final = 255
MAX_ACTOR: Final = 4096
"""Most characters of each; a record or row with more is not read."""

Principal = Annotated[str, msgspec.Meta(max_length=MAX_PRINCIPAL)]


class Owner(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Whose a transaction is: the principal of the session that began it, its client's name, where it came from."""

    principal: Principal
    client: Annotated[str, msgspec.Meta(max_length=MAX_CLIENT)]
    address: Annotated[str, msgspec.Meta(max_length=MAX_ADDRESS)]

    def __str__(self) -> str:
        whose = f"{self.client}@{self.address}" if self.client else self.address
        return with_principal(whose, self.principal)


class Actor(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The actor that decided or forgot something: the name that was given, and the principal of its session, if any."""

    name: Annotated[str, msgspec.Meta(max_length=MAX_ACTOR)]
    principal: Principal = ""

    def __str__(self) -> str:
        return with_principal(self.name, self.principal)


def with_principal(name: str, principal: str) -> str:
    """A name for people, with the principal where that says something."""
    return name if principal in ("", ANONYMOUS) else f"{name} ({principal})"


def parts_of(owner: Owner | None) -> tuple[str, str, str]:
    """Principal, client and address; empty where nobody is known."""
    return ("", "", "") if owner is None else (owner.principal, owner.client, owner.address)


def parts_of_actor(actor: Actor | None) -> tuple[str, str]:
    """Name and principal; empty where nobody is named."""
    return ("", "") if actor is None else (actor.name, actor.principal)
