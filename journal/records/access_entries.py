"""Users, their ways in, and rules, as records, checkpoints and requests have them (decision 0053)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Final

import msgspec

from journal.formats.checkpoint_rows import Count
from journal.quantities import LARGEST, LONGEST, Quantity

MAX_USER: Final = 64
USER_PATTERN: Final = rf"\A[A-Za-z0-9._-]{{1,{MAX_USER}}}\Z"
UserName = Annotated[str, msgspec.Meta(pattern=USER_PATTERN)]
"""The name of a user or role, in ASCII: no two of them look alike, and none is a principal that the broker makes up."""

ROLE: Final = "role:"
HOLDER_PATTERN: Final = rf"\A({ROLE})?[A-Za-z0-9._-]{{1,{MAX_USER}}}\Z"
Holder = Annotated[str, msgspec.Meta(pattern=HOLDER_PATTERN)]
"""Whom a rule is about: a user by name, or a role as ``role:NAME``."""

LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 1_000_000
DEFAULT_ITERATIONS: Final = 15_000
"""Of verifiers that are made, and of those that are made up for users that do not exist: so they look the same."""
DEFAULT_SALT_BYTES: Final = 16
MAX_PASSWORD: Final = 1_024
"""Most bytes of a password, in UTF-8."""
HASH_BYTES: Final = 32
AccessKey = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
_Hash = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]

MAX_WAYS: Final = 16
"""Most certificates, and most tokens, of one user; and most roles."""
MAX_IDENTITY: Final = 1_024
"""Most characters of a name in a certificate, of a token's issuer or of its subject."""
MAX_PATTERN: Final = 255

_Identity = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_IDENTITY)]


class ScramVerifier(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a password is proven by (SCRAM-SHA-256, RFC 5802 and 7677): it does not tell the password.

    Whoever has it can guess at the password, and pass for the broker; so it is hidden where it is shown.
    """

    salt: Annotated[bytes, msgspec.Meta(min_length=16, max_length=64)]
    iterations: Annotated[int, msgspec.Meta(ge=LEAST_ITERATIONS, le=MOST_ITERATIONS)]
    stored_key: _Hash
    server_key: _Hash

    def __repr__(self) -> str:
        return "ScramVerifier(hidden)"


class TokenSubject(msgspec.Struct, array_like=True, frozen=True, gc=False, order=True):
    """Whom a token is about: its claims ``iss`` and ``sub``."""

    issuer: _Identity
    subject: _Identity


_COUNTED: Final = msgspec.Meta(ge=0, le=LARGEST, extra={"quantity": Quantity.COUNT})
_Rate = Annotated[int, msgspec.Meta(ge=1, le=LARGEST, extra={"quantity": Quantity.SIZE})]
_Most = Annotated[int, _COUNTED]
_Age = Annotated[int, msgspec.Meta(ge=1, le=LONGEST, extra={"quantity": Quantity.DURATION})]


class Quotas(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The limits of one principal, over all its sessions; None for no limit.

    ``bytes_in`` and ``bytes_out`` are bytes a second; ``prepared_age``, in µs, is how long a transaction of it may stay
    prepared before that is told. The others are most sessions that are open, topics that it has made, producers that
    are remembered and transactions that are prepared.
    """

    bytes_in: _Rate | None = None
    bytes_out: _Rate | None = None
    sessions: _Most | None = None
    topics: _Most | None = None
    producers: _Most | None = None
    prepared: _Most | None = None
    prepared_age: _Age | None = None

    def given(self) -> dict[str, int]:
        """Return those that there are, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}


NO_QUOTAS: Final = Quotas()

_Ways = msgspec.Meta(max_length=MAX_WAYS)


class User(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A user: a principal, and the ways in which one proves to be it. Also its row in a checkpoint.

    ``certificates`` are subjects (RFC 4514) or alternative names of them, as ``DNS:client.example``.
    """

    name: UserName
    scram: ScramVerifier | None = None
    certificates: Annotated[list[_Identity], _Ways] = []
    tokens: Annotated[list[TokenSubject], _Ways] = []
    roles: Annotated[list[UserName], _Ways] = []
    quotas: Quotas = NO_QUOTAS


class Right(Enum):
    """The kinds of rights. ``DECIDE`` ends what another principal prepared, ``FORCE`` without its coordinator."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    ALTER = "alter"
    DELETE = "delete"
    DESCRIBE = "describe"
    PREPARE = "prepare"
    DECIDE = "decide"
    FORCE = "force"
    BACKUP = "backup"
    ADMINISTER = "administer"


class Resource(Enum):
    """On what: topics, groups and producers go by name, transactions by how their xids begin; there is one broker."""

    TOPIC = "topic"
    GROUP = "group"
    PRODUCER = "producer"
    TRANSACTION = "transaction"
    BROKER = "broker"
    QUEUE = "queue"
    EXCHANGE = "exchange"


RIGHTS_ON: Final[Mapping[Resource, tuple[Right, ...]]] = {
    Resource.TOPIC: (Right.READ, Right.WRITE, Right.CREATE, Right.ALTER, Right.DELETE, Right.DESCRIBE),
    Resource.GROUP: (Right.READ, Right.ALTER, Right.DELETE, Right.DESCRIBE),
    Resource.PRODUCER: (Right.WRITE,),
    Resource.TRANSACTION: (Right.DESCRIBE, Right.PREPARE, Right.DECIDE, Right.FORCE),
    Resource.BROKER: (Right.DESCRIBE, Right.BACKUP, Right.ADMINISTER),
    Resource.QUEUE: (Right.READ, Right.WRITE, Right.CREATE, Right.DELETE, Right.DESCRIBE),
    Resource.EXCHANGE: (Right.READ, Right.WRITE, Right.CREATE, Right.DELETE, Right.DESCRIBE),
}
"""The rights that there are on each resource; any other means nothing there. In the order of :class:`Right`."""


class Effect(Enum):
    """What a rule does. One that denies wins over all that allow."""

    ALLOW = "allow"
    DENY = "deny"


class Rule(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A rule: its holder has, or is denied, rights on the resources of that name, or whose names begin so.

    There is one for each holder, effect and choice of resources; it is gone when it has no rights. Also its row in a
    checkpoint.
    """

    holder: Holder
    effect: Effect
    resource: Resource
    pattern: Annotated[str, msgspec.Meta(max_length=MAX_PATTERN)]
    is_prefix: bool
    rights: list[Right]

    @property
    def key(self) -> RuleKey:
        """What there is one rule for."""
        return (self.holder, self.effect, self.resource, self.pattern, self.is_prefix)

    def __str__(self) -> str:
        """The rule as people write it: ``allow alice read,write topic orders*``. One may have no rights."""
        rights = ",".join(right.value for right in self.rights)
        named = "" if self.resource is Resource.BROKER else f" {self.pattern}{'*' if self.is_prefix else ''}"
        return f"{self.effect.value} {self.holder}{rights and f' {rights}'} {self.resource.value}{named}"


RuleKey = tuple[str, Effect, Resource, str, bool]


class AccessRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The part of a checkpoint beside users and rules; ``users`` counts the former, which come first.

    ``key`` is a secret of 32 bytes, by which salts of users that do not exist are made up.
    """

    is_on: bool
    is_confirmed: bool
    key: bytes
    changed: Count
    users: Count

    def __repr__(self) -> str:
        return f"AccessRow(is_on={self.is_on}, is_confirmed={self.is_confirmed}, users={self.users})"
