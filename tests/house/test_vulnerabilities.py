"""Test that no vulnerability of a package is known that a client or a broker has installed."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.support.repository import ROOT

PIP_AUDIT = ROOT / ".make" / "release" / "bin" / "pip-audit"
PINNED = ROOT / "requirements" / "image.txt"


@pytest.mark.deep
def test_no_vulnerability_of_a_pinned_package_is_known() -> None:
    """A package of which nothing could be learned is not a sound one: pip-audit itself passes over it."""
    assert PIP_AUDIT.exists(), "run 'make test-deep', or 'make .make/release/.ready' first"
    done = subprocess.run(
        [PIP_AUDIT, "--disable-pip", "--require-hashes", "--requirement", PINNED, "--format", "json"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    try:
        found = json.loads(done.stdout)["dependencies"]
    except ValueError:
        pytest.fail(f"the service of vulnerabilities was not reached:\n{done.stderr[-800:]}", pytrace=False)
    pinned = {*re.findall(r"^([\w.-]+)==", PINNED.read_text(), re.MULTILINE)}
    unasked = [each["name"] for each in found if "skip_reason" in each]
    known = {each["name"]: [one["id"] for one in each["vulns"]] for each in found if each.get("vulns")}
    assert known == {}, f"known vulnerabilities: {known}"
    assert not unasked, (
        f"of {len(unasked)} of {len(found)} packages nothing could be learned, so nothing is known of them: the index "
        f"does not answer such questions ({', '.join(unasked[:5])}, ...). Run this where PyPI itself is reached"
    )
    assert {each["name"] for each in found} == pinned


def test_what_is_audited_has_all_that_a_broker_and_a_client_install() -> None:
    audited = PINNED.read_text()
    for name in ("runtime.txt", "client.txt"):
        for package in re.findall(r"^[\w.-]+==\S+", (ROOT / "requirements" / name).read_text(), re.MULTILINE):
            assert package in audited
