"""What can be said about a write: its options, read and checked before anything is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from journal.compression import NAMES as CODECS
from journal.compression import compressor
from spark.branches import Write, of_application
from spark.options import check_known, interval
from txbroker import errors
from txbroker.client import url as urls

SPARKS_OWN: Final = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})
"""Options of Spark that it hands on to every sink."""

NOTHING: Final = "nothing was written"
PARTITIONERS: Final = ("key", "none")
_SIZE = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class SinkOptions(NamedTuple):
    """How to write; ``docs/spark.md`` explains each. Sizes in bytes, times in seconds."""

    broker: str
    topic: str = ""
    by_key: bool = True
    batch_bytes: int = 256 << 10
    branch_bytes: int = 15 << 20
    branch_seconds: float = 20.0
    timeout: float = 30.0
    audit_topic: str = ""
    write: Write | None = None
    """The write's name and version, if the program has given them."""
    compression: str | None = None
    compression_level: int | None = None


def parse(options: Mapping[str, str]) -> SinkOptions:
    """Read the options of a sink, whatever their case; raises InvalidSetting, Misuse for an address."""
    given = {name.lower(): value for name, value in options.items() if name.lower() not in SPARKS_OWN}
    check_known(given, [*NAMES.values()], NOTHING)
    if "broker" not in given:
        raise errors.InvalidSetting(
            f"the option 'broker' must say which broker, such as 'tcp:127.0.0.1:7654'; {NOTHING}"
        )
    read: dict[str, Any] = {}
    for name, value in given.items():
        if name in _READERS:
            field, reader = _READERS[name]
            read[field] = reader(name, value)
    urls.parse(read["broker"])
    compressor(read.get("compression"), read.get("compression_level"))
    return SinkOptions(**read, write=_write(given))


def _write(given: Mapping[str, str]) -> Write | None:
    name, version = given.get("txnappid"), given.get("txnversion")
    if name is None and version is None:
        return None
    if name is None or version is None:
        raise errors.InvalidSetting(
            f"txnAppId and txnVersion name a write together, and one is missing; {NOTHING}"
        )
    return of_application(name, given.get("topic", ""), _whole("txnVersion", version))


def _text(name: str, value: str) -> str:  # noqa: ARG001
    return value


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise _wrong(name, value, "a whole number from 0 on")
    return int(value)


def _size(name: str, value: str) -> int:
    found = _SIZE.fullmatch(value.strip())
    size = int(found[1]) * _FACTORS[found[2].lower()] if found else 0
    if size < 1:
        raise _wrong(name, value, "a size, such as 262144, 256k or 1g")
    return size


def _seconds(name: str, value: str) -> float:
    seconds = interval(value)
    if seconds is None or not 0 < seconds < 1e6:
        raise _wrong(name, value, "a time above 0, such as 500ms, 30s or 5m (without a unit: seconds)")
    return seconds


def _partitioner(name: str, value: str) -> bool:
    if value.lower() not in PARTITIONERS:
        raise _wrong(name, value, " or ".join(repr(each) for each in PARTITIONERS))
    return value.lower() == "key"


def _compression(name: str, value: str) -> str | None:
    if value.lower() not in ("none", *CODECS):
        raise _wrong(name, value, " or ".join(map(repr, (*CODECS, "none"))))
    return None if value.lower() == "none" else value.lower()


def _level(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise _wrong(name, value, "a whole number") from None


def _wrong(name: str, value: str, expected: str) -> errors.InvalidSetting:
    return errors.InvalidSetting(
        f"option {NAMES.get(name, name)!r} is {value!r}, it must be {expected}; {NOTHING}"
    )


_READERS: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "broker": ("broker", _text),
    "topic": ("topic", _text),
    "partitioner": ("by_key", _partitioner),
    "batchbytes": ("batch_bytes", _size),
    "branchbytes": ("branch_bytes", _size),
    "branchseconds": ("branch_seconds", _seconds),
    "timeout": ("timeout", _seconds),
    "audittopic": ("audit_topic", _text),
    "compression": ("compression", _compression),
    "compressionlevel": ("compression_level", _level),
}
_SPELT: Final = (
    "broker",
    "topic",
    "partitioner",
    "batchBytes",
    "branchBytes",
    "branchSeconds",
    "timeout",
    "auditTopic",
    "compression",
    "compressionLevel",
)
NAMES: Final = {name.lower(): name for name in (*_SPELT, "txnAppId", "txnVersion")}
assert NAMES.keys() == _READERS.keys() | {"txnappid", "txnversion"}
