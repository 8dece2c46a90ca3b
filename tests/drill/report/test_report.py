"""Test the drill's report: its figures, a page that needs nothing else, and its lines while it runs."""

import io
import re
from xml.etree import ElementTree

import msgspec
from rich.console import Console

from txbroker.drill.broker.schedule import Kind
from txbroker.drill.broker.victim import Disturbance, Start
from txbroker.drill.clients.ledger import Acknowledged, Began, Call, Decided, Ended, Line, Prepared, Unknown
from txbroker.drill.drill import Drill, Progress
from txbroker.drill.judgement.expectation import Expectation, Letter
from txbroker.drill.judgement.violation import Violation, Wrong
from txbroker.drill.plan.orders import Orders
from txbroker.drill.report.page import page, write_page
from txbroker.drill.report.result import BINS, Counts, Report, count, percentile, rows_of, throughput
from txbroker.drill.report.timeline import timeline
from txbroker.drill.screen import Screen, block, line_of


def report(**changes):
    fields = {
        "name": "drill1", "seed": 7, "command": "txbroker drill --fresh --seed 7", "seconds": 20.0,
        "kills_asked": 2, "kills": 2, "pauses": 1, "stops": 1, "client_deaths": 3, "restarts": 3,
        "recovery": [0.5, 0.7, 2.0],
        "disturbances": [
            Disturbance(kind="kill", planned="mid-write", how="killed there", down_at=1.0, up_at=1.5),
            Disturbance(kind="kill", planned="during-recovery", how="killed at change 3", down_at=1.0, up_at=2.5),
            Disturbance(kind="pause", planned="4.0 s", how="went on", down_at=4.0, up_at=8.0),
            Disturbance(kind="stop", planned="", how="stopped", down_at=9.0, up_at=10.0),
            Disturbance(kind="client kill", planned="relay-1", how="killed", down_at=11.0, up_at=11.0),
            Disturbance(kind="client pause", planned="worker-1 for 3.0 s", how="paused", down_at=12.0, up_at=15.0),
        ],
        "starts": [Start(executed_at=-2.0, seconds=1.0), Start(executed_at=1.0, seconds=0.5), Start(executed_at=1.1)],
        "counts": Counts(acknowledged=1234), "violations": [], "throughput": [(0.0, 0.0), (5.0, 900.0), (10.0, 100.0)],
    }  # fmt: skip
    return Report(**(fields | changes))


LOST = Violation(
    wrong=Wrong.LOST, text="message <1> is gone", topic="drill1-orders", partition=2, offset=41,
    client="plain-1.1", ledger="plain-1.1.jsonl:17",
)  # fmt: skip


class TestPage:
    def test_it_is_well_formed_and_asks_for_nothing_else(self):
        made = page(report(violations=[LOST]))
        assert not re.search(r"(?:src|href)\s*=|url\(|@import|<script|<link", made)
        ElementTree.fromstring(timeline(report()))

    def test_each_kind_of_blow_each_start_and_each_time_out_of_order_is_drawn(self):
        drawn = ElementTree.fromstring(timeline(report()))
        kinds = [each.get("class", "") for each in drawn.iter()]
        for kind in ("mark kill", "mark pause", "mark stop", "mark client-kill", "mark client-pause"):
            assert kind in kinds
        assert kinds.count("bar") == 1, "of the starts that were accepted, but the first"
        bands = [
            (float(each.get("x")), float(each.get("width")))
            for each in drawn.iter()
            if each.get("class") == "down"
        ]
        assert len(bands) == 4
        ends = [0.0, *(x + width for x, width in bands)]
        assert all(x >= end - 0.2 for (x, _), end in zip(bands, ends, strict=False)), "one is over another"
        assert "killed there" in "".join(drawn.itertext())

    def test_a_sound_drill_says_so_and_another_names_what_is_wrong(self):
        assert "No violation." in page(report())
        made = page(report(violations=[LOST]))
        assert "1 violation." in made
        for part in ("message &lt;1&gt; is gone", "drill1-orders-2", "41", "plain-1.1.jsonl:17"):
            assert part in made

    def test_it_is_light_or_dark_as_the_reader_likes(self):
        assert "prefers-color-scheme: dark" in page(report())

    def test_a_drill_that_failed_at_once_has_a_page_too(self, tmp_path):
        empty = report(disturbances=[], starts=[], recovery=[], throughput=[], violations=[LOST])
        assert write_page(empty, tmp_path).read_text().startswith("<!doctype html>")


