"""Test logs against tables of Parquet and CSV: what passes, what is found and where, and what is refused."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from journal.errors import InvalidSetting, UnknownTopic
from spark.audit.__main__ import main
from spark.audit.checks.expected_table import Expectation, comparing
from spark.audit.checks.tables import TableUnusable, source_of
from spark.audit.claims.directory import look
from spark.audit.conduct import Plan, conduct
from tests.spark.audit.audited import MINUTE, Making, log_of
from tests.spark.damages.forger import write as rewrite

pytestmark = pytest.mark.slow

ROWS = tuple((number, f"name {number}", number * 1.5) for number in range(12))


def value(row) -> bytes:
    return json.dumps(dict(zip(("id", "name", "price"), row, strict=True))).encode()


def filled(path: Path, values: list[bytes]) -> Path:
    """Even ones in partition 0, odd ones in 1."""
    made = Making(path)
    for number, each in enumerate(values):
        made.send(number % 2, each)
    return made.close()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("sound") / "data", [value(row) for row in ROWS])


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """7 is missing, 5 twice, 6 different, 99 in excess, and one message is no JSON; 5 and 6 came in a transaction."""
    made = Making(tmp_path_factory.mktemp("wrong") / "data")
    for row in ROWS:
        if row[0] not in (5, 6, 7):
            made.send(row[0] % 2, value(row))
    made.transaction((1, value(ROWS[5])), (0, value((6, "another", 9.0))), end="two", xid="shop")
    made.send(0, value(ROWS[5]))
    made.send(1, value((99, "nobody", 0.0)))
    made.send(1, b"no json")
    return made.close()


def csv(where: Path, rows) -> str:
    lines = ["id,name,price", *(",".join(map(str, row)) for row in rows)]
    where.write_text("\n".join(lines) + "\n")
    return str(where)


@pytest.fixture(scope="module")
def parquet(spark, tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "rows"
    spark.createDataFrame(ROWS, "id int, name string, price double").coalesce(1).write.parquet(str(path))
    return str(path)


def compared(data, out, source, key=("id",), fields=None, topic="a", **more):
    expectation = Expectation(str(source), topic, key, fields or {}, **more)
    return conduct(Plan(str(data), str(out), None, [], MINUTE, [expectation]))


def differing(spark, data, source, key=("id",), fields=None, topic="a", **more):
    """The findings, without the rest of an audit."""
    expectation = Expectation(str(source), topic, key, fields or {}, **more)
    with comparing(spark, look(str(data)), [expectation], "") as [comparison]:
        return comparison.findings().collect()


def by_kind(made) -> dict[str, dict]:
    found = {each["kind"].removeprefix("expect: "): each for each in made["findings"]}
    assert len(found) == len(made["findings"]) or "unexpected" in found
    return found


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_log_that_holds_just_the_rows_is_sound(spark, sound, parquet, tmp_path, kind):
    source = parquet if kind == "parquet" else csv(tmp_path / "rows.csv", ROWS)
    made = compared(sound, tmp_path / "report", source, only=True)
    assert (made["sound"], made["findings"]) == (True, [])
    assert f"Topic a against {source} by id." in made["proven"]


def test_what_is_wrong_is_told_with_key_values_offset_transaction_file_and_position(
    spark, wrong, parquet, tmp_path
):
    made = compared(wrong, tmp_path / "report", parquet)
    assert made["violations"] == {"expect: missing": 1, "expect: twice": 1, "expect: different": 1}
    assert made["notices"] == {"expect: unexpected": 2}
    found = by_kind(made)
    assert found["missing"]["text"] == f'key id = ["7"] is there 0 times, expected 1 in {parquet}'
    assert not {"first", "path", "partition"} & found["missing"].keys()
    [six] = [(s, e) for s, e in log_of(wrong) if b"another" in bytes(e.frame)]
    different = found["different"]
    assert "name: the log has another, expected is name 6" in different["text"]
    assert "price" not in different["text"]  # 9.0 is as expected
    assert (different["partition"], different["first"], different["last"]) == (
        0,
        six[1].offset,
        six[1].offset,
    )
    assert (different["path"], different.get("position", 0)) == (six[0], six[1].position)
    assert (different["session"] > 0, different["serial"], different["xid"]) == (True, 1, "1:shop:")
    five = next(e for _, e in log_of(wrong, "a", 1) if b"name 5" in bytes(e.frame))
    assert f"is there 2 times, expected 1 in {parquet}; first in a-0 at offset" in found["twice"]["text"]
    assert (found["twice"]["partition"], found["twice"]["first"]) == (1, five.offset)
    texts = [each["text"] for each in made["findings"] if each["kind"] == "expect: unexpected"]
    assert any('["99"]' in text for text in texts)
    assert any("1 messages have no id" in text for text in texts)


def test_with_only_what_is_in_excess_is_a_violation_and_the_command_ends_with_1(
    spark, wrong, parquet, tmp_path
):
    ended = CliRunner().invoke(main, [
        "--data", str(wrong), "--out", str(tmp_path / "report"), "--expect", parquet, "--topic", "a", "--key", "id",
        "--only",
    ])  # fmt: skip
    assert ended.exit_code == 1, ended.output
    for kind in ("missing", "twice", "different", "unexpected"):
        assert f"expect: {kind}" in ended.output
    assert "5 violations" in ended.output


def test_damage_in_the_log_is_told_beside_the_rows_that_it_takes(spark, sound, parquet, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(sound, data)
    segment, entry = log_of(data)[2]
    rewrite(data, segment, entry.position + entry.length - 1, b"\xee")
    made = compared(data, tmp_path / "report", parquet)
    assert {"damaged frame", "expect: missing"} <= made["violations"].keys()
    assert any('["4"]' in each["text"] for each in made["findings"])


TYPED = {
    "a": 1, "b": "x", "n": 12345678901234567890.0, "d": "2026-01-31", "t": "2026-01-31T12:00:00.123456+02:00",
    "flag": True, "none": None, "list": [1, 2], "odd name.x": "é",
}  # fmt: skip
SCHEMA = (
    "a int, b string, n decimal(30,10), d date, t timestamp, flag boolean, none string, list array<int>, "
    "`odd name.x` string"
)


def typed(spark, path, **change) -> str:
    row = {
        "a": 1, "b": "x", "n": Decimal("12345678901234567890.1234567891"), "d": date(2026, 1, 31),
        "t": datetime(2026, 1, 31, 10, 0, 0, 123456, tzinfo=UTC), "flag": True, "none": None, "list": [1, 2],
        "odd name.x": "é",
    } | change  # fmt: skip
    spark.createDataFrame([tuple(row.values())], SCHEMA).write.parquet(str(path))
    return str(path)


def typed_message(**change) -> bytes:
    text = json.dumps(TYPED | change)
    return text.replace("1.2345678901234567e+19", "12345678901234567890.1234567891").encode()


def test_values_are_compared_in_the_tables_types_to_the_last_digit_with_composite_keys(spark, tmp_path):
    data = filled(tmp_path / "data", [typed_message()])
    source = typed(spark, tmp_path / "rows")
    assert differing(spark, data, source, ("a", "b"), only=True) == []
    other = typed(spark, tmp_path / "other", n=Decimal("12345678901234567890.1234567892"))
    [found] = differing(spark, data, other, ("a", "b"))
    assert 'a, b = ["1","x"]' in found["text"]
    told = "n: the log has 12345678901234567890.1234567891, expected is 12345678901234567890.1234567892"
    assert told in found["text"]


CHANGED = (
    ({"flag": None}, "flag: the log has NULL, expected is true"),
    ({"none": "no"}, "none: the log has no, expected is NULL"),
    ({"d": "today"}, "d: the log has today, expected is 2026-01-31"),
    ({"t": "2026-01-31T12:00:00.1+01:00"}, "t: the log has 2026-01-31 11:00:00.1, expected is 2026-01-31 10:00"),
    ({"i": "x"}, "i: the log has x, expected is NULL"),
)  # fmt: skip


def test_null_and_what_is_not_of_the_type_are_different(spark, tmp_path):
    """A message for each, and one row that all but their keys come from: what is no number is not taken for NULL."""
    keys = range(len(CHANGED))
    data = filled(tmp_path / "data", [typed_message(a=key, **CHANGED[key][0]) for key in keys])
    row = spark.read.parquet(typed(spark, tmp_path / "row")).drop("a").selectExpr("*", "cast(null as int) i")
    row.join(spark.range(len(keys)).selectExpr("cast(id as int) a")).write.parquet(str(tmp_path / "rows"))
    found = {each["text"]: None for each in differing(spark, data, tmp_path / "rows", ("a", "b"))}
    assert len(found) == len(keys)
    for key, (_, told) in enumerate(CHANGED):
        [text] = [text for text in found if f'a, b = ["{key}","x"]' in text]
        assert told in text
        assert text.count("the log has") == 1


def test_csv_has_quotes_and_lines_as_copy_of_postgresql_writes_them_and_empty_is_none(spark, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text('id,note\n1,"say ""hi"",\nthere"\n2,\n3,\\\n')
    values = [
        b'{"id": 1, "note": "say \\"hi\\",\\nthere"}',
        b'{"id": 2, "note": ""}',
        b'{"id": 3, "note": "\\\\"}',
    ]
    assert differing(spark, filled(tmp_path / "data", values), table, only=True) == []


def test_a_column_follows_from_a_message_by_sql(spark, tmp_path):
    made = Making(tmp_path / "data")
    frames = made.frames(b"3.50", key=b"k1")
    made.engine.append(made.engine.catalog.stores[made.numbers[0]], frames, 1)
    made.engine.sync()
    data = made.close()
    (tmp_path / "rows.csv").write_text("name,price,ignored\nk1,3.50,x\n")
    fields = {"name": "CAST(key AS STRING)", "price": "CAST(value AS STRING)"}
    source = tmp_path / "rows.csv"
    assert differing(spark, data, source, ("name",), fields, only=True) == []
    fields["price"] = "concat(value, '!')"
    [found] = differing(spark, data, source, ("name",), fields)
    assert "price: the log has 3.50!, expected is 3.50" in found["text"]


def test_a_table_of_nothing_but_its_key_is_compared(spark, tmp_path):
    (tmp_path / "rows.csv").write_text("line\nb\na\nc\n")
    fields = {"line": "CAST(value AS STRING)"}
    data = filled(tmp_path / "data", [b"a", b"b", b"b", b"d"])
    rows = differing(spark, data, tmp_path / "rows.csv", ("line",), fields, only=True)
    found = {row["text"].split(" is there")[0]: row["kind"] for row in rows}
    assert found == {
        'key line = ["b"]': "expect: twice",
        'key line = ["c"]': "expect: missing",
        'key line = ["d"]': "expect: unexpected",
    }


class TestWrongInputs:
    @pytest.mark.parametrize(
        ("text", "kind", "told"),
        [
            ("id,name,price\n", TableUnusable, "has no rows"),
            ("", TableUnusable, "has no rows"),
            ("id,name\n1,a\n,b\n,c\n", TableUnusable, "id is null in 2 of 3 rows"),
            ("id,name\n1,a\n1,b\n", TableUnusable, '["1"] (2 times)'),
            ("id,name\n1,a,b\n", TableUnusable, "Malformed"),
            ("number,name\n1,a\n", InvalidSetting, "there is no column id; there are number, name"),
        ],
    )
    def test_a_table_that_cannot_be_compared_with_is_refused_before_the_audit(
        self, spark, sound, tmp_path, text, kind, told
    ):
        (tmp_path / "rows.csv").write_text(text)
        with pytest.raises((TableUnusable, InvalidSetting)) as caught:
            differing(spark, sound, tmp_path / "rows.csv")
        assert told in str(caught.value)
        assert type(caught.value) is kind
        assert plain(str(caught.value))

    def test_an_empty_table_is_meant_where_only_is_said(self, spark, sound, tmp_path):
        (tmp_path / "rows.csv").write_text("id,name\n")
        found = differing(spark, sound, tmp_path / "rows.csv", only=True)
        assert {(each["kind"], each["what"]) for each in found} == {("expect: unexpected", "violation")}
        assert len(found) == len(ROWS)

    def test_files_that_are_not_there_or_no_table_are_named(self, spark, sound, tmp_path):
        (tmp_path / "rows.parquet").write_text("hello")
        for name, told in (("none", "does not exist"), ("rows.parquet", "not a Parquet file")):
            with pytest.raises(TableUnusable, match=told) as caught:
                differing(spark, sound, tmp_path / name)
            assert plain(str(caught.value))

    def test_an_unknown_topic_is_told_with_those_that_there_are(self, spark, sound, parquet, tmp_path):
        with pytest.raises(UnknownTopic, match="there are a"):
            differing(spark, sound, parquet, topic="b")

    @pytest.mark.parametrize(
        ("sql", "told"),
        [
            ("CAST((value", "--field name=CAST((value is no SQL"),
            ("valu", "`valu` cannot be resolved"),
            ("CAST(CAST(value AS STRING) AS INT)", "fails for a message of a"),
        ],
    )
    def test_an_expression_that_is_none_is_named(self, spark, sound, parquet, tmp_path, sql, told):
        with pytest.raises(InvalidSetting) as caught:
            differing(spark, sound, parquet, fields={"name": sql})
        assert told in str(caught.value)
        assert plain(str(caught.value))

    def test_the_command_says_so_in_a_line_and_ends_with_neither_0_nor_1(self, spark, sound, tmp_path):
        ended = CliRunner().invoke(main, [
            "--data", str(sound), "--out", str(tmp_path / "report"), "--expect", str(tmp_path / "none"), "--topic", "a",
            "--key", "id",
        ])  # fmt: skip
        assert ended.exit_code == 3, ended.output
        assert plain(ended.output.strip())
        assert "does not exist" in ended.output


def plain(message: str) -> bool:
    """One line for people: what, that nothing was made, and nothing of Java's."""
    assert "\n" not in message
    assert "Nothing was audited" in message or "There is no report" in message
    return not any(word in message for word in ("\tat ", "java.", "org.apache", "SQLSTATE", "Py4J"))


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("jdbc:postgresql://h:5/db?user=u&password=s3cret#t", "jdbc:postgresql://h:5/db#t"),
        ("jdbc:postgresql://u:s3cret@h/db#t", "jdbc:postgresql://h/db#t"),
        ("jdbc:postgresql://u:s3cret@h1,[::1]:7/db?sslpassword=s3cret#s.t", "jdbc:postgresql://h1,[::1]:7/db#s.t"),
        ("jdbc:postgresql:db?password=s3cret#t", "jdbc:postgresql:db#t"),
        ("/a/b.parquet", "/a/b.parquet"),
    ],
)  # fmt: skip
def test_what_is_shown_of_a_source_has_no_password(given, shown):
    assert source_of(given).shown == shown
    assert "s3cret" not in source_of(given).url
    assert "s3cret" not in repr(Expectation(given, "a", ("id",), {}))


