"""The file of cases and verdicts: each text once, a case a line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tests.corpus.damages import Case, Damage
from tests.corpus.verdicts import PARTS, Verdict

FILE = Path(__file__).parent / "cases.json"


def packed(found: Iterable[tuple[Case, Verdict]]) -> str:
    texts: dict[str, int] = {}
    cases = []
    for case, verdict in found:
        numbers = [texts.setdefault(verdict[part], len(texts)) for part in PARTS]
        cases.append([case.world, case.damages, numbers])
    lines = [
        '{"texts": [',
        ",\n".join(json.dumps(text) for text in texts),
        '], "cases": [',
        ",\n".join(json.dumps(case) for case in cases),
        "]}\n",
    ]
    return "\n".join(lines)


def recorded() -> list[tuple[Case, Verdict]]:
    content = json.loads(FILE.read_text())
    texts = content["texts"]
    return [
        (
            Case(world, tuple(Damage(*damage) for damage in damages)),
            dict(zip(PARTS, (texts[number] for number in numbers), strict=True)),
        )
        for world, damages, numbers in content["cases"]
    ]