class TestNumbers:
    def test_percentiles_are_values_that_occurred(self):
        values = [float(number) for number in range(1, 101)]
        assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0)) == (50, 99, 100)
        assert percentile([3.0], 0.5) == 3.0
        assert percentile([], 0.5) == 0.0

    def test_lost_duplicated_and_half_visible_are_told_also_if_there_are_none(self):
        assert dict(rows_of(report()))["LOST"] == "0"
        rows = dict(rows_of(report(violations=[LOST, LOST])))
        assert (rows["LOST"], rows["DUPLICATED"], rows["HALF-VISIBLE"]) == ("2", "0", "0")

    def test_the_work_of_workers_is_told_if_there_are_any(self):
        assert not [row for row, _ in rows_of(report()) if "worker" in row or row == "HANDLED TWICE"]
        counts = Counts(tasks=1700, tasks_handled=1650, tasks_poison=49, tasks_lost_with_workers=1, claims=9)
        rows = dict(rows_of(report(workers=3, client_pauses=2, counts=counts)))
        assert rows["workers, paused (SIGSTOP)"] == "3, 2"
        assert rows["messages for workers"] == "1,700"
        assert rows["  handled, exactly once"] == "1,650"
        assert rows["  dead letters: poison, lost with too many workers"] == "49, 1"
        assert (rows["HANDLED TWICE"], rows["NEVER HANDLED"], rows["CLAIM"]) == ("0", "0", "0")

    def test_what_went_through_queues_is_told_if_there_are_queuers(self):
        assert not [row for row, _ in rows_of(report()) if "queue" in row or row == "HALF DONE"]
        counts = Counts(published=1200, delivered=1500, settled=900, settled_with_transactions=80, queued=33)
        rows = dict(rows_of(report(queuers=2, counts=counts)))
        assert rows["messages published to queues"] == "1,200"
        assert rows["  deliveries to clients"] == "1,500"
        assert rows["  settled alone, acknowledged with a transaction"] == "900, 80"
        assert rows["  dead letters, left in the queues"] == "0, 33"
        assert (rows["ACKNOWLEDGED AND BACK"], rows["HALF DONE"]) == ("0", "0")

    def test_what_workers_did_is_counted_apart_from_transactions_and_sends(self):
        def call(offset, generation, fails=False):
            made = Call(place=0, offset=offset, generation=generation, attempts=0, checksum=1, fails=fails)
            return {"together": True, "keys": ["k"], "call": made}

        expectation = Expectation()
        entries = [
            Began(operation=1, places=[2], **call(0, 5)),
            Began(operation=2, places=[2], **call(1, 5, fails=True)),
            Began(operation=3, places=[2], **call(1, 6)),
        ]
        expectation.take(Line("worker-1.1", number, entry) for number, entry in enumerate(entries))
        fed = Began(operation=1, places=[0] * 200, keys=["k"] * 200)
        expectation.take([Line("feeder-1.1", 1, fed)])
        tasks = expectation.operations["feeder-1.1", 1]
        tasks.found = [(0, 0, 0), (1, 0, 1)]
        expectation.operations["worker-1.1", 1].found = [(0, 2, 0)]
        poison, other = (
            next(number for number in range(200) if tasks.is_poison(number) is wanted)
            for wanted in (True, False)
        )
        expectation.letters += [Letter(tasks, number, 4, 0, "t", 0, 0, 5) for number in (poison, other)]
        found = count(expectation)
        assert (found.tasks, found.tasks_handled) == (2, 1)
        assert (found.tasks_poison, found.tasks_lost_with_workers) == (1, 1)
        assert (found.handler_calls, found.handler_failures, found.claims) == (3, 1, 2)
        assert (found.held, found.unanswered_whole, found.unanswered_absent) == (5, 0, 0)

    def test_what_came_of_each_operation_is_counted(self):
        expectation = Expectation()
        entries = [
            Began(operation=1, places=[0, 0, 0, 0]),
            Acknowledged(operation=1, offsets=[(0, 0), (1, 1)]),
            Unknown(operation=1, indexes=[2, 3], error="lost"),
            Began(operation=2, places=[0, 0], together=True, xid="1:a:b"),
            Prepared(operation=2),
            Decided(operation=2, commit=True),
            Began(operation=3, places=[0], together=True),
            Ended(operation=3, committed=False),
            Began(operation=4, places=[0], together=True, xid="1:a:c"),
            Prepared(operation=4),
        ]
        lines = [Line("transactor-1.1", number, entry) for number, entry in enumerate(entries)]
        lines += [
            Line("coordinator", 1, Ended(operation=2, committed=True, sender="transactor-1.1")),
            Line("coordinator", 2, Ended(operation=4, committed=False, sender="transactor-1.1")),
        ]
        expectation.take(lines)
        expectation.operations["transactor-1.1", 1].found = [(0, 0, 0), (1, 0, 1), (3, 0, 2)]
        found = count(expectation)
        assert (found.acknowledged_sends, found.acknowledged) == (2, 4)
        assert (found.unknown_stored, found.unknown_not_stored) == (1, 1)
        assert (found.transactions_committed, found.transactions_rolled_back) == (1, 2)
        assert (found.in_doubt_committed_as_decided, found.in_doubt_rolled_back_by_coordinator) == (1, 1)

    def test_throughput_is_what_was_acknowledged_in_each_column(self):
        lines = [
            Line("a.1", 1, Acknowledged(operation=1, offsets=[(0, 0), (1, 1)], at=10.0)),
            Line("a.1", 2, Ended(operation=2, committed=True, at=10.0 + 239.5)),
            Line("a.1", 3, Ended(operation=3, committed=False, at=100.0)),
            Line("a.1", 4, Acknowledged(operation=4, offsets=[(0, 2)], at=9.0)),
        ]
        found = throughput(lines, {("a.1", 2): 30, ("a.1", 3): 99}, 10.0, 10.0 + BINS)
        assert found[0] == (0.0, 2.0)
        assert found[-1] == (239.0, 30.0)
        assert sum(rate for _, rate in found) == 32.0

    def test_the_json_has_all_of_it(self, tmp_path):
        made = report(violations=[LOST])
        read = msgspec.json.decode(made.write(tmp_path).read_bytes(), type=Report)
        assert read == made
        assert not read.sound


