"""Test logs against tables of a real PostgreSQL on a port of the loopback, which asks for a password."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from demo.postgresql import PostgresqlServer
from journal.errors import InvalidSetting
from spark.audit.__main__ import main
from spark.audit.checks.expected_table import Expectation, comparing
from spark.audit.checks.tables import TableUnusable
from spark.audit.claims.directory import look
from tests.databases.fixtures import new_folder, running
from tests.spark.audit.audited import Making

pytestmark = pytest.mark.slow

SECRET = "s3cr+t&%/?"
QUOTED = "s3cr%2Bt%26%25%2F%3F"
TABLES = """
CREATE ROLE auditor LOGIN PASSWORD 's3cr+t&%/?';
CREATE ROLE stranger LOGIN PASSWORD 's3cr+t&%/?';
CREATE SCHEMA shop;
CREATE TABLE shop.orders (
    region text, id int, note text, price numeric, exact numeric(30, 10), at timestamptz, local timestamp,
    paid boolean, tags text[], PRIMARY KEY (region, id)
);
INSERT INTO shop.orders SELECT
    CASE WHEN n % 2 = 0 THEN 'north' ELSE 'south' END, n, CASE WHEN n = 3 THEN NULL ELSE 'note ' || n END,
    n * 1.25, 12345678901234567890.1234567890 + n, '2026-01-31 12:00:00.123456+02', '2026-03-29 02:30:00.5',
    n % 3 = 0, ARRAY['a', 'b']
FROM generate_series(0, 9) AS n;
CREATE TABLE empty (id int);
CREATE TABLE nulls (id int, note text);
INSERT INTO nulls VALUES (1, 'a'), (NULL, 'b');
CREATE TABLE doubled (id int, note text);
INSERT INTO doubled VALUES (1, 'a'), (1, 'b');
GRANT USAGE ON SCHEMA shop TO auditor;
GRANT SELECT ON ALL TABLES IN SCHEMA shop, public TO auditor;
"""


class LoopbackServer(PostgresqlServer):
    """Java speaks no UNIX sockets, so it listens on a port too; who comes by it needs a password."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        super().__init__(folder, {"listen_addresses": "127.0.0.1", "port": self.port})

    def initialise(self) -> None:
        super().initialise()
        rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (self.data / "pg_hba.conf").write_text(rules)

    def url(self, database: str) -> str:
        return f"{super().url(database)}&port={self.port}"


@pytest.fixture(scope="module")
def server():
    with running(LoopbackServer(new_folder())) as server:
        with server.connect(autocommit=True) as connection:
            connection.execute(TABLES)
        yield server


@pytest.fixture
def address(server, monkeypatch):
    """Of the database, by a user whose password is in the environment."""
    monkeypatch.setenv("PGPASSWORD", SECRET)
    return f"jdbc:postgresql://auditor@127.0.0.1:{server.port}/postgres"


def order(number: int, **change) -> bytes:
    row = {
        "region": "south" if number % 2 else "north", "id": number, "note": None if number == 3 else f"note {number}",
        "price": number * 1.25, "exact": 0, "at": "2026-01-31T10:00:00.123456+00:00", "local": "2026-03-29T02:30:00.5",
        "paid": number % 3 == 0, "tags": ["a", "b"],
    } | change  # fmt: skip
    text = json.dumps(row)
    return text.replace('"exact": 0', f'"exact": {12345678901234567890 + number}.1234567890').encode()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    made = Making(tmp_path_factory.mktemp("sound") / "data")
    for number in range(10):
        made.send(number % 2, order(number))
    return made.close()


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """1 is missing, 2 twice, 3 to 6 different, 77 in excess."""
    made = Making(tmp_path_factory.mktemp("wrong") / "data")
    made.transaction((0, order(2)), (1, order(2)), end="two", xid="shop")
    made.send(0, order(3, note="something"), order(4, price=5.01), order(5, paid=None))
    made.send(1, order(6, local="2026-03-29T03:30:00.5"), order(77))
    for number in (0, 7, 8, 9):
        made.send(0, order(number))
    return made.close()


def differing(spark, data, source, key=("region", "id"), fields=None, jar="", **more):
    with comparing(spark, look(str(data)), [Expectation(source, "a", key, fields or {}, **more)], jar) as [
        each
    ]:
        return each.findings().collect()


def test_rows_of_many_types_are_found_in_the_log_by_a_composite_key(spark, sound, address):
    assert differing(spark, sound, f"{address}#shop.orders", only=True) == []


def test_what_is_wrong_is_told_with_its_place(spark, wrong, address):
    rows = differing(spark, wrong, f"{address}#shop.orders", only=True)
    assert {row["what"] for row in rows} == {"violation"}
    found = {row["text"].split(" is there")[0].removeprefix("key region, id = "): row for row in rows}
    kinds = {key: row["kind"].removeprefix("expect: ") for key, row in found.items()}
    assert kinds == {
        '["south","1"]': "missing", '["north","2"]': "twice", '["south","3"]': "different",
        '["north","4"]': "different", '["south","5"]': "different", '["north","6"]': "different",
        '["south","77"]': "unexpected",
    }  # fmt: skip
    for key, told in (
        ('["south","3"]', "note: the log has something, expected is NULL"),
        ('["north","4"]', "price: the log has 5.01"),
        ('["south","5"]', "paid: the log has NULL, expected is false"),
        ('["north","6"]', "local: the log has 2026-03-29 03:30:00.5, expected is 2026-03-29 02:30:00.5"),
    ):
        assert found[key]["text"].count("the log has") == 1
        assert told in found[key]["text"]
    twice = found['["north","2"]']
    assert (twice["partition"], twice["first"], twice["position"]) == (1, 0, 64)
    assert (twice["serial"], twice["xid"]) == (1, "1:shop:")
    assert twice["path"].startswith("partitions/a-1.")
    assert found['["south","77"]']["position"] > 0


