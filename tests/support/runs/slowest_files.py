"""A pytest plugin that adds up the time of each test file, and prints the slowest files at the end of a run.

The first of its two columns is seconds by the clock, which other work on the machine lengthens; the second is seconds
of processor, of the worker and of the programs that have ended. A server or a Java machine that several tests share is
charged to the test after which it ends.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

SHOWN = 40
"""The rows of the table."""

KEPT = "seconds_of_files"
"""Where the cache of pytest has what each file took, for ``shares.py``."""


def _processor() -> float:
    """Return the seconds of processor that this process and its ended children have used."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@dataclass(eq=False)  # pluggy looks plugins up by hash
class SlowestFiles:
    """The plugin: it measures in the process that runs the tests, and adds up where the reports are shown."""

    before: float = 0.0
    seconds: Counter[str] = field(default_factory=Counter)
    processor: Counter[str] = field(default_factory=Counter)
    tests: Counter[str] = field(default_factory=Counter)

    def pytest_runtest_logstart(self) -> None:
        self.before = _processor()  # the collection belongs to no test

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":  # once for a test: to ask takes 0.1 ms
            report.processor = (
                _processor() - self.before
            )  # pytest-xdist sends the numbers and strings of a report
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self.seconds[file] += report.duration
        self.processor[file] += getattr(report, "processor", 0.0)
        self.tests[file] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.tests:
            return
        config = terminalreporter.config
        if config.pluginmanager.has_plugin("cacheprovider") and not config.option.keyword:
            config.cache.set(KEPT, dict(self.seconds))
        terminalreporter.section("slowest files")
        terminalreporter.write_line(f"{'seconds':>8} {'processor':>9} {'tests':>5}")
        for file, seconds in self.seconds.most_common(SHOWN):
            terminalreporter.write_line(self._row(seconds, self.processor[file], self.tests[file], file))
        files = f"all {len(self.seconds)} files"
        totals = self.seconds.total(), self.processor.total(), self.tests.total()
        terminalreporter.write_line(self._row(*totals, files))

    def _row(self, seconds: float, processor: float, tests: int, name: str) -> str:
        return f"{seconds:8.1f} {processor:9.1f} {tests:5} {name}"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SlowestFiles(), "slowest-files")
