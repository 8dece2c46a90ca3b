"""Test that recorded output of the peers' tools becomes figures, and that anything else is a failure."""

import pytest

from benchmarks.peers import artemis, forces, kafka_loads, nats, postgresql, programs, rabbitmq, redis
from benchmarks.peers.server import PeerFailed

REDIS_BENCHMARK = (
    '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms",'
    '"max_latency_ms"\n'
    '"XADD stream * body xxxx","216.17","4.609","0.128","3.991","8.695","12.031","56.159"\n\n'
)

PERF_TEST = """\
id: singles, starting producer #0
id: singles, starting producer #0, channel #0
id: singles, time 1.021 s, sent: 7124 msg/s, confirmed: 7026 msg/s, nacked: 0 msg/s, \
min/median/75th/95th/99th confirm latency: 720/36313/59452/92825/93621 µs
id: singles, time 2.015 s, sent: 15191 msg/s, confirmed: 12953 msg/s, nacked: 0 msg/s, \
min/median/75th/95th/99th confirm latency: 4272/40838/134230/190351/202979 µs
id: singles, time 3.015 s, sent: 20381 msg/s, confirmed: 19376 msg/s, nacked: 0 msg/s, \
min/median/75th/95th/99th confirm latency: 496/45789/63694/155283/168913 µs
id: singles, time 4.037 s, sent: 17322 msg/s, confirmed: 20579 msg/s, nacked: 0 msg/s, \
min/median/75th/95th/99th confirm latency: 2242/64881/158813/212498/230412 µs
test stopped (Reached time limit)
id: singles, sending rate avg: 14674 msg/s
id: singles, receiving rate avg: 0 msg/s
id: singles, confirm latency min/median/75th/95th/99th 499/45652/98993/194210/229170 µs
"""

PRODUCER_PERFORMANCE = """\
Warmup first 61425 records. Steady state results will print after the complete test summary.
184275 records sent, 78016.511431 records/sec (7.44 MB/sec), 77.13 ms avg latency, 1010.00 ms max latency, \
56 ms 50th, 202 ms 95th, 218 ms 99th, 223 ms 99.9th.
122850 steady state records sent, 115569.143932 records/sec (11.02 MB/sec), 50.02 ms avg latency, \
99.00 ms max latency, 49 ms 50th, 83 ms 95th, 97 ms 99th, 99 ms 99.9th.
"""

WITH_PROGRESS = """\
37740 records sent, 7540.5 records/sec (0.72 MB/sec), 2342.3 ms avg latency, 3959.0 ms max latency.
300000 records sent, 13838.915029 records/sec (1.32 MB/sec), 11741.55 ms avg latency, 18687.00 ms max latency, \
12771 ms 50th, 18557 ms 95th, 18656 ms 99th, 18684 ms 99.9th.
"""

PGBENCH_LOG = """\
50 1 24032 0 1795288410 268089
55 1 24024 0 1795288410 268121
60 1 24047 0 1795288410 268180
34 1 27621 0 1795288411 270348
36 2 27550 0 1795288411 270364
38 2 27523 0 1795288412 770368
""".splitlines()

STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ------------------
 48.60    0.662907         174      3789        75 futex
  5.44    0.074205          81       910           fsync
  0.01    0.000101          50         2           mmap
  0.01    0.000101          50        12         3 fdatasync
