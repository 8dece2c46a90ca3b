"""Test the views: every transaction, record and segment as it is, from files and from a live broker."""

import base64
import json
from datetime import UTC, datetime, timedelta

import pytest

import journal
import txbroker
from journal.errors import InvalidSetting, UnknownTopic
from journal.parties import Actor
from journal.records.access_entries import Quotas, ScramVerifier, User
from journal.records.record import AccessSet, UserSet
from spark.source.columns import TYPES
from spark.source.conditions import conditions
from spark.source.options import read_options
from spark.source.partition_plan import cut_into_tasks, ranges, subscribed
from spark.source.reader import open_logs, read_parts
from spark.views import TABLES, ViewReader, view_schema
from spark.views.records import detail_of
from tests.spark.directories import fill, segments
from tests.support.broker_process import BrokerProcess
from tests.support.builders import small_files

ANN = Actor("ann", "")


def view(**options):
    given = read_options(options)
    table = TABLES[given.view]
    schema = view_schema(given)
    rows = [row for task in table.tasks(given) for row in table.rows(given, task)]
    for row in rows:
        schema_row = dict(zip(schema.names, row, strict=True))
        for field in schema.fields:
            field.dataType.toInternal(schema_row[field.name])
    return [dict(zip(schema.names, row, strict=True)) for row in rows]


def messages(options, names=tuple(TYPES)):
    options = read_options(options)
    logs, wanted = open_logs(options), conditions("")
    try:
        plan = cut_into_tasks(logs, ranges(logs, options, wanted, subscribed(logs, options)), None)
    finally:
        logs.close()
    batches = (batch for task in plan for batch in read_parts(options, names, wanted, task.parts))
    return [row for batch in batches for row in batch.to_pylist()]


def test_what_a_password_is_proven_by_and_the_key_of_the_logins_are_in_no_detail():
    no_quotas = [None] * len(Quotas.__struct_fields__)
    secrets = [bytes([65 + number]) * 32 for number in range(4)]
    salt, stored, server, key = secrets
    user = User("alice", ScramVerifier(salt, 15_000, stored, server), ["DNS:a.example"])
    details = [
        detail_of(record)
        for record in (
            UserSet(user, ANN, 1),
            UserSet(User("bob"), ANN, 2),
            AccessSet(True, True, key, ANN, 3),
        )
    ]
    alice, bob, access = map(json.loads, details)
    assert alice["user"] == ["alice", "hidden", ["DNS:a.example"], [], [], no_quotas]
    assert bob["user"] == ["bob", None, [], [], [], no_quotas]
    assert (access["key"], access["is_on"]) == ("hidden", True)
    for secret in secrets:
        assert base64.b64encode(secret).decode()[:40] not in "".join(details)


def test_segments_are_shown_as_the_checkpoint_has_them(tmp_path):
    path = tmp_path / "d"
    fill(path, 5000, partitions=2)
    before = datetime.now(UTC)
    rows = view(path=str(path), view="segments", subscribe="t")
    for index in range(2):
        found = [row for row in rows if row["partition"] == index]
        files = segments(path, index=index)
        assert [row["path"] for row in found] == [str(file.relative_to(path)) for file in files]
        assert [row["bytes"] for row in found] == [file.stat().st_size for file in files]
        assert [row["end_offset"] for row in found] == [*(row["first_offset"] for row in found[1:]), 2500]
        assert [row["active"] for row in found] == [False] * (len(found) - 1) + [True]
        assert {(row["log_start"], row["log_end"], row["topic"]) for row in found} == {(0, 2500, "t")}
        assert (
            before - timedelta(minutes=10) < found[0]["first_appended"] <= found[-1]["last_appended"] < before
        )
    with journal.open(path, small_files()) as log:
        log.trim("t", 1000, 1)
    after = view(path=str(path), view="segments", subscribePattern="t")
    assert {row["log_start"] for row in after if row["partition"] == 1} == {1000}
    assert len(view(path=str(path), view="segments")) == len(after)