def test_a_part_of_a_table_and_expressions_over_messages_are_compared(spark, sound, address):
    source = f"{address}#(SELECT id::text AS line, note FROM shop.orders WHERE id < 4) AS part"
    fields = {
        "line": "get_json_object(CAST(value AS STRING), '$.id')",
        "note": "get_json_object(CAST(value AS STRING), '$.note')",
    }
    rows = differing(spark, sound, source, ("line",), fields)
    assert {row["kind"] for row in rows} == {"expect: unexpected"}
    assert len(rows) == 6


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("given", ["login", "query"])
def test_the_report_and_the_output_hold_the_findings_and_no_password(spark, server, wrong, tmp_path, given):
    place = f"127.0.0.1:{server.port}/postgres"
    source = {
        "login": f"jdbc:postgresql://auditor:{QUOTED}@{place}#shop.orders",
        "query": f"jdbc:postgresql://{place}?user=auditor&password={QUOTED}#shop.orders",
    }[given]
    out = tmp_path / "report"
    ended = CliRunner().invoke(main, [
        "--data", str(wrong), "--out", str(out), "--expect", source, "--topic", "a", "--key", "region,id",
    ])  # fmt: skip
    assert ended.exit_code == 1, ended.output
    assert f"expected 1 in jdbc:postgresql://{place}#shop.orders" in ended.output
    tables = [path for path in out.rglob("*") if path.is_file()]
    said = ended.output.encode() + b"".join(path.read_bytes() for path in tables)
    assert b"shop.orders" in said
    for word in (SECRET, QUOTED, "s3cr", "auditor"):
        assert word.encode() not in said


class TestRefused:
    @pytest.mark.parametrize(
        ("table", "told"),
        [
            ("nothing", 'relation "nothing" does not exist'),
            ("empty", "has no rows"),
            ("nulls", "the key id is null in 1 of 2 rows"),
            ("doubled", 'several rows of ["1"] (2 times)'),
        ],
    )
    def test_tables_that_cannot_be_compared_with(self, spark, sound, address, table, told):
        assert told in refused(spark, sound, f"{address}#{table}")

    def test_a_key_that_is_no_column(self, spark, sound, address):
        with pytest.raises(InvalidSetting, match="there is no column number; there are region, id, note"):
            differing(spark, sound, f"{address}#shop.orders", ("number",))

    def test_a_wrong_password_and_a_user_without_rights(self, spark, server, sound, address, monkeypatch):
        place = f"127.0.0.1:{server.port}/postgres#shop.orders"
        said = refused(spark, sound, f"jdbc:postgresql://auditor:s3cr-wrong@{place}")
        assert 'password authentication failed for user "auditor"' in said
        assert "permission denied for schema shop" in refused(
            spark, sound, f"jdbc:postgresql://stranger@{place}"
        )
        monkeypatch.delenv("PGPASSWORD")
        assert "no password was provided" in refused(spark, sound, f"jdbc:postgresql://auditor@{place}")

    def test_a_server_or_database_that_is_not_there(self, spark, server, sound, address):
        with socket.socket() as taken:  # bound, and listening to nobody
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            said = refused(spark, sound, f"jdbc:postgresql://auditor:s3cr@127.0.0.1:{port}/postgres#t")
        assert f"Connection to 127.0.0.1:{port} refused" in said
        said = refused(spark, sound, address.replace("/postgres", "/nowhere") + "#t")
        assert 'database "nowhere" does not exist' in said

    def test_a_driver_that_is_missing(self, server, sound, tmp_path):
        jar = tmp_path / "other.jar"
        with zipfile.ZipFile(jar, "w") as made:
            made.writestr("nothing.txt", "")
        source = f"jdbc:postgresql://auditor:{QUOTED}@127.0.0.1:{server.port}/postgres#shop.orders"
        ended = subprocess.run(
            [
                sys.executable, "-m", "spark.audit", "--data", sound, "--out", tmp_path / "report", "--driver", jar,
                "--expect", source, "--topic", "a", "--key", "region,id", "--master", "local[1]",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 3, ended.stderr
        last = ended.stderr.strip().splitlines()[-1]
        assert "PostgreSQL's driver for Java (org.postgresql.Driver) is missing: it is not in" in last
        assert "libpostgresql-jdbc-java" in last
        assert "s3cr" not in ended.stdout + ended.stderr

    def test_a_driver_that_is_no_file(self, spark, sound, address, tmp_path):
        with pytest.raises(InvalidSetting, match="no such file"):
            differing(spark, sound, f"{address}#shop.orders", jar=str(tmp_path / "none.jar"))


def refused(spark, data, source) -> str:
    with pytest.raises(TableUnusable) as caught:
        differing(spark, data, source, ("id",))
    said = str(caught.value)
    assert "s3cr" not in said
    assert "\n" not in said
    assert "Nothing was audited" in said
    assert "org." not in said.replace("org.postgresql.Driver", "")
    return said
