"""Test that each kind of violation is explained."""

import re

from tests.support.repository import ROOT
from txbroker.drill.judgement.violation import Wrong


def test_the_table_of_the_documentation_has_every_kind_and_no_other():
    page = (ROOT / "docs/drills.md").read_text()
    section = page.partition("## What is a violation")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| ([a-z][a-z -]+) \|", section, re.MULTILINE)
    assert set(listed) - {"kind"} == {wrong.value for wrong in Wrong}
