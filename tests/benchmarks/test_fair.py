"""``make bench-fair`` measures what it says, and each of its attacks is one."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import fair
from benchmarks.fair_peers import TINY, kinds
from journal.constants import MAX_REQUEST_MESSAGES
from journal.frame_check import check_run
from txbroker.codec import request_decoder
from txbroker.commands import Send


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
        return fair.Turn("pings" if peers else "", peers, fair.Latency(0.001, slow, slow, 100, 1 << 20))

    shown = [*fair.table([turn(0, 0.002), turn(1, 0.021), turn(8, 0.023)]).columns[5].cells]
    assert shown == ["", "19.0", "21.0  missed"]


def test_the_filling_is_of_the_smallest_frames_in_requests_that_are_allowed():
    assert check_run(TINY * fair.CHUNK, most=MAX_REQUEST_MESSAGES) == fair.CHUNK
