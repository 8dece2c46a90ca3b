"""Faults in streams and deliveries, each of which their tests must find."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_FOLD, _BROKER = "journal/folds/streams.py", "txbroker/broker/sends/streams.py"
_COMMIT = "txbroker/broker/transactions/transactions.py"

TESTS: Final = ("tests/broker/sends/test_streams.py",)
"""What must find them."""

MUTANTS: Final = (
    # -- who may deliver
    Mutant("a claim does not fence", _BROKER, "if epoch != known.epoch:", "if False:"),
    Mutant(
        "an epoch is an LSN alone", _FOLD, "to_bytes(_LSN_BYTES) + nonce", "to_bytes(_LSN_BYTES) + bytes(16)"
    ),
    Mutant(
        "anybody may release",
        _BROKER,
        "            _check_epoch(known, command.stream, command.epoch)\n            if command.last",
        "            if command.last",
    ),
    Mutant("a late release counts", _BROKER, "if command.last != known.last:", "if False:"),
    Mutant(
        "another table may claim",
        _BROKER,
        "if known is not None and known.table != command.table:",
        "if False:",
    ),
    Mutant(
        "there are any number",
        _BROKER,
        "if len(fold.streams) >= most:",
        "if False:",
    ),
    Mutant(
        "there are any number of tables",
        _BROKER,
        "if table not in fold.generations and len(fold.generations) >= most:",
        "if False:",
    ),
    Mutant(
        "a claim that is known counts as one more",
        _BROKER,
        "        if known is None:\n            self._check_room",
        "        if True:\n            self._check_room",
    ),
    Mutant(
        "a full disk takes claims",
        _BROKER,
        "        if engine.full:\n            raise disk_full()\n",
        "",
    ),
    # -- what is delivered
    Mutant("what is delivered is refused", _BROKER, "if delivery.number <= known.last:", "if False:"),
    Mutant("what is missing is passed", _BROKER, "if delivery.after != known.last:", "if False:"),
    Mutant("a delivery notes nothing", _COMMIT, "unsent.delivered = delivered", "pass"),
    Mutant(
        "a delivery changes nothing",
        _FOLD,
        "self.streams[stream] = msgspec.structs.replace(known, last=number, used=at)",
        "pass",
    ),
    Mutant("a claim begins at nothing", _FOLD, "(0, epoch) if known is None else", "(0, epoch) if lsn else"),
    Mutant("a claim is a birth", _FOLD, "else (known.last, known.born)", "else (known.last, epoch)"),
    Mutant(
        "a delivery may have positions, or begin nothing",
        _BROKER,
        "if has_begun or has_more or not command.runs:",
        "if False:",
    ),
    Mutant(
        "numbers may be anything",
        _BROKER,
        "if not 0 <= delivery.after < delivery.number <= MAX_NUMBER:",
        "if False:",
    ),
    Mutant(
        "a delivery may have the number of another transaction",
        _COMMIT,
        "return number in self._live or number in self._transactions.outcomes.by_number",
        "return number in self._live",
    ),
    Mutant(
        "a delivery may end what has begun",
        _BROKER,
        "if has_begun or has_more or",
        "if has_more or",
    ),
    # -- generations
    Mutant("a lower generation is taken", _BROKER, "if generation < known:", "if False:"),
    Mutant(
        "a release tells no generation",
        _FOLD,
        "            self._tell(stream.table, record.generation)\n",
        "            assert stream\n",
    ),
    Mutant(
        "a claim tells no generation",
        _FOLD,
        "        self._tell(record.table, record.generation)\n\n    def _delivered",
        "\n    def _delivered",
    ),
    # -- what is kept, and listed
    Mutant("no stream is in a checkpoint", _FOLD, ", *self.streams.values()])", "])"),
    Mutant(
        "no generation is in a checkpoint", _FOLD, "HeadRow(list(self.generations.items()))", "HeadRow([])"
    ),
    Mutant(
        "a claim leaves a stream at its place",
        _FOLD,
        "known = self.streams.pop(record.stream, None)",
        "known = self.streams.get(record.stream)",
    ),
    Mutant("a page begins where the one before did", _BROKER, "if each.claim > after and", "if"),
    Mutant("all tables are listed", _BROKER, ' and table in ("", each.table)', ""),
)