def test_the_journal_is_shown_record_by_record_with_damage_in_its_place(tmp_path):
    path = tmp_path / "d"
    with journal.open(path, small_files()) as log:
        log.create_topic("t", 2)
        log.append("t", b"value", partition=1)
    rows = view(path=str(path), view="journal")
    assert [row["lsn"] for row in rows] == sorted(row["lsn"] for row in rows)
    assert len(base64.b64decode(json.loads(rows[0]["detail"])["nonce"])) == 16
    made = next(row for row in rows if row["record"] == "TopicCreated")
    assert json.loads(made["detail"])["topic"] == "t"
    sent = next(row for row in rows if row["record"] == "Messages")
    assert (sent["partition_log"], sent["bytes"], sent["problem"]) == (2, 49, None)
    assert json.loads(sent["detail"])["base_offset"] == 0
    file = path / sent["path"]
    data = bytearray(file.read_bytes())
    data[sent["position"] + 30] ^= 1
    file.write_bytes(data)
    damaged = view(path=str(path), view="journal")
    problems = [row for row in damaged if row["problem"]]
    assert problems
    assert all(row["lsn"] is None and row["path"] for row in problems)
    assert "Messages" not in {row["record"] for row in damaged}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"path": "d", "view": "segments", "startingOffsets": "latest"},
            "view=segments has no option startingOffsets",
        ),
        ({"path": "d", "view": "journal", "subscribe": "t"}, "view=journal has no option subscribe"),
        ({"path": "d", "view": "segments", "assign": '{"t": [0]}'}, "view=segments has no option assign"),
        ({"path": "d", "view": "segments", "columnsAs": "kafka"}, "view=segments has no option columnsAs"),
        (
            {"broker": "tcp:127.0.0.1:1", "view": "journal"},
            "view=journal shows files: it needs the data directory",
        ),
    ],
)
def test_options_that_mean_nothing_for_a_view_are_refused(options, told):
    with pytest.raises(InvalidSetting, match=told):
        view_schema(read_options(options))


def test_a_schema_chooses_columns_of_a_view_and_no_others(tmp_path):
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    fill(tmp_path / "d", 10)
    options = read_options({"path": str(tmp_path / "d"), "view": "segments"})
    chosen = StructType([StructField("bytes", LongType()), StructField("topic", StringType())])
    reader = ViewReader(options, chosen)
    rows = [row for task in reader.partitions() for row in reader.read(task)]
    assert [topic for _, topic in rows] == ["t"]
    with pytest.raises(
        InvalidSetting, match="view=segments has no column size:bigint; there are topic:string"
    ):
        ViewReader(options, StructType([StructField("size", LongType())]))


