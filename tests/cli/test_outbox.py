"""``txbroker outbox`` against a real broker and real databases."""

import contextlib
import json
import re
import sqlite3
import time

import pytest

import txbroker
from tests.cli.invocations import runner
from tests.databases.orders import make_tables, opener
from tests.databases.outbox.left_rows import leave, leave_refused, outbox_table, packed, stream
from tests.databases.outbox.scene import rows_of, send
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.databases.outbox import claims

pytestmark = pytest.mark.slow

REFUSED = "txbroker_outbox_refused"


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def shop(request, monkeypatch):
    """What opens connections to a database of every kind in turn; commands find it by its variable."""
    found = request.getfixturevalue(request.param)
    opens = opener(found)
    with contextlib.closing(opens()) as database:
        make_tables(database)
    monkeypatch.setenv("TXBROKER_DATABASE", getattr(found, "url", f"sqlite:///{found}"))
    return opens


def values(connection, topic):
    return [message.value for message in connection.read(topic, 0, 0)]


class TestList:
    def test_an_empty_outbox_says_so(self, run, run_json, connection, shop):
        assert run("outbox", "list").stdout == "The outbox has no rows.\n\nNo row is refused.\n"
        found = run_json("outbox", "list")
        assert (found["streams"], found["refused"], found["refused_rows"], found["elsewhere"]) == (
            [],
            [],
            0,
            [],
        )

    def test_streams_are_told_with_what_the_broker_knows(self, run, run_json, connection, topic, shop):
        hour_ago = time.time_ns() // 1000 - 3_660_000_000
        leave(shop, connection, stream(1), 3, packed(topic, b"a", at=hour_ago))
        leave(shop, connection, stream(1), 7, packed(topic, b"b"))
        with contextlib.closing(shop()) as database:
            tx = send(database, connection, topic, 1, wait="commit")
        mine = tx.xid.global_id.split(b"-")[1].decode()
        eventually(lambda: (mine, 1) not in rows_of(shop))
        connection.resolver.stop(0.0)
        leave(shop, connection, mine, 1, packed(topic, b"again"))
        leave(shop, connection, mine, 2, packed(topic, b"c"))
        found = {each["stream"]: each for each in run_json("outbox", "list")["streams"]}
        unknown, known = found[stream(1)], found[mine]
        assert (unknown["lowest"], unknown["highest"], unknown["rows"]) == (3, 7, 2)
        assert (unknown["undelivered"], unknown["delivered"]) == (2, 0)
        assert (unknown["oldest"], unknown["last"], unknown["client"]) == (hour_ago, None, None)
        assert (known["undelivered"], known["delivered"], known["last"]) == (1, 1, 1)
        assert known["client"]
        assert known["idle"] >= 0
        text = run("outbox", "list").stdout
        assert re.search(rf"{stream(1)} +3–7 +2 +0 +1h 1m +– +–", text)
        assert re.search(rf"{mine} +1–2 +1 +1 +\d+ ?m?s +1 +\S+", text)

    def test_refused_rows_are_told_with_their_errors(self, run, run_json, connection, topic, shop):
        leave_refused(shop, connection, stream(1), 5, packed("gone", b"a", b"b"))
        leave_refused(shop, connection, stream(2), 6, packed("gone", b"c"), "MessageTooLarge: no")
        found = run_json("outbox", "list")
        assert [(each["stream"], each["number"]) for each in found["refused"]] == [
            (stream(1), 5),
            (stream(2), 6),
        ]
        first = found["refused"][0]
        assert (first["topics"], first["messages"]) == (["gone"], 2)
        assert first["error"].startswith("UnknownTopic")
        assert first["refused_at"]
        text = run("outbox", "list").stdout
        assert re.search(rf"{stream(2)} +6 +20\d\d-\S+ \S+ +1 +gone +MessageTooLarge: no", text)
        assert "the first 1 of 2" in run("outbox", "list", "--limit", "1").stdout
        assert run_json("outbox", "list", "--limit", "1")["refused_rows"] == 2

    def test_rows_for_another_broker_are_counted(self, run, run_json, connection, topic, shop):
        class Elsewhere:
            identity = "0" * 32

        leave(shop, Elsewhere, stream(1), 1, packed(topic, b"a"))
        found = run_json("outbox", "list")
        assert (found["streams"], found["elsewhere"]) == ([], [{"broker": "0" * 32, "rows": 1}])
        assert "1 row for another broker, whose data are 000000" in run("outbox", "list").stdout