@pytest.mark.parametrize(
    "given",
    [
        "jdbc:postgresql://u:s3cret@h/db",
        "jdbc:postgresql://u:s3cret/more@h/db#t",
        "jdbc:postgresql://u:s3cret?more@h/db#t",
        "jdbc:postgresql://u:x@s3cret@h/db#t",
        "jdbc:postgresql://h/db?password=a#s3cret#t",
        "postgresql://u:s3cret@h/db#t",
        "jdbc:mysql://u:s3cret@h/db#t",
    ],
)
def test_a_source_that_is_not_understood_is_refused_without_telling_it(given):
    with pytest.raises(InvalidSetting) as caught:
        source_of(given)
    assert "s3cret" not in str(caught.value)
    assert "Nothing was audited" in str(caught.value)


def test_passwords_are_taken_from_url_or_environment_as_they_were_meant(monkeypatch):
    def password(given):
        return dict(source_of(given).options).get("password")

    monkeypatch.delenv("PGPASSWORD", raising=False)
    assert password("jdbc:postgresql://u:p%40%2Fq@h/db#t") == "p@/q"
    assert password("jdbc:postgresql://h/db?password=a%2Bb%26c#t") == "a+b&c"
    assert password("jdbc:postgresql://u@h/db#t") is None
    monkeypatch.setenv("PGPASSWORD", "kept")
    assert password("jdbc:postgresql://u@h/db#t") == "kept"
    assert password("jdbc:postgresql://u:own@h/db#t") == "own"
