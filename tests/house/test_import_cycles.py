"""Test that there are no import cycles, so that each module can be read, tested and moved alone."""

import pytest

from tests.support.overview.room_diagram import drawn, imported, modules, room_imports
from tests.support.repository import ROOT


def cycles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that can all be reached from one another (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for other in imports[module]:
            if other not in number:
                visit(other)
            if other in path:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            part = set(path[path.index(module) :])
            del path[path.index(module) :]
            if len(part) > 1 or module in imports[module]:
                found.append(part)

    for module in imports:
        if module not in number:
            visit(module)
    return found


def test_no_modules_import_one_another():
    known = modules(ROOT, ("journal", "txbroker", "spark"))
    assert len(known) > 400, "there are no modules: is this the checkout?"
    imports = {module: set(imported(path.read_text(), known)) for module, path in known.items()}
    assert [sorted(each) for each in cycles(imports)] == []


def test_no_rooms_import_one_another():
    imports = room_imports()
    assert len(imports) > 40, "there are no rooms: is this the checkout?"
    assert [sorted(each) for each in cycles(imports)] == []


def test_the_diagram_has_every_room_above_those_that_it_imports():
    imports = {"top": {"middle", "bottom", "side"}, "middle": {"bottom"}, "bottom": set(), "side": set()}
    assert [line.split() for line in drawn(imports)] == [
        ["2", "top", "▶", "middle", "side"],
        ["1", "middle", "▶", "bottom"],
        ["0", "bottom"],
        ["0", "side"],
    ]


@pytest.mark.parametrize(
    ("imports", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, [{"b", "c"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [{"a", "b", "c"}]),
        ({"a": {"a"}}, [{"a"}]),
    ],
)
def test_a_cycle_is_found(imports, found):
    assert cycles(imports) == found


def test_an_import_counts_wherever_it_stands():
    text = "if TYPE_CHECKING:\n    from a.b import c\ndef f():\n    import d.e\n"
    assert set(imported(text, {"a", "a.b", "d.e"})) == {"a.b", "d.e"}
    assert set(imported(text, {"a", "a.b", "a.b.c"})) == {"a.b.c"}
