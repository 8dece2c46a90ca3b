"""Damaged directories are judged as recorded; ``python -m tests.corpus compare`` tells more."""

import pytest

from tests.corpus.damages import Case
from tests.corpus.record_file import FILE, recorded
from tests.corpus.verdicts import PARTS, verdict_of

SHARDS = 8
IN_EVERY_RUN = 2


@pytest.mark.parametrize(
    "shard",
    [
        pytest.param(n, marks=pytest.mark.slow if n < IN_EVERY_RUN else pytest.mark.deep)
        for n in range(SHARDS)
    ],
)
def test_damaged_directories_are_judged_as_recorded(shard):
    differing = [
        f"{case}: {part}"
        for case, expected in recorded()[shard::SHARDS]
        for part, now in verdict_of(case).items()
        if now != expected[part]
    ]
    assert differing == []


@pytest.mark.parametrize("world", ["plain", "transactions", "everything", "busy"])
def test_undamaged_directories_start_and_have_nothing_to_repair(world):
    verdict = verdict_of(Case(world, ()))
    assert verdict["start"].startswith("notes: 0\n")
    assert (verdict["repair"], verdict["dump"], verdict["scrub"]) == ("nothing to repair", "", "")


def test_the_corpus_is_small_and_has_every_kind_of_verdict():
    verdicts = [verdict for _, verdict in recorded()]
    assert len(verdicts) >= 300
    assert FILE.stat().st_size <= 200_000
    for part in PARTS:
        assert len({verdict[part] for verdict in verdicts}) > 10, part
    refused = sum(verdict["start"].startswith("refused") for verdict in verdicts)
    assert len(verdicts) / 4 < refused < len(verdicts) * 3 / 4
