"""Test the text of metrics: the reader of Prometheus's own client must find what was written."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from txbroker.broker.sessions.histogram import Histogram
from txbroker.monitoring.exposition import COUNTER, GAUGE, HISTOGRAM, Metric


def read(text):
    """The families in a text, by name."""
    return {family.name: family for family in text_string_to_metric_families(text)}


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 60), 1 << 60))
def test_every_number_is_read_as_it_was_written(value):
    [sample] = read(Metric("a", "A.").only(value))["a"].samples
    assert sample.value == float(value)


# A reader of lines takes more characters for ends of lines than the format has, and splits words at all white space.
LABELS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], include_characters="\n\t\0"))


@given(LABELS, LABELS)
def test_any_label_is_read_as_it_was_written(first, second):
    [sample] = read("".join(Metric("a", "A.").all([({"one": first, "two": second}, 1)])))["a"].samples
    assert sample.labels == {"one": first, "two": second}


def test_the_help_stands_on_one_line():
    assert read(Metric("a", "one\\two\nthree").only(1))["a"].documentation == "one\\two\nthree"


@pytest.mark.parametrize(("name", "kind"), [("a", GAUGE), ("a_total", COUNTER)])
def test_the_kind_is_said(name, kind):
    assert read(Metric(name, "A.", kind).only(1))["a"].type == kind


def test_a_metric_without_series_is_not_there_at_all():
    assert "".join(Metric("a", "A.").all([])) == ""


@given(st.lists(st.floats(-1, 100)))
def test_a_histogram_counts_what_is_at_or_below_each_bound(values):
    bounds = (0.1, 1.0, 10.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    samples = read(Metric("h", "H.", HISTOGRAM).histogram([({"kind": "x"}, histogram)]))["h"].samples
    found = {sample.labels.get("le", sample.name): sample.value for sample in samples}
    for bound in (*bounds, math.inf):
        name = "+Inf" if bound == math.inf else str(bound).removesuffix(".0")
        assert found[name] == sum(value <= bound for value in values)
    assert found["h_count"] == len(values)
    assert found["h_sum"] == pytest.approx(sum(max(value, 0.0) for value in values))
    assert all(sample.labels["kind"] == "x" for sample in samples)