class TestScreen:
    def shown(self, terminal):
        stream = io.StringIO()
        console = Console(file=stream, force_terminal=terminal, width=100)
        now = 100.0
        with Screen(console, lambda: now) as screen:
            screen.show(Progress(doing="starting the broker"))
            screen.tell("[1.0 s] kill mid-write: killed there")
            for now in (105.0, 110.0, 111.0, 119.0):
                screen.show(
                    Progress("under load", seconds=now - 100, seconds_asked=20.0, kills=3, kills_asked=9)
                )
        return stream.getvalue()

    def test_where_there_is_no_terminal_there_are_plain_lines_now_and_then(self):
        lines = self.shown(terminal=False).splitlines()
        assert lines[1] == "[1.0 s] kill mid-write: killed there"
        assert lines[2].startswith("under load: 10 of 20 s, 3 of 9 kills")
        assert len(lines) == 3

    def test_no_more_is_done_of_what_was_asked_for_than_that(self):
        over = Progress("ending", seconds=41.0, seconds_asked=20.0, kills=5, kills_asked=4)
        assert line_of(over).startswith("ending: 41 s (20 asked for), 5 kills (4 asked for), ")
        stream = io.StringIO()
        Console(file=stream, width=100).print(block(over))
        assert " of " not in stream.getvalue()

    def test_what_was_done_to_the_broker_is_told_with_where_if_there_is_a_where(self, tmp_path):
        told = []

        class Watcher:
            show = tell = staticmethod(told.append)

        orders = Orders(
            seed=1, kills=1, seconds=3.0, points=[], clients=1, two_phase=0.5, rate=1.0, out=tmp_path, power_cuts=False
        )  # fmt: skip
        drill = Drill(orders, Watcher())
        drill._note(Kind.STOP, "", "stopped", 1.0)
        drill._note(Kind.KILL, "mid-write", "killed there", 2.0)
        assert told == ["     1.0 s  stop: stopped", "     2.0 s  kill mid-write: killed there"]

    def test_on_a_terminal_one_block_is_drawn_anew_and_events_stay(self):
        shown = self.shown(terminal=True)
        assert "kill mid-write: killed there" in shown
        assert "3 of 9 kills" in shown
        assert "\x1b[" in shown
