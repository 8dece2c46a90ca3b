"""Test producers' reports: exactly what was acknowledged, by topic and window of the messages' own times."""

import asyncio
import time

import msgspec
import pytest

import txbroker
from journal.formats import frame
from journal.formats.frame_times import times_and_sizes
from journal.xid import Xid
from tests.client.rig import Rig, send_as_adds
from tests.client.scripted_broker import ScriptedServer
from txbroker import errors
from txbroker.client.asyncio import connect
from txbroker.client.producer.reports import Report
from txbroker.wire.messages import Add, Commit, Prepare, Refused, Send

MINUTE = 60_000_000
NOON = 1_767_268_800_000_000
"""2026-01-01 12:00 UTC in µs: a minute begins."""
XID = Xid(1, b"day", b"flights")


@pytest.fixture
def rig(broker):
    return Rig(broker, client="meter", reports="t2", report_interval=10.0)


def reports(broker, partitions=(2, 3)):
    runs = [run for number in partitions for _, run in broker.logs[number]]
    found = [msgspec.json.decode(m.value, type=Report) for run in runs for m in frame.decode_run(run)]
    return sorted(found, key=lambda report: (report.number is None, report.number))


def send(rig, value, timestamp, key=None, headers=None):
    route = rig.producer.known_route("t") or rig.run(rig.producer.route("t"))
    batch, _ = route.choose(key, None).append(value, timestamp, key, headers)
    return batch


def test_a_report_counts_messages_and_bytes_by_topic_and_window_of_the_messages_time(rig, broker):
    send(rig, b"12345", 5 * MINUTE, b"key", {"h": b"1"})
    send(rig, b"1", 6 * MINUTE - 1)
    send(rig, None, 6 * MINUTE)
    rig.pump()
    rig.wait(10.5)
    (report,) = reports(broker)
    assert (report.producer, report.number, report.window, report.closed) == ("meter", 0, MINUTE, False)
    first, second = report.sent
    assert (first[:3], second) == (("t", 5 * MINUTE, 2), ("t", 6 * MINUTE, 1, 0))
    assert first[3] == sum(
        len(frame.encode(*said)) - frame.HEADER_BYTES
        for said in ((b"12345", 0, b"key", {"h": b"1"}), (b"1", 0))
    )
    assert report.unknown == []


def test_bytes_are_those_of_key_headers_and_value_as_they_lie_in_the_frame():
    single = frame.encode(b"value", 7, b"key", {"h": b"1"})
    inner = frame.encode_inner(0, b"value", 7, b"key", {"h": b"1"}) + frame.encode_inner(1, None, 8)
    wrapper = frame.encode_wrapper(inner, 2, 7)
    size = len(single) - frame.HEADER_BYTES
    assert list(times_and_sizes(single + wrapper + single)) == [(7, size), (7, size), (8, 0), (7, size)]


def test_nothing_sent_is_nothing_reported(rig, broker):
    rig.wait(100)
    rig.run(rig.producer.reports.report(closing=True))
    assert reports(broker) == []


def test_a_refused_message_is_not_counted(rig, broker):
    refused = lambda request, data: Refused(request.correlation, "MessageTooLarge", "no")  # noqa: E731
    broker.before = lambda request, data: refused(request, data) if type(request) is Send else None
    batch = send(rig, b"1", 1)
    rig.pump()
    assert isinstance(batch.error, errors.MessageTooLarge)
    broker.before = lambda request, data: None
    send(rig, b"22", 1)
    rig.pump()
    rig.wait(11)
    (report,) = reports(broker)
    assert report.sent == [("t", 0, 1, 2)]


def test_a_send_repeated_after_a_lost_answer_is_counted_once(rig, broker):
    swallow = lambda request, data: broker.SWALLOW if type(request) is Send else None  # noqa: E731
    broker.before = swallow
    send(rig, b"22", 1)
    rig.pump()
    rig.cut()
    broker.before = lambda request, data: None
    rig.connect()
    rig.wait(11)
    (report,) = reports(broker)
    assert report.sent == [("t", 0, 1, 2)]


def test_a_message_of_which_nobody_will_know_is_reported_as_unknown(rig, broker):
    broker.before = lambda request, data: broker.SWALLOW if type(request) is Send else None
    batch = send(rig, b"22", 1)
    rig.pump()
    rig.cut()
    refused = lambda request: Refused(request.correlation, "UnknownProducer", "forgotten")  # noqa: E731
    broker.before = lambda request, data: refused(request) if type(request) is Send else None
    rig.connect()
    rig.wait(1)
    assert isinstance(batch.error, errors.OutcomeUnknown)
    broker.before = lambda request, data: None
    rig.wait(11)
    assert [(report.sent, report.unknown) for report in reports(broker)] == [([], [("t", 0, 1, 2)])]


