"""Settings from a TOML file and from the command line, merged; unknown ones are refused by name.

Every setting has one name in one flat list, in the file and on the command line, whichever part it belongs
to.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from journal.constants import MIB
from journal.engine.settings import JournalSettings
from journal.errors import InvalidSetting
from journal.quantities import Bytes, Micros, Quantity, check_range, quantities_of, read, written
from journal.transactions.limits import TransactionLimits
from txbroker.broker.sessions.settings import DAY, SECOND, BrokerSettings
from txbroker.server.settings import token_issuers
from txbroker.server.settings.log_names import Level, LogFormat
from txbroker.server.settings.proxies import Proxies

DEFAULT_LISTEN: Final = "tcp:7654:interface=127.0.0.1"

RANGES: Final[dict[str, tuple[int, int]]] = {
    "message_timeout": (SECOND, 7 * DAY),
    "unsent_timeout": (SECOND, 7 * DAY),
    "close_timeout": (1_000, 3600 * SECOND),
    "stop_timeout": (SECOND, DAY),
    "unsent_bytes": (MIB, 1 << 40),
    "assembly_bytes": (MIB, 1 << 40),
    "reader_threads": (1, 64),
    "switch_interval": (10, 100_000),
    "log_file_bytes": (64 * 1024, 1 << 40),
    "log_files": (1, 1000),
    "metrics_series": (0, 1_000_000),
    "scrub_rate": (0, 1 << 40),
    "scrub_interval": (SECOND, 366 * DAY),
}
"""Least and greatest value of each number, both allowed."""


STANDARD_OUTPUT: Final = "-"
"""The audit on standard output, in the place of a path."""

MAX_HOST: Final = 100
"""Most bytes of the name of a virtual host: it begins the names of its queues."""
_PATHS: Final = ("audit", "data", "http_token_file", "log_file")

_Part = TypeVar("_Part", bound=msgspec.Struct)


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the process; sizes in bytes, times in µs.

    ``data`` is the directory that holds everything, ``listen`` the Twisted endpoints, ``listen_amqp`` those for
    clients that speak AMQP 0-9-1, as RabbitMQ's do, and ``virtual_hosts`` the hosts that they may choose beside
    ``/``; ``insecure_open`` allows those that others than this machine's
    meant users can reach. ``proxies`` are addresses and networks of proxies, which say in a PROXY header for whom
    each of their connections is. ``http`` are the endpoints for health and metrics; whoever reaches one of them
    over a network shows the token in ``http_token_file``. Metrics have at most ``metrics_series`` series of topics,
    queues and groups. The tokens of ``token_issuers`` let in: each is an issuer, its audience and a file of its
    keys, with spaces between them. The log has lines of ``log_level`` and above, in ``log_format``. With
    ``log_file`` it is written there, and begun anew after ``log_file_bytes``; ``log_files`` older ones are kept.
    ``audit`` is the file of the audit, ``-`` standard output, empty for none. A message must be complete
    ``message_timeout`` after its first byte. A peer that has read nothing for ``unsent_timeout`` is dropped, one
    that is being closed gets ``close_timeout`` for reading its last answers. Stopping takes ``stop_timeout`` at
    most. ``unsent_bytes`` bounds the answers that all peers have not read, ``assembly_bytes`` the unfinished
    messages of all. ``reader_threads`` serve reads that have to wait for the disk. ``switch_interval`` is Python's.
    The scrubber reads ``scrub_rate`` bytes a second at most, none if that is 0; a pass over all files begins every
    ``scrub_interval``.
    """

    data: str
    audit: str = ""
    listen: tuple[str, ...] = (DEFAULT_LISTEN,)
    listen_amqp: tuple[str, ...] = ()
    virtual_hosts: tuple[str, ...] = ()
    insecure_open: bool = False
    proxies: tuple[str, ...] = ()
    http: tuple[str, ...] = ()
    http_token_file: str = ""
    metrics_series: int = 0
    token_issuers: tuple[str, ...] = ()
    log_file: str = ""
    log_file_bytes: Bytes = 64 * MIB
    log_files: int = 10
    log_format: LogFormat = LogFormat.TEXT
    log_level: Level = Level.INFO
    message_timeout: Micros = 60 * SECOND
    unsent_timeout: Micros = 60 * SECOND
    close_timeout: Micros = 10 * SECOND
    stop_timeout: Micros = 30 * SECOND
    unsent_bytes: Bytes = 64 * MIB
    assembly_bytes: Bytes = 64 * MIB
    reader_threads: int = 2
    switch_interval: Micros = 200
    scrub_rate: Bytes = 8 * MIB
    scrub_interval: Micros = DAY

    def __post_init__(self) -> None:
        """Raise :class:`InvalidSetting`, naming field, value and range, for the first value out of range."""
        for name, bounds in RANGES.items():
            quantity = quantities_of(ServiceSettings)[name]
            check_range(name, getattr(self, name), quantity, bounds, state="nothing was started")
        if not self.data:
            raise InvalidSetting("setting data is empty, it must name the directory for the data")
        if not self.listen:
            raise InvalidSetting("setting listen is empty, it must hold at least one endpoint")
        if both := sorted(set(self.listen) & set(self.listen_amqp)):
            raise InvalidSetting(
                f"settings listen and listen_amqp both have {both[0]}: each endpoint speaks one protocol; nothing was "
                "started"
            )
        for host in self.virtual_hosts:
            if not host or "/" in host or len(host.encode()) > MAX_HOST or self.virtual_hosts.count(host) > 1:
                raise InvalidSetting(
                    f"setting virtual_hosts has {host!r}: each must have 1 to {MAX_HOST} bytes without '/', and be "
                    "there once; nothing was started"
                )
        try:
            Proxies(self.proxies)
        except ValueError as error:
            raise InvalidSetting(
                f"setting proxies: {error}; it must be addresses and networks, as 192.0.2.7 and 2001:db8:7::/48; "
                "nothing was started"
            ) from None
        for name, path in (("log_file", self.log_file), ("audit", self.audit)):
            if path and os.path.dirname(path) == self.data:
                raise InvalidSetting(
                    f"setting {name} is {path}, in the directory of the data, where only the broker's own files may "
                    "be; nothing was started"
                )

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Return all endpoints that clients connect to."""
        return self.listen + self.listen_amqp


class Config(NamedTuple):
    """All settings of a process."""

    service: ServiceSettings
    broker: BrokerSettings
    journal: JournalSettings


_TRANSACTION_LIMITS: Final = {
    "max_transactions": "transactions",
    "max_transaction_messages": "messages",
    "max_transaction_requests": "requests",
    "max_transaction_bytes": "bytes",
    "max_transaction_partitions": "partitions",
    "max_total_transaction_messages": "total_messages",
    "max_total_transaction_requests": "total_requests",
    "max_total_transaction_bytes": "total_bytes",
    "max_total_transaction_offsets": "total_offsets",
    "max_outcomes": "outcomes",
}
"""The journal's limits on transactions, whose names are too short without a prefix."""

