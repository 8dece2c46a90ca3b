"""Run every benchmark for a moment: each checks its own counts and fails if an answer or a message is missing."""

import sys

import pytest

from benchmarks import figures
from benchmarks.__main__ import BROKER
from benchmarks.harness import processes
from benchmarks.harness.peer import Peer, UnexpectedAnswer
from benchmarks.harness.processes import ServerFailed, ServerProcess
from benchmarks.runs import MACHINE, check

pytestmark = pytest.mark.slow

EXPECTED = {
    "disk": {figures.FORCE_RATE, figures.FORCE_P50, figures.FORCE_P99, figures.SEQUENTIAL},
    "sockets": {figures.ECHO, figures.ECHO_P50, figures.LOOPBACK},
    "interpreter": {figures.INTERPRETER, figures.IMPORTS},
    "singles": {figures.SINGLES},
    "partitions": {figures.PARTITIONS},
    "depth-1": {figures.DEPTH_1, figures.DEPTH_1_P99},
    "clients": {figures.CLIENTS, figures.CLIENTS_P99},
    "batches": {figures.BATCHES},
    "large-batches": {figures.LARGE},
    "one-phase": {figures.ONE_PHASE},
    "two-phase": {figures.TWO_PHASE},
    "served": {figures.SERVED},
    "decoded": {figures.DECODED},
    "decoded-singles": {figures.DECODED_SINGLES},
    "python-client": {figures.CLIENT_SEND, figures.CLIENT_ASYNC, figures.CLIENT_CONSUME},
    "rows": set(figures.ROWS["plain"].all),
    "rows-zstd": set(figures.ROWS["zstd"].all),
    "rows-lz4": set(figures.ROWS["lz4"].all),
}


def test_every_figure_is_measured_by_one_of_them():
    measured = set().union(*EXPECTED.values()) | {figures.READY, figures.MEMORY}
    assert measured == set(figures.ALL)
    assert EXPECTED.keys() == MACHINE.keys() | BROKER.keys()


@pytest.mark.parametrize("name", MACHINE)
def test_the_machine_is_measured(name, tmp_path):
    sample, _ = MACHINE[name](tmp_path, 0.1)
    assert sample.keys() == EXPECTED[name]
    assert all(value > 0 for value in sample.values())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", BROKER)
def test_a_load_is_answered_in_full_and_leaves_nothing_behind(name, tmp_path):
    sample, usage = BROKER[name](tmp_path, 0.1)
    assert sample.keys() == EXPECTED[name] | {figures.READY, figures.MEMORY}
    in_ticks = {rows.broker for rows in figures.ROWS.values()}  # of 10 ms: none may fall into so short a time
    assert all(value > 0 for figure, value in sample.items() if figure not in in_ticks)
    assert name == "python-client" or usage.cost >= 0
    assert list(tmp_path.iterdir()) == []


def test_a_message_more_or_less_than_was_acknowledged_fails_the_run(tmp_path):
    with processes.broker(tmp_path) as broker, Peer(broker.port) as peer:
        peer.create_topic("benchmark")
        check(peer, 0)
        with pytest.raises(UnexpectedAnswer, match="1 messages were acknowledged, 0 are to be read"):
            check(peer, 1)


def test_a_server_that_does_not_start_is_reported_with_what_it_said():
    with (
        pytest.raises(ServerFailed, match="cannot begin"),
        ServerProcess([sys.executable, "-c", "print('cannot begin')"], r"ready on (\d+)"),
    ):
        pass


def test_a_server_that_ends_badly_is_reported():
    code = "import time; print('ready on 1', flush=True); time.sleep(60)"
    with (
        pytest.raises(ServerFailed, match="ended with -15"),
        ServerProcess([sys.executable, "-c", code], r"ready on (\d+)"),
    ):
        pass