------ ----------- ----------- --------- --------- ------------------
100.00    1.364051          90     15121      1043 total
"""


def test_redis_benchmark_tells_rate_and_latencies():
    assert redis.parsed(REDIS_BENCHMARK, 432) == pytest.approx((216.17, 0.003991, 0.012031, 432))


def test_perf_test_counts_after_the_warm_up_by_the_seconds_that_its_intervals_took():
    found = rabbitmq.parsed(PERF_TEST, 1.6)
    confirmed = 19376 * (3.015 - 2.015) + 20579 * (4.037 - 3.015)
    assert found.rate == pytest.approx(confirmed / (4.037 - 2.015))
    assert found.p50 == pytest.approx((0.045789 + 0.064881) / 2)
    assert found.acknowledged == round(confirmed)


def test_without_a_warm_up_every_interval_of_perf_test_counts_from_its_beginning():
    confirmed = 7026 * 1.021 + 12953 * 0.994 + 19376 * 1.0 + 20579 * 1.022
    assert rabbitmq.parsed(PERF_TEST, 0.0).rate == pytest.approx(confirmed / 4.037, rel=1e-6)


def test_perf_test_that_ended_within_the_warm_up_has_no_figure():
    with pytest.raises(PeerFailed, match="no interval after the warm-up"):
        rabbitmq.parsed(PERF_TEST, 60.0)


def test_producer_performance_tells_all_it_sent_and_the_rate_after_its_warm_up():
    assert kafka_loads.parsed(PRODUCER_PERFORMANCE) == (184275, 115569.143932, 0.049, 0.097)


def test_lines_of_progress_are_no_summary():
    assert kafka_loads.parsed(WITH_PROGRESS) == (300000, 13838.915029, 12.771, 18.656)
    with pytest.raises(PeerFailed, match="no summary"):
        kafka_loads.parsed(WITH_PROGRESS.splitlines()[0])


def test_transactions_of_pgbench_count_that_end_after_the_warm_up_and_before_the_end():
    found = postgresql.parsed(PGBENCH_LOG, 0.5, 1.0)
    assert found == pytest.approx((2.0, 0.02755, 0.02755, 6))


def test_a_pgbench_log_without_transactions_is_a_failure():
    with pytest.raises(PeerFailed, match="logged no transaction"):
        postgresql.parsed([], 0.5, 1.0)
    with pytest.raises(PeerFailed, match="after the warm-up"):
        postgresql.parsed(PGBENCH_LOG, 60.0, 1.0)


def test_strace_tells_the_calls_whether_some_failed_or_not():
    assert forces.parsed(STRACE) == {"fsync": 910, "fdatasync": 12}
    assert forces.Forces(461, forces.parsed(STRACE)).each == 2.0


def test_no_call_at_all_is_an_empty_table():
    assert forces.parsed("") == {}


def test_the_last_line_of_json_is_what_a_load_program_says():
    line = '{"acknowledged": 30, "counted": 20, "seconds": 2.0, "p50": 0.25, "p99": null}'
    assert programs.said(f"something else\n{line}\n").measure() == (10.0, 0.25, None, 30)


def test_a_load_program_that_says_nothing_is_a_failure():
    with pytest.raises(PeerFailed, match="said nothing"):
        programs.said("Picked up JAVA_TOOL_OPTIONS\n")


def test_a_load_program_that_fails_is_quoted():
    with pytest.raises(PeerFailed, match=r"(?s)ended with 3; it said:\nwoe"):
        programs.output_of(["sh", "-c", "echo woe >&2; exit 3"], 1.0)


def test_nats_is_told_to_force_before_it_answers():
    text = nats.configuration(1234, nats.NatsServer.defaults)
    assert text == "listen: 127.0.0.1:1234\njetstream {\n  sync_interval: always\n}\n"


def test_artemis_is_told_to_force_its_journal():
    text = artemis.broker_xml("tcp://127.0.0.1:1", artemis.ArtemisServer.defaults)
    assert "<journal-datasync>true</journal-datasync>" in text
    assert '<acceptor name="netty">tcp://127.0.0.1:1</acceptor>' in text


def test_redis_is_told_to_force_before_it_answers(tmp_path):
    server = redis.RedisServer(tmp_path, {"maxmemory": "1gb"})
    server.ports = [1234]
    server.prepare()
    lines = (tmp_path / "redis.conf").read_text().splitlines()
    assert {"port 1234", "appendonly yes", "appendfsync always", "maxmemory 1gb"} <= set(lines)


def test_what_pgbench_runs_in_two_phases_goes_in_two_round_trips():
    clients, rows, protocol, script = postgresql.SCRIPTS["two-phase"]
    assert (clients, rows, protocol) == (64, 1, "simple")
    first, second = script.splitlines()
    assert first.count("\\;") == 2
    assert second == "COMMIT PREPARED 'client-:client_id';"
