"""Test that a ledger has every line that was written whole, and no other."""

import os
import signal

import msgspec
import pytest

from txbroker.drill.clients.ledger import (
    Acknowledged,
    Began,
    Ledger,
    Prepared,
    Tail,
    read_ledger,
    read_ledgers,
)


def test_lines_come_back_as_they_were_written_with_their_numbers_and_times(tmp_path):
    ledger = Ledger(tmp_path, "sender-1.1")
    began = Began(operation=1, places=[0, 3], together=True, xid="1:a:b", moves=[(0, 2, 4)])
    ledger.write(began)
    ledger.write(Acknowledged(operation=1, offsets=[(0, 7)]))
    ledger.close()
    first, second = read_ledger(tmp_path / "sender-1.1.jsonl")
    assert (str(first), str(second)) == ("sender-1.1.jsonl:1", "sender-1.1.jsonl:2")
    assert isinstance(first.entry, Began)
    assert (first.entry.places, first.entry.moves, first.entry.xid) == ([0, 3], [(0, 2, 4)], "1:a:b")
    assert second.entry.offsets == [(0, 7)]
    assert 0 < first.entry.at <= second.entry.at


def test_a_line_is_safe_from_the_death_of_its_writer_as_soon_as_it_is_written(tmp_path):
    writer = os.fork()
    if not writer:
        Ledger(tmp_path, "plain-1.1").write(Prepared(operation=5))
        os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(writer, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    (line,) = read_ledger(tmp_path / "plain-1.1.jsonl")
    assert line.entry.operation == 5


def test_a_last_line_without_an_end_was_not_written(tmp_path):
    Ledger(tmp_path, "plain-1.1").write(Prepared(operation=5))
    path = tmp_path / "plain-1.1.jsonl"
    path.write_bytes(path.read_bytes() + b'{"what":"prepared","operation":6}')
    assert [line.entry.operation for line in read_ledger(path)] == [5]


def test_a_line_that_makes_no_sense_is_no_ledger(tmp_path):
    (tmp_path / "plain-1.1.jsonl").write_bytes(b'{"what":"nonsense"}\n')
    with pytest.raises(msgspec.ValidationError, match="nonsense"):
        list(read_ledgers(tmp_path))


def test_a_tail_gives_each_whole_line_once(tmp_path):
    tail = Tail(tmp_path)
    assert list(tail.new()) == []
    ledger = Ledger(tmp_path, "plain-1.1")
    ledger.write(Prepared(operation=1))
    assert [entry.operation for entry in tail.new()] == [1]
    with (tmp_path / "plain-1.1.jsonl").open("ab") as file:
        file.write(b'{"what":"prepared",')
        file.flush()
        assert list(tail.new()) == []
        file.write(b'"operation":2}\n')
    Ledger(tmp_path, "sender-1.1").write(Prepared(operation=3))
    assert sorted(entry.operation for entry in tail.new()) == [2, 3]
    assert list(tail.new()) == []