def test_a_transaction_counts_when_it_is_committed_and_not_when_it_is_rolled_back(rig, broker):
    for value, commit in ((b"1", False), (b"22", True)):
        transaction = rig.transaction()
        rig.run(transaction.send("t", value, None, None, None, NOON + 1))
        send_as_adds(transaction)
        rig.run(transaction.commit() if commit else transaction.rollback())
    rig.wait(11)
    assert [report.sent for report in reports(broker)] == [[("t", NOON, 1, 2)]]


def test_a_prepared_transaction_carries_its_own_report(rig, broker):
    """Whoever commits it, and whatever becomes of its producer."""
    transaction = rig.transaction(XID)
    rig.run(transaction.send("t", b"22", None, None, None, NOON + 1))
    rig.run(transaction.send("t", b"333", None, None, None, NOON + 1))
    rig.run(transaction.prepare())
    assert reports(broker) == []
    rig.run(transaction.commit())
    rig.wait(100)
    rig.run(rig.producer.reports.report(closing=True))
    (report,) = reports(broker)
    assert (report.sent, report.number, report.transaction) == ([("t", NOON, 2, 5)], None, str(XID))
    assert [type(r) for r in broker.requests if type(r) in (Add, Prepare, Commit)] == [Prepare, Commit]


def test_a_report_that_could_not_be_sent_is_sent_again_under_its_number(rig, broker, caplog):
    send(rig, b"22", 1)
    rig.pump()
    full = lambda request: Refused(request.correlation, "InvalidFrame", "no")  # noqa: E731
    to_reports = lambda request: type(request) is Send and request.partition != 1  # noqa: E731
    broker.before = lambda request, data: full(request) if to_reports(request) else None
    rig.wait(21)
    assert reports(broker) == []
    assert caplog.text.count("a report to 't2' could not be sent and is tried again") == 1
    broker.before = lambda request, data: None
    send(rig, b"1", 1)
    rig.pump()
    rig.wait(10)
    assert [(report.number, report.sent) for report in reports(broker)] == [
        (0, [("t", 0, 1, 2)]),
        (1, [("t", 0, 1, 1)]),
    ]


def test_messages_to_the_topic_of_reports_are_not_counted(rig, broker):
    transaction = rig.transaction()
    rig.run(
        transaction.send("t2", msgspec.json.encode(Report(producer="", run="", window=1)), None, None, None)
    )
    rig.run(transaction.commit())
    rig.wait(30)
    assert [report.producer for report in reports(broker)] == [""]


@pytest.mark.parametrize("wrong", [{"report_window": 0}, {"report_window": 86401}, {"report_interval": 0}])
def test_windows_and_intervals_that_make_no_sense_are_refused(broker, wrong):
    with pytest.raises(errors.Misuse, match="nothing was opened"):
        Rig(broker, reports="t2", **wrong)


@pytest.fixture
def server(broker):
    server = ScriptedServer(broker)
    yield server
    server.close()


def test_the_blocking_client_reports_while_nobody_calls_it_and_when_it_is_closed(broker, server):
    with txbroker.connect(server.url, client="meter", reports="t2", report_interval=0.02) as connection:
        connection.send("t", b"22", timestamp=NOON + 1)
        deadline = time.monotonic() + 10
        while not reports(broker) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert [report.sent for report in reports(broker)] == [[("t", NOON, 1, 2)]]
        connection.send("t", b"1", timestamp=NOON + 1)
    found = reports(broker)
    assert sum(row[2] for report in found for row in report.sent) == 2
    assert [report.closed for report in found] == [*[False] * (len(found) - 1), True]
    assert [report.number for report in found] == list(range(len(found)))
    assert {report.run for report in found} == {found[0].run}


def test_a_topic_of_reports_that_is_missing_is_said_when_the_client_connects(server):
    with pytest.raises(errors.UnknownTopic, match="'audit'"):
        txbroker.connect(server.url, reports="audit", timeout=5.0)


def test_the_apis_on_a_loop_report_too(broker, server):
    async def work():
        async with await connect(
            server.url, client="meter", reports="t2", report_interval=0.02
        ) as connection:
            await connection.send("t", b"22", timestamp=NOON + 1)
            while not reports(broker):
                await asyncio.sleep(0.005)
            await connection.send("t", b"1", timestamp=NOON + 1)

    asyncio.run(asyncio.wait_for(work(), 10))
    found = reports(broker)
    assert sum(row[2] for report in found for row in report.sent) == 2
    assert found[-1].closed
