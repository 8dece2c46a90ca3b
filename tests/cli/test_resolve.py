"""``txbroker resolve`` against a real broker and a real database."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

import txbroker
from tests.databases.orders import make_tables
from tests.databases.outbox.scene import rows_of, send
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually
from txbroker import State
from txbroker.cli.database import database_errors
from txbroker.cli.exits import Failure

pytestmark = pytest.mark.slow


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture
def url(sqlite):
    sqlite.touch()
    return f"sqlite:///{sqlite}"


def resolve(broker, *arguments):
    command = [
        sys.executable,
        "-c",
        "from txbroker.cli import main; main()",
        "--broker",
        broker.address,
        "resolve",
    ]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=60.0, check=False, env={**os.environ}
    )


@contextlib.contextmanager
def abandoned(broker, sqlite):
    """A block that was prepared, its database transaction still open."""
    with (
        txbroker.connect(broker.address) as connection,
        contextlib.closing(sqlite3.connect(sqlite)) as database,
    ):
        connection.create_topic("t")
        tx = txbroker.atomic(database, connection, application="shop", mode="two-phase").__enter__()
        connection.resolver.stop(5.0)
        connection.resolver = None
        tx.send("t", b"1")
        deciding = tx.deciding
        from txbroker.databases.adapters.adapter import run

        run(deciding.prepare())
        yield connection, database, tx
        deciding._unregister()


def test_a_table_is_made_once_and_named(broker, url, sqlite):
    made = resolve(broker, "--database", url, "--create", "--json")
    assert made.returncode == 0, made.stderr
    identity = json.loads(made.stdout)["table"]
    again = resolve(broker, "--database", url, "--create")
    assert again.stdout == f"The decision table is {identity}.\n"


def test_without_a_table_it_says_how_to_make_one(broker, url):
    found = resolve(broker, "--database", url)
    assert found.returncode == 3
    assert "DecisionTableMissing" in found.stderr
    assert "--create" in found.stderr


def test_it_waits_for_an_open_transaction_and_then_decides(broker, url, sqlite):
    resolve(broker, "--database", url, "--create")
    with abandoned(broker, sqlite) as (connection, database, tx):
        waiting = resolve(broker, "--database", url, "--json")
        assert waiting.returncode == 1
        assert json.loads(waiting.stdout)["waiting"] == [str(tx.xid)]
        said = " ".join(resolve(broker, "--database", url).stdout.split())
        assert "1 waiting for an open database transaction. A waiting transaction is decided" in said
        assert "end its session there (PostgreSQL: pg_stat_activity" in said
        assert "then resolve again." in said
        database.rollback()
        done = resolve(broker, "--database", url)
        assert done.returncode == 0, done.stderr
        assert "1 rolled back" in done.stdout
        assert str(tx.xid) in done.stdout
        assert connection.wait_outcome(tx.xid, 1.0) is State.ROLLED_BACK
    assert resolve(broker, "--database", url).stdout == "nothing was in doubt\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("no route.", "OperationalError: no route. What was"),
        ("Is it running?\n", "OperationalError: Is it running? What was"),
    ],
)
def test_the_words_of_a_database_end_with_one_mark(said, shown):
    with pytest.raises(Failure) as failed, database_errors():
        raise sqlite3.OperationalError(said)
    assert shown in str(failed.value)


def test_watching_resolves_what_comes_and_ends_with_ctrl_c(broker, url, sqlite):
    resolve(broker, "--database", url, "--create")
    command = [
        sys.executable,
        "-c",
        "from txbroker.cli import main; main()",
        "--broker",
        broker.address,
        "--json",
    ]
    with abandoned(broker, sqlite) as (connection, database, tx):
        database.commit()
        watching = subprocess.Popen(
            [*command, "resolve", "--database", url, "--watch", "--interval", "100ms"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # whoever starts the tests in the background has Ctrl-C ignored, and children inherit that
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        try:
            assert connection.wait_outcome(tx.xid, 30.0) is State.COMMITTED
            assert json.loads(watching.stdout.readline())["committed"] == [str(tx.xid)]
            time.sleep(0.3)
            watching.send_signal(signal.SIGINT)
            assert watching.wait(30.0) == 130
            assert watching.stdout.read() == ""
        finally:
            if watching.poll() is None:
                watching.kill()
            watching.communicate()


def test_watching_goes_on_after_a_broker_that_did_not_answer_in_time(broker, url, sqlite):
    resolve(broker, "--database", url, "--create")
    main = [sys.executable, "-c", "from txbroker.cli import main; main()"]
    options = ["--broker", broker.address, "--timeout", "1s"]
    watching = subprocess.Popen(
        [*main, *options, "resolve", "--database", url, "--watch", "--interval", "50ms"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with abandoned(broker, sqlite) as (connection, database, tx):
            database.commit()
            connection.wait_outcome(tx.xid, 30.0)  # so it is at work
        broker.pause()
        try:
            said = next(line for line in watching.stderr if "no answer to " in line)
        finally:
            broker.resume()
        assert said.endswith("trying again in 0.05 s\n")
        assert watching.poll() is None
    finally:
        watching.kill()
        watching.communicate()


@pytest.mark.sampled(test=4)
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--database", "shop.db"], 2, "is no address of a database"),
        (["--database", "oracle://x/y"], 2, "does not open"),
        (["--database", "postgresql://ann:hunter2@127.0.0.1:1/x"], 2, "file:PATH; or into an environment"),
        (["--database", "postgresql://ann@127.0.0.1:hunter2/x"], 2, "it is not shown"),
        (["--database", "env:NOT_SET_HERE"], 2, "is not set"),
        (["--database", "sqlite:///no-such-file.db"], 2, "there is no file"),
        (["--database", "postgresql://nobody@127.0.0.1:1/x"], 4, "the database said OperationalError"),
        (["--database", "sqlite:///x", "--watch", "--once"], 2, "--watch goes with none of"),
        ([], 2, "--database"),
    ],
)
def test_what_cannot_be_understood_is_named(broker, arguments, code, says):
    found = resolve(broker, *arguments)
    assert (found.returncode, found.stdout) == (code, "")
    assert says in " ".join(found.stderr.split())
    assert "hunter2" not in found.stderr


def test_the_url_may_stand_in_a_file_or_a_variable(broker, url, tmp_path, monkeypatch):
    resolve(broker, "--database", url, "--create")
    path = tmp_path / "url"
    path.write_text(f"{url}\n")
    monkeypatch.setenv("SHOP_URL", url)
    for address in (f"file:{path}", "env:SHOP_URL"):
        assert resolve(broker, "--database", address).stdout == "nothing was in doubt\n"
    monkeypatch.setenv("TXBROKER_DATABASE", url)
    assert resolve(broker).stdout == "nothing was in doubt\n"


def test_a_copy_is_adopted_by_name(broker, url, sqlite, tmp_path):
    resolve(broker, "--database", url, "--create")
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(sqlite.read_bytes())
    refused = resolve(broker, "--database", f"sqlite:///{copy}")
    assert refused.returncode == 3
    assert "is a copy" in refused.stderr
    assert resolve(broker, "--database", f"sqlite:///{copy}", "--adopt", "separate").returncode == 0
    assert resolve(broker, "--database", f"sqlite:///{copy}").returncode == 0


class TestSetBack:
    """A database that is set back to a copy of its file."""

    @pytest.fixture
    def set_back(self, broker, url, sqlite):
        """One block was delivered after the copy was taken, with its row in it; its stream is released."""
        with contextlib.closing(sqlite3.connect(sqlite)) as database:
            make_tables(database)
        with txbroker.connect(broker.address, timeout=30.0) as connection:
            connection.create_topic("t")
            with contextlib.closing(sqlite3.connect(sqlite)) as database:
                send(database, connection, "t", 0, wait="commit")
                eventually(lambda: not rows_of(lambda: sqlite3.connect(sqlite)))
                broker.pause()
                send(database, connection, "t", 1)
            copy = sqlite.read_bytes()
            broker.resume()
        assert rows_of(lambda: sqlite3.connect(sqlite)) == []
        sqlite.write_bytes(copy)
        return sqlite

    def values(self, broker):
        with txbroker.connect(broker.address, timeout=30.0) as connection:
            return [message.value for message in connection.read("t", 0, 0)]

    def test_it_is_refused_until_a_person_has_said_what_its_rows_are(self, broker, url, set_back):
        refused = resolve(broker, "--database", url)
        assert refused.returncode == 3
        assert "OutboxSetBack" in refused.stderr
        assert "--adopt restored --drop" in refused.stderr
        asked = resolve(broker, "--database", url, "--adopt", "restored", "--drop")
        assert (asked.returncode, asked.stdout) == (2, "")
        assert "1 row of 1 stream, of blocks that ended from 20" in asked.stderr
        dropped = resolve(broker, "--database", url, "--adopt", "restored", "--drop", "--yes", "--json")
        assert json.loads(dropped.stdout) == {
            "table": json.loads(dropped.stdout)["table"],
            "set_back": True,
            "generation": {"database": 0, "broker": 1, "now": 2},
            "rows": 1,
            "streams": 1,
            "done": "dropped",
        }
        assert resolve(broker, "--database", url).stdout == "nothing was in doubt\n"
        assert self.values(broker) == [b"0", b"1"]
        again = resolve(broker, "--database", url, "--adopt", "restored", "--deliver")
        assert again.returncode == 0
        assert "was not set back" in again.stdout
        again = resolve(broker, "--database", url, "--adopt", "restored", "--deliver", "--json")
        assert json.loads(again.stdout)["set_back"] is False

    def test_its_rows_may_be_delivered_again(self, broker, url, set_back):
        said = resolve(broker, "--database", url, "--adopt", "restored", "--deliver", "--yes")
        assert said.returncode == 0, said.stderr
        assert "To be delivered: 1 row of 1 stream that it does not know." in said.stdout
        assert "1 block delivered from the outbox" in resolve(broker, "--database", url).stdout
        assert self.values(broker) == [b"0", b"1", b"1"]

    def test_watching_goes_on_until_that_is_said(self, broker, url, set_back):
        main = [sys.executable, "-c", "from txbroker.cli import main; main()", "--broker", broker.address]
        watching = subprocess.Popen(
            [*main, "resolve", "--database", url, "--watch", "--interval", "50ms"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert "--adopt restored" in next(iter(watching.stderr))
            resolve(broker, "--database", url, "--adopt", "restored", "--deliver", "--yes")
            assert next(iter(watching.stdout)) == "1 block delivered from the outbox\n"
        finally:
            watching.kill()
            watching.communicate()

    @pytest.mark.parametrize(
        "options",
        [
            ["--adopt", "restored"],
            ["--adopt", "restored", "--drop", "--deliver"],
            ["--adopt", "replacement", "--drop"],
            ["--deliver"],
            ["--adopt", "restored", "--drop", "--watch"],
        ],
    )
    def test_it_must_be_said_clearly(self, broker, url, options):
        assert resolve(broker, "--database", url, *options).returncode == 2
