"""Which tests run a mutant, as functions and tests change after they were measured."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from coverage import CoverageData
from tools.mutants import durations
from tools.mutants.covering import CoveringTests, keep
from tools.mutants.mutations import Mutant, mutants

_MODULE = """
    def first(pods):
        if pods:
            return 1
        return 2

    def second(pods):
        return 3
    """


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / durations.FILE).parent.mkdir(parents=True)
    return tmp_path


def _module(text: str = _MODULE) -> Path:
    file = Path("module.py").resolve()
    file.write_text(dedent(text).lstrip())
    return file


def _measured(lines: dict[str, list[int]], tests: list[str]) -> None:
    """Keep that tests ran these lines, as pytest-cov writes it."""
    Path("coverage").unlink(missing_ok=True)
    data = CoverageData("coverage")
    for test, ran in lines.items():
        data.set_context(f"{test}|run")
        data.add_lines({"module.py": ran})
    data.write()
    keep(Path("coverage"), tests)
    durations.FILE.write_text(json.dumps({**durations.read(), **dict.fromkeys(lines, 0.1)}))


def _mutant(change: str) -> Mutant:
    return next(one for one in mutants("kubestow.rules.module", Path("module.py").resolve()) if one.change == change)


def _tests_of(change: str, budget: float = 10) -> list[str]:
    return list(CoveringTests(["tests"]).of(_mutant(change), budget))


_PODS, _NO_PODS, _SECOND = "tests/test_a.py::test_pods", "tests/test_a.py::test_no_pods", "tests/test_b.py::test_second"


@pytest.fixture
def measured() -> None:
    _module()
    _measured({_PODS: [2, 3], _NO_PODS: [2, 4], _SECOND: [7]}, ["tests/test_a.py", "tests/test_b.py"])


@pytest.mark.usefixtures("measured")
def test_the_tests_of_a_line_are_those_that_run_it() -> None:
    assert _tests_of("1 → 2") == [_PODS]
    assert _tests_of("2 → 3") == [_NO_PODS]
    assert _tests_of("pods → False") == [_NO_PODS, _PODS]


@pytest.mark.usefixtures("measured")
def test_lines_follow_a_function_that_moves() -> None:
    _module('"""A module."""\n' + dedent(_MODULE))
    assert _tests_of("2 → 3") == [_NO_PODS]


@pytest.mark.usefixtures("measured")
def test_all_tests_of_a_function_run_what_is_changed_in_it() -> None:
    _module(_MODULE.replace("return 2", "return 5"))
    assert _tests_of("5 → 6") == [_NO_PODS, _PODS]
    assert _tests_of("3 → 4") == [_SECOND]


@pytest.mark.usefixtures("measured")
def test_all_tests_of_a_module_may_run_a_new_function() -> None:
    _module(_MODULE + "\n    def third(pods):\n        return 7\n")
    assert _tests_of("7 → 8") == [_NO_PODS, _PODS, _SECOND]


@pytest.mark.usefixtures("measured")
def test_what_a_file_of_tests_ran_before_it_changed_is_forgotten() -> None:
    _measured({_PODS: [7]}, ["tests/test_a.py"])
    assert _tests_of("1 → 2") == []
    assert _tests_of("3 → 4") == [_SECOND, _PODS]


@pytest.mark.usefixtures("measured")
def test_what_a_test_ran_before_it_changed_is_forgotten() -> None:
    _measured({_PODS: [7]}, [_PODS])
    assert _tests_of("1 → 2") == []
    assert _tests_of("2 → 3") == [_NO_PODS]


def test_tests_of_the_package_that_run_another_line_of_the_module_come_last() -> None:
    _module()
    near = "tests/rules/test_near.py::test_near"
    _measured({near: [2], _PODS: [7]}, ["tests/rules/test_near.py", "tests/test_a.py"])
    assert _tests_of("3 → 4") == [_PODS, near]
    assert _tests_of("pods → False") == [near]


def test_tests_come_first_whose_names_have_rare_words_of_the_mutant() -> None:
    _module()
    names = (
        "test_a.py::test_pods_first",
        "test_a.py::test_pods_other",
        "test_b.py::test_second",
        "test_b.py::test_third",
    )
    _measured({f"tests/{name}": [2, 7] for name in names}, ["tests/test_a.py"])
    assert _tests_of("pods → False")[0] == f"tests/{names[0]}"
    assert _tests_of("3 → 4")[0] == f"tests/{names[2]}"


def test_further_cases_of_a_test_come_last_and_what_exceeds_the_budget_is_left_out() -> None:
    _module()
    cases = {f"{_SECOND}[{index}]": [7] for index in range(4)}
    _measured({**cases, _PODS: [7]}, ["tests/test_a.py", "tests/test_b.py"])
    durations.FILE.write_text(json.dumps({**durations.read(), _PODS: 0.2}))
    assert _tests_of("3 → 4") == [f"{_SECOND}[0]", f"{_SECOND}[1]", _PODS, f"{_SECOND}[2]", f"{_SECOND}[3]"]
    assert _tests_of("3 → 4", budget=0.25) == [f"{_SECOND}[0]", f"{_SECOND}[1]"]
    likely = list(CoveringTests(["tests"]).of(_mutant("3 → 4"), 10, [f"{_SECOND}[3]", "tests/test_c.py::test_other"]))
    assert likely[:2] == [f"{_SECOND}[3]", f"{_SECOND}[0]"]
    assert list(CoveringTests(["other"]).of(_mutant("3 → 4"), 10)) == []