class TestShow:
    def test_a_row_is_shown_with_its_messages(self, run, run_json, connection, topic, shop):
        headers = [("kind", b"new"), ("txbroker.tag", b"eu")]
        leave(
            shop,
            connection,
            stream(1),
            3,
            packed(topic, b"v" * 100, partition=1, partitions=2, headers=headers),
        )
        found = run_json("outbox", "show", stream(1), "3")
        assert (found["state"], found["error"], found["obstacle"]) == ("undelivered", None, None)
        [run_found] = found["runs"]
        assert (run_found["topic"], run_found["partition"], run_found["partitions"]) == (topic, 1, 2)
        [message] = run_found["messages"]
        assert (message["key"], message["value"]) == ("key", "v" * 100)
        assert ["kind", "new"] in message["headers"]
        text = run("outbox", "show", stream(1), "3").stdout
        assert re.search(rf"{topic} +1 of 2 +1 +\d+ B", text)
        assert "v" * 59 + "…" in text
        assert "kind=new" in text

    def test_a_refused_row_is_shown_with_its_error(self, run, run_json, connection, shop):
        leave_refused(shop, connection, stream(1), 3, packed("gone", b"1", b"2", b"3"))
        found = run_json("outbox", "show", stream(1), "3")
        assert (found["state"], found["error"]) == ("refused", "UnknownTopic: there is no topic of that name")
        text = run("outbox", "show", stream(1), "3", "--limit", "2").stdout
        assert "first 2 of 3 messages" in text

    def test_a_row_that_is_delivered_says_so(self, run, run_json, connection, topic, shop):
        with contextlib.closing(shop()) as database:
            tx = send(database, connection, topic, 1, wait="commit")
        mine = tx.xid.global_id.split(b"-")[1].decode()
        eventually(lambda: (mine, 1) not in rows_of(shop))
        connection.resolver.stop(0.0)
        leave(shop, connection, mine, 1, packed(topic, b"again"))
        assert run_json("outbox", "show", mine, "1")["state"] == "delivered"

    def test_what_cannot_be_read_does_not_hide_the_rest(self, run, run_json, connection, topic, shop):
        good = packed(topic, b"value")
        leave_refused(shop, connection, stream(1), 1, good[:-1], "InvalidFrame: shorter")
        leave_refused(shop, connection, stream(1), 2, good[:-3] + b"xyz", "InvalidFrame: changed")
        short, changed = (run_json("outbox", "show", stream(1), str(number)) for number in (1, 2))
        assert "lists others" in short["obstacle"]
        assert short["error"] == "InvalidFrame: shorter"
        assert changed["runs"][0]["obstacle"]
        assert "Its messages cannot be read" in run("outbox", "show", stream(1), "1").stdout
        assert "cannot be opened" in run("outbox", "show", stream(1), "2").stdout
        assert [each["number"] for each in run_json("outbox", "list")["refused"]] == [1, 2]

    def test_a_row_that_is_not_there_is_a_no(self, run, shop):
        said = run("outbox", "show", stream(1), "3", code=1).stderr
        assert "neither in the outbox nor among the refused rows" in said


