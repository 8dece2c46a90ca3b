"""PostgreSQL 15 from Debian's packages: rows instead of messages, by pgbench, and its own two-phase commit."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.peers.contender import Contender, Measure, Measures, Run
from benchmarks.peers.programs import output_of
from benchmarks.peers.server import PeerFailed, PeerMissing
from demo.database_process import children
from demo.postgresql import BINARIES, SUPERUSER, PostgresqlServer

CLIENTS = 64
SETTINGS = {
    "wal_sync_method": "fdatasync",
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",
    "max_connections": str(CLIENTS + 20),
    "max_prepared_transactions": str(CLIENTS + 20),
}
BODY = "x" * 100
INSERT = f"INSERT INTO messages (body) VALUES ('{BODY}')"
SCRIPTS = {
    "depth-1": (1, 1, "prepared", f"{INSERT};\n"),
    "one-phase": (CLIENTS, 1, "prepared", f"{INSERT};\n"),
    "one-phase-10": (CLIENTS, 10, "prepared", f"{INSERT}{f', ({BODY!r})' * 9};\n"),
    "two-phase": (
        CLIENTS, 1, "simple",
        f"BEGIN \\; {INSERT} \\; PREPARE TRANSACTION 'client-:client_id';\nCOMMIT PREPARED 'client-:client_id';\n",
    ),
}  # fmt: skip
"""By load: clients, rows in each transaction, pgbench's protocol, its script. All that can be sent together is."""


class Postgresql(Contender):
    """A table; loaded by pgbench over a UNIX socket."""

    name = "PostgreSQL"
    peer = "postgresql"
    durability = "write-ahead log forced before the answer"

    def __init__(self) -> None:
        self._server = PostgresqlServer(Path(), SETTINGS)

    def version(self) -> str:
        pgbench = BINARIES / "pgbench"
        if not pgbench.is_file():
            raise PeerMissing(f"there is no {pgbench}: .ci/need-debian '{pgbench}=postgresql-15' installs it")
        said = subprocess.run([str(pgbench), "--version"], capture_output=True, text=True, check=True).stdout
        return "PostgreSQL " + said.split()[2]

    def open(self, folder: Path) -> AbstractContextManager[object]:
        return self._open(folder)

    @contextmanager
    def _open(self, folder: Path) -> Iterator[None]:
        self._server = PostgresqlServer(folder.resolve(), SETTINGS)
        try:
            self._server.start()
            with self._server.connect(autocommit=True) as database:
                database.execute("CREATE TABLE messages (id bigserial PRIMARY KEY, body text NOT NULL)")
            yield
            self._server.stop()
        finally:
            self._server.kill()

    def runs(self) -> Mapping[str, Run]:
        return {load: functools.partial(self._run, load) for load in SCRIPTS}

    def processes(self) -> list[int]:
        assert self._server.pid is not None
        return [self._server.pid, *children(self._server.pid)]

    def settings(self) -> list[str]:
        return [f"{name} = {value}" for name, value in SETTINGS.items()] + [
            "fsync = on",
            "synchronous_commit = on",
        ]

    def clients(self) -> list[str]:
        shown = {load: script.replace(BODY, "…") for load, (_, _, _, script) in SCRIPTS.items()}
        return ["pgbench --jobs=2 over a UNIX socket"] + [
            f"{load}: --client={SCRIPTS[load][0]} --protocol={SCRIPTS[load][2]}: "
            + " / ".join(text.splitlines())
            for load, text in shown.items()
        ]

    def _run(self, load: str, warm_up: float, seconds: float) -> Measures:
        clients, rows, protocol, script = SCRIPTS[load]
        with self._server.connect(autocommit=True) as database:
            database.execute("TRUNCATE messages")
            database.execute("CHECKPOINT")
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch, "script.sql")
            file.write_text(script)
            command = [
                str(BINARIES / "pgbench"), "--no-vacuum", f"--file={file}", f"--client={clients}",
                f"--jobs={min(2, clients)}", f"--protocol={protocol}", f"--time={round(warm_up + seconds + 0.5)}",
                "--log", f"--log-prefix={scratch}/log", f"--host={self._server.folder}",
                f"--username={SUPERUSER}", "postgres",
            ]  # fmt: skip
            output_of(command, warm_up + seconds)
            logged = [line for log in Path(scratch).glob("log.*") for line in log.read_text().splitlines()]
        measure = parsed(logged, warm_up, seconds)
        with self._server.connect() as database:
            held = database.execute("SELECT count(*) FROM messages").fetchone()
        if held != (measure.acknowledged * rows,):
            raise PeerFailed(f"pgbench did {measure.acknowledged} times {rows} rows, {held} are there")
        return {load: measure}


def parsed(logged: Iterable[str], warm_up: float, seconds: float) -> Measure:
    """Return the figures in the lines of ``pgbench --log`` for the time after the warm-up."""
    done = []
    for line in logged:
        _, _, elapsed, _, epoch, microseconds = line.split()[:6]
        latency = int(elapsed) / 1e6
        done.append((int(epoch) + int(microseconds) / 1e6, latency))
    if not done:
        raise PeerFailed("pgbench logged no transaction")
    begin = min(ended - latency for ended, latency in done) + warm_up
    counted = sorted(latency for ended, latency in done if begin <= ended <= begin + seconds)
    if not counted:
        raise PeerFailed("pgbench logged no transaction after the warm-up")
    last = len(counted) - 1
    return Measure(len(counted) / seconds, counted[last // 2], counted[int(0.99 * last)], len(done))
