"""Property tests run few examples against mutants."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

_TESTS = """
    from hypothesis import given, settings, strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, rule

    counted = {"function": 0, "explicit": 0, "method": 0, "machine": 0}

    @given(st.integers())
    def test_a_function(number):
        counted["function"] += 1

    @settings(max_examples=3)
    @given(st.integers())
    def test_with_fewer(number):
        counted["explicit"] += 1

    class TestMethods:
        @settings(max_examples=80)
        @given(st.integers())
        def test_a_method(self, number):
            counted["method"] += 1

    class Machine(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            counted["machine"] += 1

        @rule()
        def step(self):
            pass

    TestMachine = Machine.TestCase

    def test_last():
        assert counted["explicit"] == 3
        assert counted["function"] <= 10
        assert counted["method"] <= 10
        assert counted["machine"] <= 12  # hypothesis makes one or two to see whether it can
    """


def test_a_property_test_runs_at_most_ten_examples(tmp_path: Path) -> None:
    file = tmp_path / "test_properties.py"
    file.write_text(dedent(_TESTS))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tools.mutants.few_examples"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    finished = subprocess.run([*command, str(file)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "5 passed" in finished.stdout, finished.stdout