class TestRetry:
    def test_a_refused_row_is_delivered_once_its_topic_is_there(self, run, run_json, connection, topic, shop):
        leave_refused(shop, connection, stream(1), 3, packed(topic, b"1", b"2"))
        assert run_json("outbox", "retry", stream(1), "3") == [
            {"stream": stream(1), "number": 3, "done": True, "result": "delivered", "now": None}
        ]
        assert values(connection, topic) == [b"1", b"2"]
        assert (rows_of(shop), rows_of(shop, REFUSED)) == ([], [])
        assert run_json("outbox", "list")["streams"] == []
        assert "not among the refused rows" in run("outbox", "retry", stream(1), "3", code=1).stderr

    def test_what_is_refused_again_is_told_with_its_new_place(self, run, run_json, connection, topic, shop):
        leave_refused(shop, connection, stream(1), 3, packed(f"{topic}-gone", b"1"))
        leave_refused(shop, connection, stream(2), 4, packed(topic, b"2"))
        leave_refused(shop, connection, stream(3), 5, packed(topic, b"3", partition=9, partitions=10))
        done = run("outbox", "retry", "--all", code=3, partly=True)
        assert "1 of 3 rows delivered, 2 not; each is told above" in done.stderr
        assert values(connection, topic) == [b"2"]
        assert rows_of(shop) == []
        again = rows_of(shop, REFUSED)
        assert [number for _, number in again] == [1, 1]
        assert stream(1) not in dict(again)
        for name, _ in again:
            assert name in done.stdout
        assert re.search(rf"{stream(1)} +3 +refused again: UnknownTopic", done.stdout)
        assert re.search(rf"{stream(3)} +5 +refused again: UnknownPartition", done.stdout)
        assert re.search(rf"{stream(2)} +4 +delivered", done.stdout)

    def test_nothing_is_tried_if_nothing_is_refused(self, run, shop):
        assert run("outbox", "retry", "--all").stdout == "No row is refused.\n"

    @pytest.mark.parametrize(
        "arguments",
        [[], [stream(1)], [stream(1), "3", "--all"], ["--all", "--bad"], ["zz", "3"], [stream(1), "0"]],
    )
    def test_what_is_not_understood_is_named(self, run, arguments):
        run("outbox", "retry", *arguments, "--database", "sqlite:///shop.db", code=2)


class TestDrop:
    def test_a_refused_row_is_deleted_after_a_question(self, run, run_json, connection, shop):
        for number in (3, 4):
            leave_refused(shop, connection, stream(1), number, packed("gone", b"1", b"2"))
        said = run("outbox", "drop", stream(1), "3", stdin="n\n", code=1).stderr
        assert f"Delete number 3 of stream {stream(1)}, with 2 messages for gone, for good?" in said
        run("outbox", "drop", stream(1), "3", code=2)
        assert len(rows_of(shop, REFUSED)) == 2
        assert "dropped" in run("outbox", "drop", stream(1), "3", stdin="y\n").stdout
        assert rows_of(shop, REFUSED) == [(stream(1), 4)]
        run("outbox", "drop", stream(1), "3", "--yes", code=1)

    def test_all_of_them_are_deleted_at_once(self, run, run_json, connection, shop):
        for number in range(1, 4):
            leave_refused(shop, connection, stream(1), number, packed("gone", b"1"))
        leave(shop, connection, stream(1), 9, packed("gone", b"1"))
        said = run("outbox", "drop", "--all", stdin="n\n", code=1).stderr
        assert "Delete 3 refused rows and their messages for good?" in said
        assert [each["done"] for each in run_json("outbox", "drop", "--all", "--yes")] == [True] * 3
        assert (rows_of(shop, REFUSED), rows_of(shop)) == ([], [(stream(1), 9)])
        assert run("outbox", "drop", "--all").stdout == "No row is refused.\n"


class TestWhatFails:
    def test_a_database_without_tables_says_how_to_make_them(self, run, sqlite):
        sqlite.touch()
        said = run("outbox", "list", "--database", f"sqlite:///{sqlite}", code=3).stderr
        assert "--create" in said

    def test_a_database_that_is_away_is_told_as_in_resolve(self, run):
        said = run("outbox", "list", "--database", "postgresql://nobody@127.0.0.1:1/x", code=4).stderr
        assert "the database said OperationalError" in said
        assert "Nothing was changed" in said

    def test_a_database_must_be_said(self, run, monkeypatch):
        monkeypatch.delenv("TXBROKER_DATABASE", raising=False)
        assert "Missing option '--database'" in run("outbox", "list", code=2).stderr


