"""The table of all modules and what each owns, from its first line: ``make files``, or ``python -m
tests.support.overview.file_table``.
"""

from collections.abc import Iterator
from pathlib import Path

from tests.support.overview.outlines import outline
from tests.support.repository import ROOT

FOLDERS = ("journal", "txbroker", "spark", "pyspark_txbroker", "demo", "benchmarks", "models", "examples")


def rooms() -> Iterator[tuple[Path, list[Path]]]:
    """Return each folder with modules in it, and these."""
    for top in FOLDERS:
        for folder in sorted({path.parent for path in (ROOT / top).rglob("*.py")}):
            yield folder, sorted(folder.glob("*.py"))


def owned(module: Path) -> str:
    """Return the first paragraph of a module's docstring, on one line."""
    return outline(module.read_text()).docstring.partition("\n\n")[0].replace("\n", " ")


def lines() -> Iterator[str]:
    """Return the table, room by room."""
    for folder, modules in rooms():
        yield f"{folder.relative_to(ROOT)}/"
        for module in modules:
            if said := owned(module):
                yield f"    {module.name:<28} {said}"
        yield ""


if __name__ == "__main__":
    print("\n".join(lines()))