@pytest.mark.slow
class TestTransactions:
    """A broker with one transaction of each fate."""

    @pytest.fixture
    def broker(self, tmp_path):
        with BrokerProcess(tmp_path / "data", "outcome_archive=on") as process:
            with txbroker.connect(process.address) as connection:
                connection.create_topic("t", 2)
                connection.send("t", b"alone", partition=0)
                with connection.transaction() as tx:
                    tx.send("t", b"one phase 1", partition=0)
                    tx.send("t", b"one phase 2", partition=0)
                    tx.send("t", b"one phase 3", partition=1)
                for name, commit in (("decided", True), ("undone", False)):
                    connection.tpc_begin(connection.xid(7, name, "b"))
                    connection.send("t", name.encode(), partition=1)
                    connection.tpc_prepare()
                    (connection.tpc_commit if commit else connection.tpc_rollback)()
                connection.tpc_begin(connection.xid(7, "forced", "b"))
                connection.send("t", b"forced", partition=0)
                connection.tpc_prepare()
                connection.commit_transaction(txbroker.Xid(7, b"forced", b"b"), by="ann", why="because")
            with txbroker.connect(process.address) as connection:
                connection.tpc_begin(connection.xid(7, "in doubt", "b"))
                connection.send("t", b"in doubt", partition=1)
                connection.tpc_prepare()
            yield process

    def check_rows(self, rows):
        by_xid = {row["xid"]: row for row in rows}
        assert len(rows) == 5
        one_phase = by_xid[None]
        assert one_phase["state"] == "COMMITTED"
        assert [part[:4] for part in one_phase["partitions"]] == [("t", 0, 1, 2), ("t", 1, 0, 1)]
        assert one_phase["prepared"] is None
        assert one_phase["began"] <= one_phase["ended"]
        decided, undone, forced = by_xid["7:decided:b"], by_xid["7:undone:b"], by_xid["7:forced:b"]
        assert decided["began"] <= decided["prepared"] <= decided["ended"]
        assert (decided["state"], decided["heuristic"], decided["messages"]) == ("COMMITTED", False, 1)
        assert (undone["state"], undone["ended"] is None) == ("ROLLED_BACK", False)
        assert [part[2] for part in undone["partitions"]] == [None]
        assert (forced["heuristic"], forced["cause"], forced["why"]) == (True, "OPERATOR", "because")
        assert (forced["resolved_by"], forced["resolved_by_principal"]) == ("ann", "anonymous")
        assert (decided["resolved_by"], decided["resolved_by_principal"]) == (None, None)
        for row in rows:
            principal, _, address = row["owner"]
            assert (principal, address.startswith("127.0.0.1:")) == ("anonymous", True)
        doubt = by_xid["7:in doubt:b"]
        assert (doubt["state"], doubt["ended"], doubt["messages"]) == ("PREPARED", None, 1)
        assert [part[:4] for part in doubt["partitions"]] == [("t", 1, None, 1)]

    def test_each_is_shown_with_its_fate_by_the_live_broker_and_by_its_files(self, broker):
        live = view(broker=broker.address, view="transactions")
        self.check_rows(live)
        broker.stop()
        kept = view(path=str(broker.data_dir), view="transactions")
        self.check_rows(kept)
        assert {row["transaction"]: row["owner"] for row in live} == {
            row["transaction"]: row["owner"] for row in kept
        }

    def check_origins(self, rows):
        found = {row["value"]: (row["transaction"], row["xid"]) for row in rows}
        assert found[b"alone"] == (None, None)
        assert len({found[b"one phase %d" % n] for n in (1, 2, 3)}) == 1
        assert found[b"one phase 1"][0] is not None
        assert found[b"one phase 1"][1] is None
        assert (found[b"decided"][1], found[b"forced"][1]) == ("7:decided:b", "7:forced:b")
        assert set(found) == {b"alone", b"one phase 1", b"one phase 2", b"one phase 3", b"decided", b"forced"}

    def test_each_message_says_which_transaction_it_came_in(self, broker):
        self.check_origins(messages({"broker": broker.address, "subscribe": "t"}))
        broker.stop()
        self.check_origins(messages({"path": str(broker.data_dir), "subscribe": "t"}))

    def test_the_columns_are_refused_where_no_archive_is_kept_and_the_view_shows_what_is_remembered(
        self, tmp_path
    ):
        with BrokerProcess(tmp_path / "data", "outcome_archive=off") as process:
            with txbroker.connect(process.address) as connection:
                connection.create_topic("t", 2)
                connection.tpc_begin(connection.xid(7, "decided", "b"))
                connection.send("t", b"x", partition=1)
                connection.tpc_prepare()
                connection.tpc_commit()
            with pytest.raises(
                UnknownTopic, match="keeps no outcome archive, so which transactions messages came in"
            ):
                messages({"broker": process.address, "subscribe": "t"})
            live = view(broker=process.address, view="transactions")
            process.stop()
        for rows in (live, view(path=str(tmp_path / "data"), view="transactions")):
            assert [(row["xid"], row["state"]) for row in rows] == [("7:decided:b", "COMMITTED")]
            assert [part[:4] for part in rows[0]["partitions"]] == [("t", 1, 0, 1)]


@pytest.mark.slow
def test_spark_shows_views_and_origins(spark, tmp_path):
    with BrokerProcess(tmp_path / "data", "outcome_archive=on") as process:
        with txbroker.connect(process.address) as connection:
            connection.create_topic("t")
            connection.send("t", b"alone")
            for _ in range(3):
                with connection.transaction() as tx:
                    tx.send("t", b"in one")
        process.stop()
    path = str(tmp_path / "data")
    read = spark.read.format("txbroker")
    rows = (
        read.option("subscribe", "t")
        .option("includeTransactions", "true")
        .load(path)
        .orderBy("offset")
        .collect()
    )
    assert rows[0].transaction is None
    assert len({row.transaction for row in rows[1:]}) == 3
    table = spark.read.format("txbroker").option("view", "transactions").load(path)
    assert {row.transaction for row in table.where("state = 'COMMITTED'").collect()} == {
        row.transaction for row in rows[1:]
    }
    assert table.selectExpr("explode(partitions) AS p").selectExpr("sum(p.messages)").first()[0] == 3
    assert (
        spark.read.format("txbroker").option("view", "segments").load(path).where("topic = 't'").count() == 1
    )
    records = spark.read.format("txbroker").option("view", "journal").load(path)
    assert records.where("record = 'Messages'").count() >= 1
