"""Test the alert rules and the metrics as the tools of Prometheus judge them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.monitoring.test_site import HTTP, ask, port_of
from tests.support.broker_process import told_broker
from tests.support.certificates import Folder

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "packaging/monitoring"
ALERTS = (RULES / "alerts.yml").read_text()
RUNBOOK = (ROOT / "docs/operations.md").read_text()


def promtool(*words, text=None):
    """What promtool says; the test fails if it finds anything."""
    assert shutil.which("promtool"), "promtool is missing (on Debian: apt-get install prometheus)"
    ran = subprocess.run(["promtool", *words], cwd=RULES, input=text, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.slow
def test_the_rules_are_rules_and_fire_when_they_should():
    assert f"SUCCESS: {len(alerts())} rules found" in promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts_test.yml")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The metrics of a broker that was just started."""
    folder = Folder(tmp_path_factory.mktemp("page"))
    data, tls = folder.path / "data", ("--listen", folder.endpoint())
    with told_broker(data, *tls, *HTTP, "--set", "file_bytes=4MiB", "--set", "metrics_series=100") as broker:
        broker.ready()
        yield ask(port_of(broker), "/metrics")[1]


@pytest.mark.slow
def test_the_metrics_are_named_as_metrics_should_be(page):
    promtool("check", "metrics", text=page)


def alerts():
    return re.findall(r"- alert: (\w+)", ALERTS)


def test_each_rule_is_in_the_runbook_and_names_a_section_of_it():
    assert alerts()
    assert [name for name in alerts() if f"`{name}`" not in RUNBOOK] == []
    headings = {
        re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", RUNBOOK, re.MULTILINE)
    }
    sections = re.findall(r'runbook: "operations\.md#([\w-]+)"', ALERTS)
    assert len(sections) == len(alerts())
    assert set(sections) - headings == set()


@pytest.mark.slow
def test_each_rule_is_over_metrics_that_there_are(page):
    used = set(re.findall(r"txbroker_\w+", ALERTS)) - {"txbroker_"}
    shown = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE))
    assert used - shown == set()


@pytest.mark.slow
def test_the_dashboard_shows_metrics_that_there_are(page):
    dashboard = json.loads((RULES / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for query in queries for name in re.findall(r"\b(?:txbroker|process)_\w+", query)}
    shown = set(re.findall(r"^# TYPE (\w+)", page, re.MULTILINE)) | {"txbroker_group_lag_messages"}
    assert {name.removesuffix("_bucket") for name in used} - shown == set()
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)


def test_each_rule_has_cases_in_which_it_fires_and_in_which_it_does_not():
    cases = (RULES / "alerts_test.yml").read_text()
    assert sorted(re.findall(r'alertname="(\w+)"', cases)) == sorted(alerts())
    assert cases.count("- interval:") == 2 * len(alerts())
