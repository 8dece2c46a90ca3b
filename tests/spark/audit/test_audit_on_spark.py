"""Test whole audits on real Spark: the report, its tables, the exit code, producers' windows, and expected tables."""

from __future__ import annotations

import json
import re

import pytest

from journal.formats import frame
from spark.audit.checks import windows
from spark.audit.checks.expected_table import Expectation
from spark.audit.claims.facts import What
from spark.audit.conduct import Plan, conduct
from tests.spark.audit.audited import (
    MINUTE,
    START,
    Making,
    audited,
    copied,
    log_of,
    resealed,
    some_of_everything,
)
from tests.spark.damages.forger import write as rewrite
from tests.spark.world import World

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return some_of_everything(tmp_path_factory.mktemp("sound") / "data")


def plan(path, out, **more):
    given = {"master": None, "reports": [], "window": MINUTE, "expectations": []} | more
    return Plan(str(path), str(out), **given)


def test_a_sound_directory_passes_with_a_report_of_all_that_was_looked_at(spark, sound, tmp_path):
    made = conduct(plan(sound, tmp_path / "report"))
    assert made["sound"]
    assert made["findings"] == []
    states = {(row["state"], row["cause"]): row["transactions"] for row in made["transactions"]}
    assert states == {("committed", "client"): 24, ("rolled_back", "client"): 12, ("prepared", None): 1}
    plain = audited(sound)
    messages = sum(fact.messages for fact in plain if fact.what == What.LOG)
    assert made["logs"]["messages"] == messages
    proofs = made["proven_by"]
    assert list(proofs) == ["archive", "journal", "checkpoint", "reports", "nothing"]
    own = {fact.kind: 0 for fact in plain if fact.what == What.PROOF}
    for fact in plain:
        if fact.what == What.PROOF and fact.topic == "a":
            own[fact.kind] += fact.messages
    assert {name: proofs[name] for name in own} == own
    assert sum(proofs.values()) == sum(f.messages for f in plain if f.what == What.LOG and f.topic == "a")
    report = tmp_path / "report"
    assert spark.read.parquet(str(report / "transactions")).count() == 37
    kept = (
        spark.read.parquet(str(report / "windows")).where("topic = 'a'").groupBy().sum("messages").collect()
    )
    assert kept[0][0] == sum(f.messages for f in plain if f.what == What.WINDOW and f.topic == "a")
    page = (report / "index.html").read_text()
    assert page.count("<svg") == 3
    assert page.index("What the messages are proven by") < page.index("Messages by time")
    assert not re.search(r"<script|<link|src=|https?://", page)
    assert json.loads((report / "summary.json").read_text())["sound"] is True


@pytest.mark.deep  # test_damages_on_spark.py has more kinds
def test_damages_of_many_kinds_in_one_directory_are_all_in_the_tables(spark, sound, tmp_path):
    path = copied(sound, tmp_path / "data")
    segment, forged = next(
        (s, e) for s, e in log_of(path) if bytes(e.frame[frame.HEADER_BYTES :]).startswith(b"two phases 3")
    )
    rewrite(path, segment, forged.position, resealed(forged, b"forged"))
    torn_segment, torn = log_of(path, "a", 1)[4]
    rewrite(path, torn_segment, torn.position + torn.length - 1, b"\xee")
    newest = max((path / "journal").glob("*.journal"))
    rewrite(path, f"journal/{newest.name}", 8192 + 60, b"garbage")
    made = conduct(plan(path, tmp_path / "report"))
    assert not made["sound"]
    found = (
        spark.read.parquet(str(tmp_path / "report" / "findings")).where("severity = 'violation'").collect()
    )
    rows = {(row["kind"], row["path"], row["position"]): row for row in found}
    wrong = rows["transaction", segment, forged.position]
    assert (wrong["topic"], wrong["partition"], wrong["first"]) == ("a", 0, forged.offset)
    assert wrong["session"] >= 0
    assert rows["damaged frame", torn_segment, torn.position]["first"] == torn.offset
    assert len(found) == sum(made["violations"].values())
    told = (tmp_path / "report" / "index.html").read_text()
    assert segment in told
    assert f"{wrong['session']}-{wrong['serial']}" in told


def reported(made: Making, run: str, number: int, rows, closed=False, unknown=(), producer="p") -> None:
    value = {
        "producer": producer, "run": run, "window": MINUTE, "sent": rows, "unknown": list(unknown), "number": number,
        "transaction": None, "closed": closed,
    }  # fmt: skip
    made.log.append("reports", json.dumps(value).encode(), key=producer.encode())


def sent_rows(path) -> dict[int, list[int]]:
    counts: dict[int, list[int]] = {}
    for partition in (0, 1):
        for _, entry in log_of(path, "a", partition):
            row = counts.setdefault(entry.timestamp - entry.timestamp % MINUTE, [0, 0])
            row[0] += 1
            row[1] += entry.length - frame.HEADER_BYTES
    return counts


def windowed(path, **plan_of) -> Making:
    made = Making(path)
    made.log.create_topic("reports")
    for number in range(150):
        made.send(number % 2, b"value %d" % number)
    return made


