"""The imports between rooms, drawn as text: ``make rooms``, or ``python -m tests.support.overview.room_diagram``."""

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tests.support.overview.outlines import outline
from tests.support.repository import ROOT

TOPS = ("journal", "txbroker", "spark")
"""The top modules of these packages are shared by all their rooms, or are their public names: they are no room."""


def modules(root: Path, tops: tuple[str, ...]) -> dict[str, Path]:
    """Return every module and package by its name."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for top in tops
        for path in (root / top).rglob("*.py")
    }


def imported(text: str, known: Collection[str]) -> Iterator[str]:
    """Return which of the known modules a module imports: at its top, inside of functions, for type checkers only.

    That a package is loaded before its modules does not count.
    """
    for node in outline(text).imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif node.module in known:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if submodule in known else node.module


def room_imports() -> dict[str, set[str]]:
    """Return for each room the other rooms that its modules import."""
    known = modules(ROOT, TOPS)
    room = {
        name: name if path.name == "__init__.py" else name.rpartition(".")[0] for name, path in known.items()
    }
    imports: dict[str, set[str]] = {each: set() for each in room.values() if each not in TOPS}
    for name, path in known.items():
        if room[name] not in TOPS:
            imports[room[name]] |= {room[other] for other in imported(path.read_text(), known)}
    return {
        each: {other for other in found if other != each and other in imports}
        for each, found in imports.items()
    }


def direct(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Leave out every import of a room that is also reached through another one. There must be no circles."""
    below: dict[str, set[str]] = {}

    def reached(room: str) -> set[str]:
        if room not in below:
            below[room] = imports[room].union(*(reached(other) for other in imports[room]))
        return below[room]

    return {
        room: {other for other in found if not any(other in reached(between) for between in found)}
        for room, found in imports.items()
    }


def heights(imports: Mapping[str, set[str]]) -> dict[str, int]:
    """Return how many rooms stand on one another below each room. There must be no circles."""
    found: dict[str, int] = {}

    def height(room: str) -> int:
        if room not in found:
            found[room] = 1 + max((height(other) for other in imports[room]), default=-1)
        return found[room]

    for room in imports:
        height(room)
    return found


def drawn(imports: Mapping[str, set[str]]) -> Iterator[str]:
    """Draw each room with its height and the rooms that it imports, the highest first: every arrow goes down."""
    stands_on, height = direct(imports), heights(imports)
    for room in sorted(imports, key=lambda each: (-height[each], each)):
        arrows = " ".join(sorted(stands_on[room], key=lambda each: (-height[each], each)))
        yield f"{height[room]:2}  {room:<42} {f'▶ {arrows}' if arrows else ''}".rstrip()


if __name__ == "__main__":
    print("\n".join(drawn(room_imports())))
