"""A real standalone Spark: a master and two workers, each a JVM, on two addresses of the loopback interface.

Two addresses, for Spark starts a speculative copy of a task only on another host.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
HOSTS = ("127.0.0.2", "127.0.0.3")
DEPLOY = "org.apache.spark.deploy"


class Standalone:
    """A context manager: starts it, and ends it with all executors. ``master`` is its address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = ""
        self.log: list[str] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        try:
            master = [f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            self.master = self._start(master, r"Starting Spark master at (spark://\S+)")
            for host in HOSTS:
                worker = [f"{DEPLOY}.worker.Worker", "--host", host, "--port", "0", "--webui-port", "0"]
                size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / host)]
                self._start([*worker, *size, self.master], r"(Successfully registered with master)")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, command: list[str], ready: str) -> str:
        process = subprocess.Popen(
            [str(SPARK_CLASS), *command],
            cwd=self.folder,
            env={**os.environ, "SPARK_DAEMON_MEMORY": "256m"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._processes.append(process)
        found: list[str] = []
        told = threading.Event()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                self.log.append(line)
                if match := re.search(ready, line):
                    found.append(match[1])
                    told.set()
            told.set()

        self._readers.append(threading.Thread(target=read, daemon=True))
        self._readers[-1].start()
        assert told.wait(120), "".join(self.log)
        assert found, "".join(self.log)
        return found[0]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A worker that is asked to end ends its executors first; then nobody needs the master."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait(60)
        for process, reader in zip(self._processes, self._readers, strict=True):
            reader.join(60)
            if process.stdout is not None:
                process.stdout.close()