@pytest.mark.parametrize(
    "what",
    [
        "missing",
        *(
            pytest.param(what, marks=pytest.mark.deep)
            for what in ("right", "different", "excess", "unreported", "a report is missing")
        ),
    ],
)
def test_windows_are_compared_with_what_producers_say(spark, tmp_path, what):
    made = windowed(tmp_path / "data")
    made.checkpoint()
    counts = sent_rows(made.path)
    assert len(counts) > 2
    begin = sorted(counts)[1]
    if what == "missing":
        counts[begin][0] += 2
        counts[begin][1] += 14
    elif what == "different":
        counts[begin][1] += 1
    elif what in ("excess", "unreported"):
        counts[begin][0] -= 1
    rows = [["a", at, *count] for at, count in sorted(counts.items())]
    reported(made, "r", 0, rows[:1])
    reported(made, "r", 0, rows[:1])  # sent again
    if what != "a report is missing":
        reported(made, "r", 1, rows[1:2])
    reported(
        made, "r", 2, rows[2:] if what != "a report is missing" else rows[1:], closed=what != "unreported"
    )
    found = conduct(plan(made.close(), tmp_path / "report", reports=["reports"]))
    kinds = {each["kind"]: each for each in found["findings"]}
    wanted = {"right": set(), "a report is missing": {"report"}}.get(what, {f"window: {what}"})
    assert set(kinds) == wanted
    assert found["sound"] == (what in ("right", "unreported"))
    for each in kinds.values():
        assert "producer 'p'" in each["text"] if what == "a report is missing" else "p " in each["text"]
        assert what == "a report is missing" or each["first"] == begin


def test_a_window_that_is_as_reported_proves_what_no_journal_holds_any_more(spark, tmp_path):
    made = World(tmp_path / "data")
    made.log.create_topic("reports")
    for number in range(150):
        made.put("a", number % 2, b"value %d" % number)
    made.turn_over()
    counts = sent_rows(made.path)
    wrong = sorted(counts)[1]
    rows = [["a", at, *count] for at, count in sorted(counts.items())]
    reported(made, "r", 0, [row for row in rows if row[1] != wrong], closed=False)
    made.turn_over()
    found = conduct(plan(made.close(), tmp_path / "report", reports=["reports"]))
    assert found["proven_by"]["reports"] == 150 - counts[wrong][0]
    assert found["proven_by"]["nothing"] >= counts[wrong][0]
    assert "producers’ counts of their window <b>" in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.deep  # a comparison of no reports with no messages
def test_reports_of_nothing_are_nothing(spark, tmp_path):
    made = windowed(tmp_path / "data")
    reports = windows.Reports(spark, str(made.close()), ["reports"])
    assert (reports.window, reports.missing(), reports.open_producers()) == (0, [], [])


@pytest.mark.deep  # test_expecting.py has more of them
class TestExpectations:
    ROWS = tuple((number, f"name {number}", number * 1.5) for number in range(40))

    def flights(self, path, rows):
        made = Making(path)
        for number, name, price in rows:
            made.send(number % 2, json.dumps({"id": number, "name": name, "price": price}).encode())
        return made.close()

    def table(self, spark, where, rows):
        frame = spark.createDataFrame(rows, "id int, name string, price double")
        if where.suffix == ".csv":
            frame.write.option("header", True).csv(str(where))
        else:
            frame.write.parquet(str(where))
        return str(where)

    @pytest.mark.parametrize("kind", ["parquet", "csv"])
    def test_what_is_as_expected_passes_and_a_column_may_follow_from_the_message_by_sql(
        self, spark, tmp_path, kind
    ):
        source = self.table(spark, tmp_path / f"expected.{kind}", self.ROWS)
        data = self.flights(tmp_path / "data", self.ROWS)
        fields = {"name": "concat('name ', get_json_object(cast(value as string), '$.id'))"}
        expectation = Expectation(source, "a", ("id",), fields, only=True)
        made = conduct(plan(data, tmp_path / "report", expectations=[expectation]))
        assert made["findings"] == []

    def test_missing_twice_different_and_unexpected_are_each_named_with_key_and_place(self, spark, tmp_path):
        source = self.table(spark, tmp_path / "expected.parquet", self.ROWS)
        rows = [row for row in self.ROWS if row[0] != 7]
        rows[20] = (rows[20][0], "another name", rows[20][2])
        rows += [self.ROWS[5], (99, "nobody", 0.0)]
        data = self.flights(tmp_path / "data", rows)
        made = conduct(plan(data, tmp_path / "report", expectations=[Expectation(source, "a", ("id",), {})]))
        found = {each["kind"].removeprefix("expect: "): each for each in made["findings"]}
        assert found.keys() == {"missing", "twice", "different", "unexpected"}
        assert '["7"]' in found["missing"]["text"]
        assert '["5"]' in found["twice"]["text"]
        assert "another name" in found["different"]["text"]
        assert (found["unexpected"]["severity"], found["twice"]["severity"]) == ("notice", "violation")
        assert found["twice"]["topic"] == "a"
        assert found["twice"]["first"] >= 0
        assert made["violations"] == {"expect: missing": 1, "expect: twice": 1, "expect: different": 1}


def test_the_times_of_these_messages_are_what_they_should_be(sound):
    assert min(entry.timestamp for _, entry in log_of(sound)) > START