assert set(_TRANSACTION_LIMITS.values()) == set(TransactionLimits.__struct_fields__)


class _Place(NamedTuple):
    """Where a setting belongs."""

    part: type[msgspec.Struct]
    field: str


def _places() -> dict[str, _Place]:
    places = {name: _Place(TransactionLimits, field) for name, field in _TRANSACTION_LIMITS.items()}
    for part in (ServiceSettings, BrokerSettings, JournalSettings):
        for field in part.__struct_fields__:
            assert field not in places, f"two settings are called {field}"
            places[field] = _Place(part, field)
    del places["limits"]
    return places


KNOWN: Final = _places()
"""Every setting by name."""


def defaults() -> dict[str, Any]:
    """Return every setting that has a default, with it."""
    found: dict[str, Any] = {}
    for name, (part, field) in KNOWN.items():
        without = len(part.__struct_fields__) - len(part.__struct_defaults__)
        position = part.__struct_fields__.index(field) - without
        if position >= 0:
            found[name] = part.__struct_defaults__[position]
    return found


def read_file(path: str) -> dict[str, Any]:
    """Return the settings of a TOML file. Raises :class:`InvalidSetting` if it cannot be read or is not TOML."""
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise InvalidSetting(f"the file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"the file {path} is not TOML: {error}") from error
    for name in values:
        check_known(name, f"in {path}")
    # relative to the file, as people expect, wherever the process was started
    return _with_paths_in(os.path.dirname(os.path.abspath(path)), values)


def _with_paths_in(folder: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with absolute paths: relative ones are meant from a folder."""
    found = dict(values)
    for name in _PATHS:
        if isinstance(found.get(name), str) and found[name] not in ("", STANDARD_OUTPUT):
            found[name] = os.path.abspath(os.path.join(folder, found[name]))
    issuers = found.get("token_issuers")
    if isinstance(issuers, str):
        found["token_issuers"] = token_issuers.described_from(folder, issuers)
    elif isinstance(issuers, list | tuple):
        found["token_issuers"] = [
            token_issuers.described_from(folder, each) if isinstance(each, str) else each for each in issuers
        ]
    return found


def check_known(name: str, where: str) -> None:
    """Raise :class:`InvalidSetting` for an unknown name, with the nearest known one."""
    if name not in KNOWN:
        near = difflib.get_close_matches(name, KNOWN, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(KNOWN))}"
        raise InvalidSetting(f"there is no setting {name!r} ({where}); {advice}")


def merged(*sources: Mapping[str, Any]) -> Config:
    """Return the settings of all sources; later ones win. Raises :class:`InvalidSetting`.

    Durations are text with a unit, as in a file and on the command line.
    """
    values: dict[str, Any] = {}
    for source in sources:
        values.update({name: _plain(name, value) for name, value in source.items()})
    if "data" not in values:
        raise InvalidSetting("setting data is missing: say where the data is to be kept (--data DIRECTORY)")
    values = _with_paths_in(os.getcwd(), values)
    limits = _part(TransactionLimits, values)
    broker = _part(BrokerSettings, values)
    journal = msgspec.structs.replace(_part(JournalSettings, values), limits=limits).check()
    if journal.pool_bytes < 2 * broker.max_request:
        pool, request = (written(Quantity.SIZE, each) for each in (journal.pool_bytes, broker.max_request))
        raise InvalidSetting(
            f"setting pool_bytes is {pool}, it must be at least twice max_request ({request}): half of it is for "
            "messages on their way to segments, and the largest request must fit in there"
        )
    return Config(_part(ServiceSettings, values), broker, journal)


def _part(part: type[_Part], values: Mapping[str, Any]) -> _Part:
    mine = {}
    for name, value in values.items():
        place = KNOWN[name]
        if place.part is part:
            mine[place.field] = _typed(name, value, part, place.field)
    try:
        return msgspec.convert(mine, part)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidSetting):
            raise error.__cause__ from None
        raise InvalidSetting(f"a setting has the wrong type: {error}") from error


def _typed(name: str, value: Any, part: type[msgspec.Struct], field: str) -> Any:
    wanted = get_type_hints(part)[field]
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        if isinstance(wanted, type) and issubclass(wanted, Enum):
            choices = ", ".join(str(choice.value) for choice in wanted)
            raise InvalidSetting(f"setting {name} is {value!r}, it must be one of {choices}") from error
        raise InvalidSetting(f"setting {name} is {value!r}: {str(error).lower()}") from error


def _plain(name: str, value: Any) -> Any:
    """Return the value as the setting's type; numbers are parsed by their quantity (:mod:`journal.quantities`)."""
    place = KNOWN[name]
    if name in ("listen", "listen_amqp", "http", "token_issuers") and isinstance(value, str):
        return (value,)
    if name in ("proxies", "virtual_hosts") and isinstance(value, str):
        return tuple(filter(None, map(str.strip, value.split(","))))
    kind = get_type_hints(place.part)[place.field]
    if bool in (kind, *get_args(kind)) and value in ("on", "off"):
        return value == "on"
    quantity = quantities_of(place.part).get(place.field)
    if quantity is None:
        return value
    if value == "off" and type(None) in get_args(kind):
        return None
    try:
        return read(quantity, value)
    except ValueError as error:
        raise InvalidSetting(f"setting {name}: {error}") from None


def value_of(made: Config, name: str) -> Any:
    """Return the value of a setting."""
    place = KNOWN[name]
    limits = made.journal.limits
    part = next(part for part in (*made, limits) if isinstance(part, place.part))
    return getattr(part, place.field)


def readable(name: str, value: Any) -> str:
    """Return a setting's value as it is given in a file or on the command line."""
    if value is None or isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        value = ", ".join(value)
    if isinstance(value, str):
        return str(value) or "none"
    place = KNOWN[name]
    quantity = quantities_of(place.part).get(place.field)
    return str(value) if quantity is None else written(quantity, value)
