"""Test what a release consists of: one version, a changelog, archives that anybody can build again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import txbroker
from journal.formats.version import PROGRAM
from tests.releases.released import releases
from tests.support.repository import ROOT

BUILT_BY = ROOT / ".make" / "release" / "bin" / "python"
KINDS = "summary|feature|bugfix|doc|removal|misc"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_all_files_state_one_version() -> None:
    assert txbroker.__version__ == PROGRAM
    stated = {
        file.parent.name: tomllib.loads(file.read_text())["project"]
        for file in ROOT.glob("packaging/*/pyproject.toml")
    }
    assert {project["version"] for project in stated.values()} == {PROGRAM}
    extras = SETTINGS["project"]["optional-dependencies"]
    assert extras["server"] == [f"txbroker-server=={PROGRAM}"]
    assert extras["compiled"] == [f"txbroker-compiled=={PROGRAM}"]
    assert stated["server"]["dependencies"] == [f"txbroker[cli,twisted,login,tokens]=={PROGRAM}"]
    assert stated["compiled"]["dependencies"] == [f"txbroker=={PROGRAM}"]
    for name in ("packaging/kubernetes/txbroker.yaml", "docs/service.md"):
        assert {*re.findall(r"\btxbroker:(\d[\w.]*\w)", (ROOT / name).read_text())} == {PROGRAM}


def test_another_version_is_stated_everywhere_by_one_command(tmp_path: Path) -> None:
    copy = tmp_path / "tree"
    for name in (".ci", "packaging", "docs", "pyproject.toml", "journal/formats/version.py"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy / name)
    subprocess.run([copy / ".ci/set-version", "7.8.9.dev0"], check=True)
    done = {
        name: (copy / name).read_text()
        for name in ("pyproject.toml", "packaging/server/pyproject.toml", "packaging/compiled/pyproject.toml")
    }
    assert [text.count("7.8.9.dev0") for text in done.values()] == [2, 2, 2]
    assert 'PROGRAM: Final = "7.8.9.dev0"' in (copy / "journal/formats/version.py").read_text()
    for name in ("packaging/kubernetes/txbroker.yaml", "docs/service.md"):
        assert f"txbroker:{PROGRAM}" not in (copy / name).read_text()
    refused = subprocess.run([copy / ".ci/set-version", "next"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "next is no version" in refused.stderr


def test_the_changelog_has_the_release_of_a_version_that_is_no_development_version() -> None:
    headings = re.findall(
        r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert len(headings) == len({*headings})
    assert ".dev" in PROGRAM or headings[0] == PROGRAM
    assert {release.version for release in releases()} <= {*headings}


def test_a_release_that_is_no_development_version_has_kept_its_files() -> None:
    assert ".dev" in PROGRAM or releases()[-1].version == PROGRAM


def test_each_fragment_lies_in_a_section_and_has_a_kind() -> None:
    sections = {section["path"] for section in SETTINGS["tool"]["towncrier"]["section"]}
    assert {kind["directory"] for kind in SETTINGS["tool"]["towncrier"]["type"]} == {*KINDS.split("|")}
    wrong = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "newsfragments").rglob("*.md")
        if file.name != "README.md"
        and not (
            re.fullmatch(rf"(\d+|\+\w+)\.({KINDS})(\.\d+)?\.md", file.name)
            and file.parent.relative_to(ROOT / "newsfragments").as_posix().replace(".", "") in sections
        )
    ]
    assert wrong == []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make release`` builds of the last commit: twice, or it fails."""
    target = tmp_path_factory.mktemp("release") / "dist"
    assert BUILT_BY.exists(), "run 'make test-deep', or 'make .make/release/.ready' first"
    done = subprocess.run(
        [ROOT / ".ci" / "build-release", BUILT_BY, target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.mark.deep
class TestBuilt:
    def test_everything_is_there_and_has_its_hash(self, built: Path) -> None:
        stem = f"-{PROGRAM}"
        expected = {
            f"txbroker{stem}.tar.gz", f"txbroker_server{stem}.tar.gz", f"txbroker_compiled{stem}.tar.gz",
            f"txbroker{stem}-py3-none-any.whl", f"txbroker_server{stem}-py3-none-any.whl", f"txbroker{stem}.cdx.json",
        }  # fmt: skip
        assert {file.name for file in built.iterdir()} == expected | {"SHA256SUMS"}
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=built, check=True)

    def test_nothing_of_who_builds_is_in_the_archives(self, built: Path) -> None:
        for file in built.glob("*.tar.gz"):
            with tarfile.open(file) as archive:
                entries = archive.getmembers()
            assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in entries} == {(0, 0, "", "")}
            assert len({entry.mtime for entry in entries}) == 1
        assert not [file.name for file in built.iterdir() if os.fsencode(Path.home()) in file.read_bytes()]

    def test_the_list_names_exactly_the_pinned_packages_each_with_hashes(self, built: Path) -> None:
        bill = json.loads((built / f"txbroker-{PROGRAM}.cdx.json").read_text())
        pinned = re.findall(
            r"^([\w.-]+)==(\S+)", (ROOT / "requirements/runtime.txt").read_text(), re.MULTILINE
        )
        assert len(pinned) > 20
        named = {(each["name"], each["version"]) for each in bill["components"]}
        assert named == {*pinned}
        assert all(
            reference["hashes"] for each in bill["components"] for reference in each["externalReferences"]
            if reference["type"] == "distribution"
        )  # fmt: skip
        assert bill["bomFormat"] == "CycloneDX"
        assert bill["metadata"]["component"]["version"] == PROGRAM

    def test_the_kept_wheels_hold_what_is_built(self, built: Path) -> None:
        kept = releases()[-1]
        if ".dev" in PROGRAM:
            assert kept.version != PROGRAM
            return
        for wheel in kept.wheels:
            assert members(wheel) == members(built / wheel.name), (
                f"{wheel.name}: run 'make keep-release' anew"
            )


def members(wheel: Path) -> dict[str, bytes]:
    """What is in a wheel, without its times."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
