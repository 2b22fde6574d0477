"""The command on a tree with one module and one test: what its tests notice, and what they do not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest
from tools.mutants.__main__ import TESTS, reached, sampled
from tools.mutants.fork_server import Outcome
from tools.mutants.known import Verdicts
from tools.mutants.mutations import mutants

_ROOT = Path(__file__).parents[2]
_SOURCES = "packages/kubestow/src"
_MODULE = """
    class Pods:
        def __init__(self):
            self.taken = []

        def may_take(self, pod):
            if len(self.taken) < 2:
                return pod not in self.taken
            return False

        def wait(self):
            while not self.taken:
                self.taken.append(1)
    """
_TEST = """
    from kubestow.rules.pods import Pods

    def test_a_pod_is_taken_once():
        pods = Pods()
        pods.taken.append("a")
        assert pods.may_take("b")
        assert pods.may_take("a") is False

    def test_waiting_ends():
        pods = Pods()
        pods.wait()
        assert pods.taken == [1]
    """


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in (*TESTS, f"{_SOURCES}/kubestow/rules"):
        (tmp_path / folder).mkdir(parents=True)
    package = tmp_path / _SOURCES / "kubestow"
    for file, text in (("__init__.py", ""), ("rules/__init__.py", ""), ("rules/pods.py", _MODULE)):
        (package / file).write_text(dedent(text))
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    (tmp_path / "packages/kubestow/tests/core_tests/rules/test_small.py").write_text(dedent(_TEST))
    return tmp_path


def _run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{_SOURCES}:{_ROOT}"}
    command = [sys.executable, "-m", "tools.mutants", *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


def test_survivors_are_named_and_what_never_ends_is_killed(tree: Path) -> None:
    finished = _run(tree, "--packages", "rules.pods", "--sample", "0")
    printed = finished.stdout.splitlines()
    assert sorted(line for line in printed if line.startswith(("survived", "not covered"))) == [
        "survived kubestow.rules.pods:7 Pods.may_take: if len(self.taken) < 2:  [len(self.taken) < 2 → True] (2 tests)",
        "survived kubestow.rules.pods:7 Pods.may_take: if len(self.taken) < 2:"
        "  [len(self.taken) < 2 → len(self.taken) <= 2] (2 tests)",
        "survived kubestow.rules.pods:7 Pods.may_take: if len(self.taken) < 2:  [2 → 3] (2 tests)",
        "survived kubestow.rules.pods:9 Pods.may_take: return False  [False → True] (2 tests)",
    ]
    assert "| rules (elsewhere) | 11 | 6 | 1 | 4 | 0 | 0 | 63.6 |" in printed
    assert finished.returncode == 1


def test_after_its_minutes_a_run_tries_no_mutant_and_says_how_many_are_left(tree: Path) -> None:
    finished = _run(tree, "--packages", "rules.pods", "--sample", "5", "--minutes", "0")
    assert finished.stdout.endswith("\n5 of 5 mutants were not tried.\n")


def _write(folder: Path, module: str, tests: str) -> tuple[Path, Path]:
    files = folder / "module.py", folder / "test_module.py"
    files[0].write_text(dedent(module))
    files[1].write_text(dedent(tests))
    return files


_STARTS = """
    def start():
        return one
    """
_TWO_TESTS = """
    @pytest.mark.parametrize("one", [1])
    def test_start(one):
        assert start()

    def test_other():
        pass
    """


@pytest.mark.parametrize(
    ("module", "tests", "kept"),
    [
        ("\n    limit = 1" + _STARTS, _TWO_TESTS, True),
        (_STARTS, "\n    LIMIT = 1" + _TWO_TESTS.replace("pass", "return"), True),
        (_STARTS.replace("start()", "start(self)"), _TWO_TESTS, False),
        (_STARTS, _TWO_TESTS.replace("assert start()", "start()"), False),
        (_STARTS, _TWO_TESTS.replace("[1]", "[2]"), False),
    ],
)
def test_a_kill_holds_until_the_function_or_the_test_changes(
    tmp_path: Path, module: str, tests: str, kept: bool
) -> None:
    module_file, test_file = _write(tmp_path, _STARTS, _TWO_TESTS)
    (mutant,) = mutants("module", module_file)
    killer = f"{test_file}::test_start[1]"
    Verdicts(tmp_path / "verdicts.jsonl").add(mutant, Outcome.KILLED, killer, [])
    _write(tmp_path, module, tests)
    (mutant,) = mutants("module", module_file)
    verdicts = Verdicts(tmp_path / "verdicts.jsonl")
    assert verdicts.of(mutant) is (Outcome.KILLED if kept else None)
    assert verdicts.killers(mutant) == [killer]


def test_a_mutant_that_survived_is_tried_with_the_tests_that_it_has_not_survived_yet(tmp_path: Path) -> None:
    module_file, test_file = _write(tmp_path, _STARTS, _TWO_TESTS)
    (mutant,) = mutants("module", module_file)
    start, other = (f"{test_file}::{name}" for name in ("test_start", "test_other"))
    Verdicts(tmp_path / "verdicts.jsonl").add(mutant, Outcome.SURVIVED, "", [start])
    verdicts = Verdicts(tmp_path / "verdicts.jsonl")
    assert (verdicts.of(mutant), verdicts.untried(mutant, [other, start])) == (Outcome.SURVIVED, [other])
    verdicts.add(mutant, Outcome.NOT_COVERED, "", [other])
    assert (verdicts.of(mutant), verdicts.untried(mutant, [other, start])) == (Outcome.SURVIVED, [])
    _write(tmp_path, _STARTS, _TWO_TESTS.replace("pass", "assert start()"))
    verdicts = Verdicts(tmp_path / "verdicts.jsonl")
    assert verdicts.untried(mutant, [start, other]) == [other]
    verdicts.add(mutant, Outcome.KILLED, other, [])
    assert (verdicts.of(mutant), verdicts.untried(mutant, [start])) == (Outcome.KILLED, [start])


def test_a_sample_is_spread_over_packages_and_part_of_larger_ones(tmp_path: Path) -> None:
    module_file, _ = _write(tmp_path, "def first(pods):\n    return max(pods) + 1 < 2 < 3\n", "")
    many = list(mutants("many", module_file))
    few = list(mutants("few", module_file))[:3]
    small, large = (sampled([many, few], size, seed=1) for size in (4, 7))
    assert Counter(one.module for one in small) == {"many": 2, "few": 2}
    assert Counter(one.module for one in large) == {"many": 4, "few": 3}
    assert set(small) < set(large)
    assert sampled([many, few], 4, seed=2) != small
    assert sampled([many, few], 0, seed=1) == many + few


@pytest.mark.parametrize(("killed", "status"), [(95, True), (94, False)])
def test_the_goal_does_not_count_equivalent_mutants(killed: int, status: bool) -> None:
    counts = {"framework (decisions)": Counter({"killed": killed, "survived": 100 - killed, "equivalent": 50})}
    assert reached(counts, "decisions") is status
    assert reached(counts, "elsewhere")
