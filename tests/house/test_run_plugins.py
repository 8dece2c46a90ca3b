"""Test the plugins of a test run: the table of the slowest files, samples of parameters, and shares of the files."""

import itertools
import os
import re
import subprocess
import sys

import pytest

from tests.support.repository import ROOT
from tests.support.runs import spark_first
from tests.support.runs.sampling import sample
from tests.support.runs.shares import dealt, fast_files, weights
from tests.support.runs.shares import run as run_shares

SAMPLED = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("number", range(9))
def test_one(number): pass

@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(9))
def test_three(number): pass

@pytest.mark.sampled(99)
@pytest.mark.parametrize("number", range(2))
def test_all(number): pass

@pytest.mark.sampled(test=3)
@pytest.mark.parametrize("number", range(12))
def test_some(number): pass
"""

BUSY = """
import subprocess, sys, time

def test_idle(): time.sleep(0.3)

def test_busy():
    end = time.process_time() + 0.3
    while time.process_time() < end: pass

def test_busy_child():
    code = "import time\\nend = time.process_time() + 0.3\\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
"""


def run(folder, plugin, *options):
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-c",
        os.devnull,
        "-p",
        f"tests.support.runs.{plugin}",
        *options,
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        (*command, "--rootdir", folder, folder), cwd=folder, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_the_slowest_files_are_in_a_table_with_what_their_children_took(tmp_path, options):
    (tmp_path / "test_busy.py").write_text(BUSY)
    (tmp_path / "test_quick.py").write_text("def test_nothing(): pass\n")
    said = run(tmp_path, "slowest_files", *options).splitlines()
    rows = [line.split(maxsplit=3) for line in said[said.index(" seconds processor tests") + 1 :][:3]]
    assert [(tests, name) for _, _, tests, name in rows] == [
        ("3", "test_busy.py"),
        ("1", "test_quick.py"),
        ("4", "all 2 files"),
    ]
    seconds, processor = float(rows[0][0]), float(rows[0][1])
    assert seconds >= 0.9
    assert processor >= 0.6
    assert float(rows[2][1]) >= processor


@pytest.mark.slow
def test_a_sample_of_the_parameters_is_not_slow(tmp_path):
    (tmp_path / "test_sampled.py").write_text(SAMPLED)
    said = run(tmp_path, "sampling", "-m", "not slow and not deep", "--collect-only", "-q")
    assert [line.partition("::")[2] for line in said.splitlines() if "::" in line] == [
        "test_one[0]",
        *(f"test_three[{number}]" for number in (0, 3, 6)),
        *(f"test_all[{number}]" for number in (0, 1)),
        "test_some[0]",
    ]
    said = run(tmp_path, "sampling", "-m", "not deep", "--collect-only", "-q", "-k", "test_some")
    assert [line.partition("::")[2] for line in said.splitlines() if "::" in line] == [
        f"test_some[{number}]" for number in (0, 4, 8)
    ]


@pytest.mark.slow
def test_the_tests_of_spark_come_first_and_all_others_as_they_would(tmp_path):
    for name in ("a/test_a", "spark/test_b", "spark/audit/test_c", "sparkle/test_d"):
        file = tmp_path / "tests" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def test(): pass\n")
    said = run(tmp_path, "spark_first", "--collect-only", "-q")
    assert [line.partition("::")[0] for line in said.splitlines() if "::" in line] == [
        f"tests/{name}.py" for name in ("spark/audit/test_c", "spark/test_b", "a/test_a", "sparkle/test_d")
    ]


def test_two_of_many_workers_begin_with_half_of_the_files_of_spark_each():
    spark = [f"tests/spark/test_{name}.py" for name in "aabbcc"]
    files = [*(f"tests/a/test_{number}.py" for number in range(30)), *spark]
    found = [files[place] for place in spark_first.order(files, 6)]
    assert sorted(found) == sorted(files)
    assert found[:4] == [spark[0], spark[1], spark[4], spark[5]]
    assert found[6:8] == spark[2:4], "with this the second one's sixth begins"
    assert [each for each in found if each not in spark] == files[:30]


def test_a_few_tests_are_all_there_too():
    files = ["tests/spark/test_a.py"] * 9 + ["tests/b.py"]
    for workers in (1, 4, 6, 20):
        assert sorted(spark_first.order(files, workers)) == list(range(10))


@pytest.mark.parametrize(
    ("count", "wanted", "places"), [(9, 1, [0]), (9, 3, [0, 3, 6]), (10, 4, [0, 2, 5, 7]), (2, 9, [0, 1])]
)
def test_a_sample_is_spread_evenly(count, wanted, places):
    assert sample(count, wanted) == places


def test_shares_have_every_file_once_and_take_as_long_as_one_another():
    files = {f"tests/test_{number}.py": float(number % 17) for number in range(200)}
    shares = dealt(files, 3)
    assert sorted(itertools.chain(*shares)) == sorted(files)
    seconds = [sum(files[file] for file in share) for share in shares]
    assert max(seconds) - min(seconds) <= 1


def test_a_file_that_is_not_known_weighs_what_its_bytes_would():
    known, new = "tests/house/test_docs.py", "tests/house/test_run_plugins.py"
    size, of_new = ((ROOT / file).stat().st_size for file in (known, new))
    assert weights([known, new], {known: 3.0, "tests/test_gone.py": 9.0}) == {
        known: 3.0,
        new: pytest.approx(3.0 * of_new / size),
    }
    assert weights([new], {}) == {new: of_new}


def test_shares_have_all_files_with_fast_tests():
    files = fast_files()
    assert "tests/house/test_run_plugins.py" in files
    assert "tests/drill/test_drills.py" not in files, "all of its tests are slow"
    left_out = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}.difference(
        files
    )
    marked = re.compile(r"^pytestmark = (?:pytest\.mark\.|INTERRUPTED$)", re.MULTILINE)
    unmarked = [file for file in left_out if not marked.search((ROOT / file).read_text())]
    assert unmarked == ["tests/amqp/foreign/test_clients.py"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "code", "passed"),
    [
        ((), 1, 3),
        (("-k", "alone"), 0, 1),
        (("-k", "there_is_none"), 5, 0),
        (("-k", "fails"), 1, 0),
        (("tests/test_one.py",), 0, 2),
    ],
    ids=["one fails", "one share has none", "no share has any", "the only one fails", "files"],
)
def test_shares_run_every_test_once_and_end_as_they_do(tmp_path, capfd, options, code, passed):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_one.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    (tmp_path / "tests/test_two.py").write_text("def test_alone(): pass\ndef test_fails(): assert False\n")
    (tmp_path / "tests/test_slow.py").write_text("import pytest\npytestmark = pytest.mark.slow\n1 / 0\n")
    assert run_shares(2, ["--config-file=/dev/null", f"--rootdir={tmp_path}", *options], tmp_path) == code
    assert sum(map(int, re.findall(r"(\d+) passed", capfd.readouterr().out))) == passed
