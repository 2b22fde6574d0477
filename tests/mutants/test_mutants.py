"""The command on a tree with one module and one test: what its tests notice, and what they do not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest
from tools.mutants.__main__ import TESTS, reached
from tools.mutants.known import Kills
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
    assert [line for line in printed if line.startswith(("survived", "not covered"))] == [
        "survived kubestow.rules.pods:7 Pods.may_take: if len(self.taken) < 2:  [len(self.taken) < 2 → True] (1 tests)",
        "survived kubestow.rules.pods:7 Pods.may_take: if len(self.taken) < 2:"
        "  [len(self.taken) < 2 → len(self.taken) <= 2] (1 tests)",
        "survived kubestow.rules.pods:7 Pods.may_take: if len(self.taken) < 2:  [2 → 3] (1 tests)",
        "not covered kubestow.rules.pods:9 Pods.may_take: return False  [False → True] (0 tests)",
    ]
    assert "| rules (decisions) | 11 | 6 | 1 | 3 | 1 | 0 | 63.6 |" in printed
    assert finished.returncode == 1


def test_a_mutant_was_killed_as_long_as_its_module_and_the_test_are_the_same(tmp_path: Path) -> None:
    module, test = tmp_path / "module.py", tmp_path / "test_module.py"
    module.write_text("def start():\n    return one\n")
    test.write_text("")
    (mutant,) = mutants("module", module)
    Kills(tmp_path / "kills.jsonl").add(mutant, f"{test}::test_start")
    assert mutant in Kills(tmp_path / "kills.jsonl")
    test.write_text("# it checks less")
    assert mutant not in Kills(tmp_path / "kills.jsonl")


@pytest.mark.parametrize(("killed", "status"), [(95, True), (94, False)])
def test_the_goal_does_not_count_equivalent_mutants(killed: int, status: bool) -> None:
    counts = {"framework (decisions)": Counter({"killed": killed, "survived": 100 - killed, "equivalent": 50})}
    assert reached(counts, "decisions") is status
    assert reached(counts, "elsewhere")
