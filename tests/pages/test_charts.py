"""Test elements of charts: they are escaped, and their axes have round values."""

import pytest
from markupsafe import Markup

from txbroker.pages.charts import Scale, element, ticks, titled, together


def test_what_an_element_holds_and_says_is_escaped_unless_it_is_markup():
    shown = element("text", "<b>", class_="a&b", text_anchor="end", x=1.5, spare=None)
    assert shown == '<text class="a&amp;b" text-anchor="end" x="1.5">&lt;b&gt;</text>'
    assert element("g", together([element("p", "1"), titled("2")])) == "<g><p>1</p>\n<title>2</title></g>"


def test_an_empty_shape_ends_in_its_tag_and_an_empty_part_of_html_does_not():
    assert element("rect", x=0) == Markup('<rect x="0"/>')
    assert element("div", class_="bar") == Markup('<div class="bar"></div>')


def test_a_scale_leads_from_values_to_coordinates_also_where_all_are_the_same():
    assert [Scale(0, 10, 100, 0)(value) for value in (0, 5, 10)] == [100, 50, 0]
    assert Scale(3, 3, 7, 9)(3) == 7


@pytest.mark.parametrize("high", [0.4, 1, 3, 7, 99, 1000, 4321])
def test_axes_have_round_marks_from_zero_to_above_the_highest(high):
    marks = ticks(high, 4)
    assert marks[0] == 0
    assert marks[-1] >= high
    assert 2 <= len(marks) <= 6
