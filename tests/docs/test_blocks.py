"""Test that every code block of the documents has a language that says what the tests do with it."""

import ast

import pytest

from tests.docs import python_scenes
from tests.docs.blocks import LANGUAGES, blocks_of, in_language, indented, pages
from tests.support.repository import ROOT

RUN_ELSEWHERE = {
    "docs/orms.md": "tests/databases/orm/test_orm_examples.py",
    "docs/spark.md": "tests/spark/test_examples.py",
    "docs/decisions/0020-filters-are-an-option.md": "tests/spark/test_examples.py",
    "docs/tutorial.md": "tests/docs/test_tutorial.py",
}
"""Pages whose blocks in Python are run by a test of their own, and that test."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_block_has_a_language_and_none_is_made_by_indenting(page):
    assert [block.place for block in blocks_of(page) if block.language not in LANGUAGES] == []
    assert indented(page) == []


def test_every_block_in_python_is_run():
    found = {block.page for block in in_language("python")}
    assert found == set(RUN_ELSEWHERE) | set(python_scenes.SCENES)
    for page, test in RUN_ELSEWHERE.items():
        assert page.removeprefix("docs/") in (ROOT / test).read_text()


@pytest.mark.parametrize("block", in_language("python"), ids=lambda block: block.place)
def test_a_block_in_python_can_be_compiled(block):
    compile(block.text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_a_block_is_found_with_its_place_also_inside_of_a_list_and_an_indented_one_is_noticed(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tests.docs.blocks.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "a\n\n```python shop.py\nx = 1\n```\n\n"
        "* b\n\n  ```sh\n  make \\\n    docs\n  ```\n\n    more\n\nc\n\n    code\n"
    )
    assert [tuple(block) for block in blocks_of(page)] == [
        ("page.md", 3, "python", "shop.py", "x = 1\n"),
        ("page.md", 9, "sh", "", "make \\\n  docs\n"),
    ]
    assert indented(page) == ["    code"]
