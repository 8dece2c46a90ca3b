"""Test the rules of style that no linter knows; each is shown to catch what it is for.

Docstrings, swallowed exceptions, complexity and a TODO without an owner are left to ruff (pyproject.toml).
"""

import configparser
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.overview.file_table import lines, owned
from tests.support.overview.outlines import outline
from tests.support.repository import ROOT

SERVICE = ("journal", "txbroker", "spark", "pyspark_txbroker")
CODE = (*SERVICE, "demo", "benchmarks", "models", "examples")
MAX_FILE_LINES = 500
"""Far above this a file hides a second idea; what is one idea is not cut in two to fit."""
MAX_FUNCTION_LINES = 50
MAX_MODULES = 25
"""In a folder of more, one is not found by its name any more: it holds two subjects, and gets a folder for one."""
VAGUE = {"common", "helper", "helpers", "manager", "managers", "util", "utils"}
MADE = re.compile(r"\..*|__pycache__|build|dist|data|results|.*\.egg-info|.*\.cache|twistd\.(?:log|pid).*")
LESSONS = 33
"""How many lessons of other systems each have a test, or a reason; those behind them get theirs with their issues."""

WITHOUT_A_TEST = "## Lessons without a test"

MACHINE_PATH = re.compile(r"(?<![\w.$~}/-])/(?:home|Users|root|mnt|workspace)/\w[\w/.-]*")


MERGE = re.compile(rb"^(?:<{7}|>{7}) ", re.MULTILINE)
"""What git leaves around two sides that somebody has to choose from. Seen in a news fragment."""


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def written_files() -> Iterator[Path]:
    """What is in the checkout by hand; git is not asked, for the tests also run where it is not installed."""
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [name for name in inner if name == ".ci" or not MADE.fullmatch(name)]
        yield from (Path(folder, file) for file in files if not MADE.fullmatch(file) or file == ".gitignore")


def required(path: str) -> str:
    file = ROOT / path
    if not file.is_file():
        pytest.fail(f"{path} is missing; the tests of style read it", pytrace=False)
    return file.read_text(encoding="utf-8")


def long_functions(source: str) -> list[str]:
    functions = outline(source).functions
    return [f"{name}: {lines} lines" for name, lines in functions if lines > MAX_FUNCTION_LINES]


def vague_words(module: str) -> set[str]:
    return VAGUE.intersection(re.split(r"[/_.]", module))


def rooms_in_table(markdown: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `([\w/]+)/` \| (.+) \|$", markdown, re.MULTILINE))


def dependencies_without_reason(pyproject: str) -> list[str]:
    stated = tomllib.loads(pyproject)
    project = stated["project"]
    groups = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    groups += stated.get("dependency-groups", {}).values()
    return [
        dependency
        for dependency in (dependency for group in groups for dependency in group)
        if not re.search(rf'^\s*"{re.escape(dependency)}",\s+# \w.{{15,}}$', pyproject, re.MULTILINE)
    ]


def lessons(markdown: str) -> list[tuple[str, str, str]]:
    rows = re.findall(r"^\|\s*(L\d+)\s*\|([^|]*)\|([^|]*)\|\s*$", markdown, re.MULTILINE)
    return [(number, test.strip().strip("`"), fault.strip()) for number, test, fault in rows]


def test_no_file_is_so_long_that_it_hides_a_second_idea():
    lines = {named(path): len(path.read_text().splitlines()) for path in python_files(*CODE)}
    assert {file: count for file, count in lines.items() if count > MAX_FILE_LINES} == {}


def full_folders(files: list[Path]) -> dict[str, int]:
    """Return the folders with more modules than there may be, and how many each has."""
    counts = Counter(named(path.parent) for path in files if path.name != "__init__.py")
    return {folder: count for folder, count in counts.items() if count > MAX_MODULES}


def test_no_folder_has_so_many_modules_that_it_hides_a_second_subject():
    assert full_folders(python_files(*CODE, "tests")) == {}


def test_no_function_is_so_long_that_a_part_of_it_lacks_a_name():
    found = {named(path): long_functions(path.read_text()) for path in python_files(*CODE)}
    assert {file: functions for file, functions in found.items() if functions} == {}


def test_no_module_has_a_name_that_anything_could_hide_behind():
    assert [named(path) for path in python_files(*CODE, "tests") if vague_words(named(path))] == []


def test_the_architecture_has_every_room_of_the_service_as_the_room_itself_says():
    rooms = {
        named(path.parent): owned(path)
        for path in python_files(*SERVICE)
        if path.name == "__init__.py" and owned(path)
    }
    assert len(rooms) > 30, "there are no rooms: is this the checkout?"
    listed = rooms_in_table(required("ARCHITECTURE.md"))
    assert {room: listed.get(room) for room in rooms} == rooms


def test_every_folder_in_the_architecture_exists():
    listed = rooms_in_table(required("ARCHITECTURE.md"))
    assert sorted(folder for folder in listed if not (ROOT / folder).is_dir()) == []


def test_every_folder_of_the_service_says_what_it_holds():
    folders = {path.parent for path in python_files(*SERVICE)}
    silent = [named(folder) for folder in folders if not owned(folder / "__init__.py")]
    assert silent == []


def test_every_module_is_in_the_table_of_files():
    table = "\n".join(lines())
    assert sorted(named(p) for p in python_files(*SERVICE) if owned(p) and owned(p) not in table) == []


def test_every_package_is_under_the_contracts():
    config = configparser.ConfigParser()
    config.read_string(required("setup.cfg"))
    packages = {folder for folder in SERVICE if (ROOT / folder).is_dir()}
    assert packages == set(config["importlinter"]["root_packages"].split())


def test_every_dependency_says_what_it_is_for():
    assert dependencies_without_reason(required("pyproject.toml")) == []


def test_no_file_names_a_place_on_somebodys_machine():
    found = {}
    for path in written_files():
        text = path.read_bytes().decode("utf-8", errors="ignore")
        if places := MACHINE_PATH.findall(text) + [str(ROOT)] * (f"{ROOT}/" in text):
            found[named(path)] = places
    assert found == {}


def test_no_merge_was_left_unfinished():
    found = [named(path) for path in written_files() if MERGE.search(path.read_bytes())]
    assert found == []


@pytest.mark.slow
def test_every_lesson_has_a_test_that_make_test_runs():
    rows = lessons(required("tests/regressions.md"))
    kept, _, _ = required("tests/regressions.md").partition(WITHOUT_A_TEST)
    mentioned = set(re.findall(r"\bL\d+\b", kept))
    assert mentioned, "tests/regressions.md lists no lesson"
    assert mentioned - {number for number, _, _ in rows} == set(), "not in a row `| L1 | test | fault |`"
    assert [number for number, _, fault in rows if not fault] == [], "no fault named that the test would miss"
    tests = sorted({test for _, test, _ in rows})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "-m",
        "not deep",
        *tests,
    ]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert collected.returncode == 0, collected.stdout + collected.stderr
    run_by_make_test = {line.partition("[")[0] for line in collected.stdout.splitlines()}
    assert [test for test in tests if test.partition("[")[0] not in run_by_make_test] == [], "only deep"


