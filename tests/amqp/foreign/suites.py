"""The suites of others, at which broker they are pointed, and how they are run: each in a process of its own.

``make test-amqp`` has unpacked their archives into .make/foreign-suites, and installed what they import into
.make/foreign.
"""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.repository import ROOT

HERE = Path(__file__).parent
PYTHON = ROOT / ".make/foreign/bin/python"
SOURCES = ROOT / ".make/foreign-suites"
PLUGINS = HERE / "plugins"
RECORDS = ROOT / "build/foreign"
"""What each run has written: its output, and its outcomes."""


@dataclass(frozen=True)
class Suite:
    """Tests for pytest. ``environment`` may name ``{port}``, the broker's, and ``{redis}``, that of a Redis."""

    name: str
    source: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    seconds: float = 300.0
    """After so long it is given up."""

    @property
    def wants_redis(self) -> bool:
        """Return whether it needs a Redis beside the broker."""
        return any("{redis}" in value for value in self.environment.values())

    def run(self, folder: Path, port: int, redis: int = 0) -> dict[str, str]:
        """Run the suite; return its cases with ``passed``, or what else became of them."""
        report = folder / "report.xml"
        plugins = [word for plugin in self.plugins for word in ("-p", plugin)]
        command = [
            str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", *plugins, *self.arguments,
            f"--basetemp={folder / 'tmp'}", f"--junitxml={report}",
        ]  # fmt: skip
        given = {key: value.format(port=port, redis=redis) for key, value in self.environment.items()}
        # A plugin that is there for one suite changes others: aiomisc's keeps SIGTERM from the children of pika's.
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHON"))},
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(PLUGINS),
            "PATH": os.pathsep.join((str(PYTHON.parent), os.environ["PATH"])),
            **given,
        }
        output = _run(self.name, command, SOURCES / self.source, environment, self.seconds)
        assert report.exists(), output[-8000:]
        return outcomes(report.read_text())


def outcomes(report: str) -> dict[str, str]:
    """Return the cases of a report in the format of JUnit, and what became of each, with the first line of why."""
    found: dict[str, str] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = [child for child in case if child.tag in ("failure", "error", "skipped")]
        outcome = "passed"
        if kinds:
            outcome = f"{kinds[0].tag}: {(kinds[0].get('message') or '').splitlines()[:1]}"
        # A case with several reports, as of its subtests or of its teardown, has passed if all of them have.
        if found.get(name, "passed") == "passed":
            found[name] = outcome
    return found


def run_go(folder: Path, port: int, seconds: float = 400.0) -> dict[str, str]:
    """Run the tests of amqp091-go from its module; return its cases with ``passed``, or what else became of them."""
    command = [
        "go", "test", "-json", "-count=1", "-tags", "integration", f"-timeout={seconds - 30:.0f}s",
        "github.com/rabbitmq/amqp091-go",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "AMQP_URL": f"amqp://guest:guest@127.0.0.1:{port}/",
        "GOFLAGS": "-mod=readonly",
    }
    output = _run("amqp091-go", command, HERE / "goamqp", environment, seconds)
    ends = {"pass": "passed", "fail": "failure", "skip": "skipped"}
    told = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {one["Test"]: ends[one["Action"]] for one in told if "Test" in one and one["Action"] in ends}


def _run(name: str, command: list[str], folder: Path, environment: Mapping[str, str], seconds: float) -> str:
    RECORDS.mkdir(parents=True, exist_ok=True)
    record = RECORDS / f"{name}.log"
    with record.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            log.write(f"\nnot ended after {seconds:.0f} s\n".encode())
    return record.read_text(errors="replace")


_BROKER = {"RABBITMQ_HOST": "127.0.0.1", "RABBITMQ_5672_TCP": "{port}", "AMQP_PORT": "{port}"}
_CELERY_PLUGINS = (
    "pytest_rerunfailures",
    "pytest_timeout",
    "pytest_order",
    "pytest_click",
    "pytest_celery.plugin",
)
_CELERY = {
    "TEST_BROKER": "pyamqp://guest:guest@127.0.0.1:{port}//",
    "TEST_BACKEND": "redis://127.0.0.1:{redis}",
    "REDIS_HOST": "127.0.0.1",
    "REDIS_PORT": "{redis}",
}
_ASYNCIO = ("aiomisc_pytest", "pytest_rst", "no_container", "pytest_timeout")

SUITES = (
    Suite("clients", ".", (str(HERE / "test_clients.py"), "--noconftest", "-c", os.devnull), _BROKER),
    Suite("kombu", "kombu-5.7.0", ("t/integration/test_py_amqp.py",), _BROKER),
    Suite("py-amqp", "amqp-5.4.2", ("t/integration/test_rmq.py", "-k", "not tls"), _BROKER),
    Suite(
        "pika", "pika-1.3.2",
        ("tests/acceptance", "-c", os.devnull, "--rootdir=.", "-o", "python_files=*_test.py *_tests.py",
         "--ignore=tests/acceptance/twisted_adapter_tests.py", "--ignore=tests/acceptance/io_services_tests.py"),
        _BROKER, ("real_port",),
    ),
    Suite(
        "aio-pika", "aio_pika-10.2.1",
        ("tests", "-o", "log_cli=false", "--timeout=180", "--ignore=tests/test_amqps.py"),
        _BROKER, _ASYNCIO, seconds=1200,
    ),
    Suite(
        "aiormq", "aiormq-7.2.4", ("tests", "--timeout=180", "-k", "not amqps"), _BROKER, _ASYNCIO, seconds=1200,
    ),
    Suite(
        "celery", "celery-5.7.0", ("t/integration", "--ignore=t/integration/test_backend.py", "--tb=line"), _CELERY,
        _CELERY_PLUGINS, seconds=3600,
    ),
)  # fmt: skip
"""Not run: pika's twisted_adapter_tests.py imports nose, which runs on no Python since 3.10; its io_services_tests.py
speaks to no broker; Celery's test_backend.py is for the store of a cloud. What is named amqps in the tests of aio-pika
and aiormq, and tls in those of py-amqp, is the others again over TLS, with the certificates of their container. Only
Celery's may run a failed case again, as it does for itself; and its failures are told in a line: for more, pytest
compiles the source anew, which beside the worker's threads is a SystemError at times, and the end of the run (CPython's
gh-106905, in 3.11.7).
"""
