"""Test that ``make bench-fair`` measures what it says, and that each of its attacks is one."""

import json
import threading

import pytest
from click.testing import CliRunner

from benchmarks.fair import __main__ as fair
from benchmarks.fair import greedy_workers, well_behaved
from benchmarks.fair.greedy_peers import TOPIC, kinds
from benchmarks.harness import processes
from benchmarks.harness.frames import TINY
from benchmarks.harness.peer import Peer, UnexpectedAnswer
from journal.constants import MAX_REQUEST_MESSAGES
from journal.formats.frame_check import check_run
from txbroker.wire.codec import request_decoder
from txbroker.wire.messages import Send


@pytest.mark.slow
@pytest.mark.parametrize("tls", [[], ["--tls"]])
def test_a_turn_is_measured_alone_and_beside_its_peers_and_leaves_no_data(tmp_path, tls):
    file, folder = tmp_path / "fair.json", tmp_path / "data"
    command = [
        "pings",
        "--peers",
        "2",
        "--seconds",
        "0.2",
        "--json",
        str(file),
        "--folder",
        str(folder),
        *tls,
    ]
    ended = CliRunner().invoke(fair.main, command, catch_exceptions=False)
    assert ended.exit_code == 0
    assert "pings" in ended.output
    alone, beside = json.loads(file.read_text())["turns"]
    assert (alone["peers"], beside["peers"], beside["kind"]) == (0, 2, "pings")
    for turn in (alone, beside):
        assert 0 < turn["latency"]["median"] <= turn["latency"]["slow"]
        assert turn["latency"]["sends"] >= 20
    assert not folder.exists()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*kinds(1, 2)])
def test_an_attack_is_a_run_of_requests_that_the_broker_can_read(name):
    kind = kinds(1, 2)[name]
    decoder = request_decoder(16 << 20)
    requests = decoder.feed(kind.data)
    assert bool(requests) is not kind.stuck
    assert len(decoder.begun) == (len(kind.data) if kind.stuck else 0)
    for request, data in requests[:1]:
        if isinstance(request, Send) and not name.endswith("refused"):
            assert check_run(data, most=MAX_REQUEST_MESSAGES) in (1, MAX_REQUEST_MESSAGES)


def test_what_is_missed_is_marked():
    def turn(peers, slow):
        latency = fair.Latency(0.001, slow, slow, 100, 1 << 20)
        return fair.Turn("pings" if peers else "", peers, client, latency)

    client = well_behaved.SMALL
    turns = [turn(0, 0.002), turn(1, 0.021), turn(8, 0.023)]
    client = well_behaved.TWO_MB  # is compared with itself alone
    turns += [turn(0, 0.012), turn(8, 0.031)]
    shown = [*fair.table(turns).columns[7].cells]
    assert shown == ["", "", "19.0", "21.0  missed", "19.0"]


def test_the_filling_is_of_the_smallest_frames_in_requests_that_are_allowed():
    assert check_run(TINY * fair.CHUNK, most=MAX_REQUEST_MESSAGES) == fair.CHUNK


@pytest.mark.slow
def test_the_clients_and_the_peers_whose_requests_depend_on_answers_are_served(tmp_path, monkeypatch):
    monkeypatch.setattr(fair, "PARTITIONS", 3)
    monkeypatch.setattr(greedy_workers, "PRODUCERS", 4)
    monkeypatch.setattr(fair, "FILLED", 0)
    with processes.broker(tmp_path / "data", "max_producers=10") as broker, Peer(broker.port) as peer:
        fair.fill(peer)
        for client in well_behaved.CLIENTS.values():
            client.begin(peer, broker, None)()
        spare = peer.partitions(TOPIC)[2].number
        for paired in (False, True, True):  # twelve producers: the first are forgotten
            greedy_workers.opens(paired, broker.port, spare, None)
        assert peer.messages(fair.WIDE) == 2 * 4 * 3
        before = peer.messages(TOPIC)
        ended = threading.Thread(target=committing, args=(broker.port, spare))
        ended.start()
        while peer.messages(TOPIC) == before:
            pass
        broker.kill()
        ended.join()


def committing(port, spare):
    with pytest.raises((OSError, UnexpectedAnswer)):
        greedy_workers.commits(4096, TINY, 10, port, spare, None)