def test_every_lesson_there_is_has_a_test_or_says_why_not():
    kept, heading, without = required("tests/regressions.md").partition(WITHOUT_A_TEST)
    assert heading
    reasons = dict(re.findall(r"^\| (L\d+)\b.*? \| (.{20,}) \|$", without, re.MULTILINE))
    tested = {number for number, _, _ in lessons(kept)}
    assert {f"L{number}" for number in range(1, LESSONS + 1)} <= tested | set(reasons)


class TestTheRulesThemselves:
    def test_a_full_folder_is_found_and_its_init_is_no_module(self):
        modules = [ROOT / "journal/full" / f"m{number}.py" for number in range(MAX_MODULES)]
        assert full_folders([*modules, ROOT / "journal/full/__init__.py"]) == {}
        assert full_folders([*modules, ROOT / "journal/full/more.py"]) == {"journal/full": MAX_MODULES + 1}

    def test_a_long_function_is_found_also_as_a_method_and_a_coroutine(self):
        body = "\n".join(["        pass"] * MAX_FUNCTION_LINES)
        for kind in ("def", "async def"):
            assert long_functions(f"class A:\n    {kind} f():\n{body}\n") == ["f: 51 lines"]
        assert long_functions(f"class A:\n    def f():\n{body[:-13]}\n") == []

    def test_a_vague_name_is_found_as_a_file_a_folder_or_a_part(self):
        for module in ("journal/utils.py", "txbroker/common/a.py", "demo/file_helpers.py"):
            assert vague_words(module)
        assert not vague_words("txbroker/wire/messages.py")

    def test_only_rows_of_a_table_list_rooms(self):
        table = "see `journal/no/`\n| `journal/wal/` | the log |\n| `journal/record.py` | no room |\n"
        assert rooms_in_table(table) == {"journal/wal": "the log"}

    def test_a_dependency_without_a_comment_of_its_own_is_found(self):
        text = '[project]\ndependencies = [\n    "a>=1",  # the reason that it is here\n    "b>=2",\n]\n'
        text += '[project.optional-dependencies]\nx = [\n    "c>=3",  # short\n]\n'
        assert dependencies_without_reason(text) == ["b>=2", "c>=3"]

    def test_a_lesson_is_a_row_of_three(self):
        text = "| L12 | `tests/test_a.py::test_b` | begins at 1 |\n| number | test | fault |\nL13 later\n"
        assert lessons(text) == [("L12", "tests/test_a.py::test_b", "begins at 1")]

    def test_a_home_folder_is_found_and_a_relative_or_remote_path_is_not(self):
        home = "/ho" + "me/ann/data"
        assert MACHINE_PATH.findall(f"open('{home}')") == [home]
        assert not MACHINE_PATH.findall(f"./src{home} ~{home} https://example.org{home}")
