"""The options of a write, read and checked before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from journal.formats.compression import NAMES as CODECS
from journal.formats.compression import compressor
from spark import quantities
from spark.sink.branches import Write, of_application
from spark.source.options import check_known
from txbroker import errors
from txbroker.client.core import url as urls

SPARKS_OWN: Final = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})
"""Options of Spark that it passes on to every sink."""

NOTHING: Final = "nothing was written"
PARTITIONERS: Final = ("key", "none")


class SinkOptions(NamedTuple):
    """The options of a write; ``docs/spark.md`` explains each. Sizes in bytes, times in seconds."""

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
    """Parse the options of a sink, in any case; raises InvalidSetting, Misuse for an address."""
    given = {name.lower(): value for name, value in options.items() if name.lower() not in SPARKS_OWN}
    check_known(given, [*OPTIONS], NOTHING)
    if "broker" not in given:
        raise errors.InvalidSetting(
            f"the option 'broker' must say which broker, such as 'tcp:127.0.0.1:7654'; {NOTHING}"
        )
    read: dict[str, Any] = {}
    for name, (field, reader) in OPTIONS.items():
        if name.lower() in given:
            read[field] = reader(name, given[name.lower()])
    urls.parse(read["broker"])
    compressor(read.get("compression"), read.get("compression_level"))
    application, version = read.pop("application", None), read.pop("version", None)
    return SinkOptions(**read, write=_write(application, version, read.get("topic", "")))


def _write(application: str | None, version: int | None, topic: str) -> Write | None:
    if application is None and version is None:
        return None
    if application is None or version is None:
        raise errors.InvalidSetting(
            f"txnAppId and txnVersion name a write together, and one is missing; {NOTHING}"
        )
    return of_application(application, topic, version)


def _text(name: str, value: str) -> str:  # noqa: ARG001
    return value


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit()):
        raise _wrong(name, value, "a whole number from 0 on")
    return int(value)


def _size(name: str, value: str) -> int:
    try:
        found = quantities.size(value)
    except ValueError:
        found = 0
    if found < 1:
        raise _wrong(name, value, "a size above 0, such as 262144, 256KiB or 256k")
    return found


def _seconds(name: str, value: str) -> float:
    try:
        seconds = quantities.micros(value) / 1e6
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
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
    return errors.InvalidSetting(f"option {name!r} is {value!r}, it must be {expected}; {NOTHING}")


OPTIONS: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "broker": ("broker", _text),
    "topic": ("topic", _text),
    "partitioner": ("by_key", _partitioner),
    "batchBytes": ("batch_bytes", _size),
    "compression": ("compression", _compression),
    "compressionLevel": ("compression_level", _level),
    "branchBytes": ("branch_bytes", _size),
    "branchSeconds": ("branch_seconds", _seconds),
    "txnAppId": ("application", _text),
    "txnVersion": ("version", _whole),
    "auditTopic": ("audit_topic", _text),
    "timeout": ("timeout", _seconds),
}
"""Each option, as it is written in the docs: the field that it sets, and its parser.

``application`` and ``version`` together are the field ``write``.
"""
