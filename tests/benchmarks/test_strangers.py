"""Test that ``python -m benchmarks.strangers`` measures what it says."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import strangers
from benchmarks.strangers import KINDS, Latency, Pair


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["say hello and stay", "begin a handshake and stay"])
def test_a_client_is_measured_alone_and_beside_strangers_and_leaves_no_data(tmp_path, kind):
    file, folder = tmp_path / "strangers.json", tmp_path / "data"
    words = [
        kind,
        "--rate",
        "200",
        "--seconds",
        "0.3",
        "--repeat",
        "1",
        "--json",
        str(file),
        "--folder",
        str(folder),
    ]
    ended = CliRunner().invoke(strangers.main, words, catch_exceptions=False)
    assert ended.exit_code == 0
    assert kind in ended.output
    [pair] = json.loads(file.read_text())["pairs"]
    assert pair["alone"]["connects"] == 0.0
    assert pair["beside"]["connects"] > 100
    for latency in (pair["alone"], pair["beside"]):
        assert 0 < latency["median"] <= latency["slow"] <= latency["worst"]
        assert latency["sends"] > 5
    assert not folder.exists()


def test_the_table_has_the_medians_and_marks_what_misses_the_target():
    pairs = [
        Pair("some", Latency(1e-3, 2e-3, 1.0, 10), Latency(1e-3, 2e-3 + more, 1.0, 10, 1000.0))
        for more in (0.0, 0.006, 0.009)
    ]
    table = strangers.table(pairs)
    [row] = zip(*(column.cells for column in table.columns), strict=True)
    assert row == ("some", "1,000", "1.00", "1.00", "2.00", "8.00", "6.00  missed", "1000")


def test_strangers_with_tls_begin_a_handshake():
    assert KINDS["begin a handshake and stay"].says[:1] == b"\x16"
    assert all(bool(kind.says) is not kind.leaves for kind in KINDS.values())
