"""The failures of Spark that keep an audit from being made, in words that say what to do."""

from __future__ import annotations

import os
import re
import socket
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.utils import is_remote

from journal.errors import InvalidSetting, StorageUnavailable

SPARK: Final = (PySparkException, Py4JError)
"""The errors that Spark raises."""
MASTER_TIMEOUT: Final = 5.0
"""Seconds for which a master's port is tried. Spark itself tries for a minute, and then does not report it."""
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*): (.+)$", re.MULTILINE)
_MASTER: Final = re.compile(r"local(-cluster)?(\[[^\]]+\])?|yarn|(spark|k8s)://.+")
_PYTHON: Final = "Traceback (most recent call last):"


def reason(error: Exception) -> str:
    """Return in a line why Spark has failed: the error of a worker, if there is one; else Spark's message, without a
    trace.
    """
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.toString())
    else:
        text = str(error)
    if "JAVA_GATEWAY_EXITED" in text:
        return (
            "Spark's Java did not start; nothing was audited. Spark needs Java 17, found by JAVA_HOME or as java on "
            "the PATH (Debian: openjdk-17-jre-headless); what it has written above says more"
        )
    _, found, trace = text.rpartition(_PYTHON)
    if found and (raised := _RAISED.search(trace)):
        return f"{raised[2]} ({raised[1]}, in a worker of Spark)"
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")
    ]
    said = lines[0].rstrip(".") if lines else type(error).__name__
    return f"Spark says: {said}. Nothing is proven; what Spark has written above says more"


def check_not_connect(master: str | None) -> None:
    """Raise :class:`InvalidSetting` if Spark is to be reached through Spark Connect, by any of its settings."""
    asked = {
        f"--master {master}": (master or "").startswith("sc://"),
        "the variable SPARK_REMOTE": "SPARK_REMOTE" in os.environ,
        "the active session": is_remote(),
    }
    if found := next((how for how, is_so in asked.items() if is_so), None):
        raise InvalidSetting(
            f"{found} is of Spark Connect, and an audit cannot be made through it: it needs what a Connect server does "
            "not take over (RDDs, broadcast variables). Nothing was audited, no report was touched. Give --master "
            "local[*], spark://HOST:PORT, yarn or k8s://…, with SPARK_REMOTE unset"
        )


def check_master(master: str) -> None:
    """Raise :class:`InvalidSetting` if Spark knows no such master, :class:`StorageUnavailable` if none can be reached.

    Only a standalone cluster's masters are tried.
    """
    if not _MASTER.fullmatch(master):
        raise InvalidSetting(
            f"--master {master!r} is none that Spark knows; nothing was audited. Give local[*], spark://HOST:PORT, "
            "yarn or k8s://…, or leave it out to use this machine"
        )
    if not master.startswith("spark://"):
        return
    failed = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), MASTER_TIMEOUT):
                return
        except (OSError, ValueError) as error:
            failed.append(f"{address}: {error}")
    raise StorageUnavailable(
        f"no master of Spark can be reached at {master} ({'; '.join(failed)}); nothing was audited. Give --master the "
        "address that the master's log or web page names, spark://HOST:PORT, or leave it out to use this machine"
    )