def test_what_a_dead_program_left_is_seen_resolved_and_tried_again(tmp_path, sqlite):
    """From a program whose broker is down, over a topic that is deleted, to messages that arrive."""
    url = f"sqlite:///{sqlite}"
    with contextlib.closing(sqlite3.connect(sqlite)) as database, BrokerProcess(tmp_path / "data") as process:
        make_tables(database)
        run = runner(process.address)
        broker = txbroker.connect(process.address, timeout=8.0)  # which a refusal below waits for
        for name in ("orders", "lost"):
            broker.create_topic(name)
        send(database, broker, "orders", 0, wait="commit")
        send(database, broker, "lost", 1, wait="commit")
        process.kill()
        send(database, broker, "orders", 2)
        send(database, broker, "lost", 3)
        send(database, broker, "orders", 4)
        with pytest.raises(errors.StorageUnavailable):
            broker.topics()
        broker.close(0.0)
        process.start()
        with txbroker.connect(process.address, timeout=30.0) as other:
            other.delete_topic("lost")
        assert re.search(r"3–5 +3 +0", run("outbox", "list", "--database", url).stdout)
        said = run("resolve", "--database", url, code=1, partly=True).stdout
        assert (
            "2 blocks delivered from the outbox, 1 block refused for ever (see 'txbroker outbox list')"
            in said
        )
        assert run("resolve", "--database", url).stdout == "nothing was in doubt\n"
        with txbroker.connect(process.address, timeout=30.0) as other:
            assert values(other, "orders") == [b"0", b"2", b"4"]
            other.create_topic("lost")
            run("outbox", "retry", "--all", "--database", url)
            assert values(other, "lost") == [b"3"]


class TestLimits:
    """A broker that cannot take what is tried again."""

    @pytest.fixture
    def scene(self, sqlite, tmp_path):
        """What opens the database, and what starts a broker with settings, with a runner of commands."""

        @contextlib.contextmanager
        def started(*broker_settings):
            with BrokerProcess(tmp_path / "data", *broker_settings) as process:
                run = runner(process.address)
                with txbroker.connect(process.address, timeout=30.0) as connection:
                    connection.create_topic("orders")
                    yield (
                        connection,
                        lambda *words, **more: run(
                            "outbox", *words, "--database", f"sqlite:///{sqlite}", **more
                        ),
                    )

        with contextlib.closing(sqlite3.connect(sqlite)) as database:
            make_tables(database)
        return lambda: sqlite3.connect(sqlite), started

    def test_nothing_is_changed_if_no_stream_can_be_claimed(self, scene):
        opens, started = scene
        with started("max_streams=1") as (connection, run):
            with outbox_table(opens) as table:
                claims.claim(table.connection, connection, bytes(16), 5.0)
            leave_refused(opens, connection, stream(1), 3, packed("orders", b"1"))
            done = run("retry", stream(1), "3", code=3, partly=True)
            assert "nothing was changed: LimitExceeded: there are 1 streams" in done.stdout
            assert (rows_of(opens), rows_of(opens, REFUSED)) == ([], [(stream(1), 3)])

    def test_what_is_too_much_for_one_transaction_is_refused_again(self, scene):
        opens, started = scene
        with started("max_transaction_messages=2") as (connection, run):
            leave_refused(opens, connection, stream(1), 3, packed("orders", b"1", b"2", b"3"))
            [told] = json.loads(run("retry", "--all", "--json", code=3, partly=True).stdout)
            assert told["result"].startswith("refused again: TransactionTooLarge")
            assert rows_of(opens) == []
            assert rows_of(opens, REFUSED) == [(told["now"], 1)]

    def test_what_was_done_is_told_though_the_rest_could_not_be_tried(self, scene):
        opens, started = scene
        with started() as (connection, run):
            for number in (1, 2):
                leave_refused(opens, connection, stream(1), number, packed("orders", b"1"))
            with contextlib.closing(opens()) as database:
                database.execute(
                    f"CREATE TRIGGER keep BEFORE DELETE ON {REFUSED} WHEN OLD.number = 2 "
                    "BEGIN SELECT RAISE(ABORT, 'kept'); END"
                )
            done = run("drop", "--all", "--yes", code=3, partly=True)
            assert re.search(rf"{stream(1)} +1 +dropped", done.stdout)
            assert "the database said IntegrityError: kept. Rows that are told above are done" in done.stderr
            assert rows_of(opens, REFUSED) == [(stream(1), 2)]
