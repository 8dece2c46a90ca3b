"""Test that pages show their values, escaped, and that a missing value raises an error."""

import sys

import pytest
from jinja2 import UndefinedError

from txbroker.pages.page import render

TEMPLATE = """\
{% extends "page.html" %}
{% from "page.html" import cards, table %}
{% block title %}{{ name }}{% endblock %}
{% block style %}h1 { color: red; }{% endblock %}
{% block body %}
{{ cards([(7000|number, name)]) }}
{{ table(("a", "b"), [("1", name)], {1: "number"}) }}
{% endblock %}
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "a_package_with_a_page"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "own.html").write_text(TEMPLATE)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder.name
    sys.modules.pop(folder.name, None)


def test_a_template_has_the_parts_that_all_pages_share_and_what_it_shows_is_escaped(package):
    made = render(package, "own.html", name="<i>")
    assert made.startswith("<!doctype html>")
    assert made.endswith("</html>\n")
    assert "<title>&lt;i&gt;</title>" in made
    assert "h1 { color: red; }" in made
    assert '<div class="card"><b>7,000</b><span>&lt;i&gt;</span></div>' in made
    assert '<th>a</th><th class="number">b</th>' in made
    assert '<tr><td>1</td><td class="number">&lt;i&gt;</td></tr>' in made


def test_a_value_that_is_not_given_is_an_error(package):
    with pytest.raises(UndefinedError, match="name"):
        render(package, "own.html")
