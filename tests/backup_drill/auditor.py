"""``python -m tests.backup_drill.auditor OUT``: Spark's audit of one directory after the other, in one Java machine.

Each line of its input is the path of a data directory at rest; for each it prints a line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from txbroker.drill.judgement.violation import Violation, Wrong

PATIENCE = 600.0
"""Seconds for one audit: the first starts the machine. On two cores that do nothing else one takes less than 20 s."""

ANSWER = "audited "


class Audited(NamedTuple):
    """What an audit has found, how many messages it has proven, and its seconds."""

    violations: list[Violation]
    messages: int
    seconds: float


class Auditor:
    """The process that audits. What Spark says goes to a file."""

    def __init__(self, out: Path) -> None:
        self._log = out / "audits.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.backup_drill.auditor", str(out / "audit")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def audit(self, data: Path) -> Audited:
        """Audit a directory that nobody has open."""
        assert self._process.stdin is not None
        began = time.monotonic()
        watch = threading.Timer(PATIENCE, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(f"{data}\n")
            self._process.stdin.flush()
            answer = self._answer()
        except BrokenPipeError:
            answer = ""
        finally:
            watch.cancel()
        seconds = time.monotonic() - began
        if not answer:
            text = f"Spark's audit did not end after {seconds:.0f} s, or not by itself; see {self._log}"
            return Audited([Violation(wrong=Wrong.FILES, text=text)], 0, seconds)
        said = json.loads(answer)
        violations = [
            Violation(wrong=Wrong.FILES, text=f"Spark's audit: {each}") for each in said["violations"]
        ]
        return Audited(violations, said["messages"], seconds)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return line.removeprefix(ANSWER)
        return ""

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(out: str) -> None:
    """Audit what comes on standard input."""
    from spark.audit.__main__ import summary_lines
    from spark.audit.conduct import Plan, conduct

    for line in sys.stdin:
        summary = conduct(Plan(line.strip(), out, "local[2]", [], 60_000_000, []))
        violations = [] if summary["sound"] else summary_lines(summary, out)
        said = {"violations": violations, "messages": summary["logs"]["messages"]}
        print(f"{ANSWER}{json.dumps(said)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
