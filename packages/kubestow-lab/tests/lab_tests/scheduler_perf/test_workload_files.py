"""Workload files: the installed ones are valid, and invalid ones give one error with the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.errors import InputError
from kubestow_lab.scheduler_perf.object_templates import ObjectTemplate
from kubestow_lab.scheduler_perf.test_cases import Selection, WorkloadPlan, plans, read_test_cases
from kubestow_lab.scheduler_perf.workload_run import check

INSTALLED = plans(Selection())
VALID = """\
- name: Case
  workloadTemplate:
  - opcode: createNodes
    countParam: $initNodes
  - {opcode: createPods, countParam: $measurePods, collectMetrics: true}
  workloads:
  - {name: small, labels: [short], params: {initNodes: 5, measurePods: 10}}
  - {name: large, labels: [performance], params: {initNodes: 5000, measurePods: 1000}}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "workloads.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("plan", INSTALLED, ids=lambda plan: plan.name)
def test_an_installed_workload_is_complete(plan: WorkloadPlan) -> None:
    check(plan)
    parameters: dict[str, Any] = {}
    for _, operation in plan.operations():
        parameters |= getattr(operation, "template_params", {})
    for path in plan.template_paths():
        ObjectTemplate.read(path).object(0, 1, parameters)


def test_every_installed_test_case_has_a_short_and_a_large_workload() -> None:
    for case in {plan.case.name for plan in INSTALLED}:
        labels = [plan.labels for plan in INSTALLED if plan.case.name == case]
        assert any("short" in of for of in labels) and any("performance" in of for of in labels), case


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        (
            "countParam: $initNodes",
            "cuontParam: $initNodes",
            "line 3: [0].workloadTemplate[0]: object contains unknown",
        ),
        (
            "opcode: createNodes",
            "opcode: makeNodes",
            "line 3: [0].workloadTemplate[0].opcode: invalid value 'makeNodes'",
        ),
        ("opcode: createNodes", "code: createNodes", "expected one of allocResourceClaims, barrier"),
        ("countParam: $initNodes", "count: many", "line 4: [0].workloadTemplate[0].count: expected `int`, got `str`"),
        ("name: large", "name: small", "line 8: [0].workloads[1].name: another workload has the name Case/small"),
        ("- name: Case", "- nom: Case", "line 1: [0]: object contains unknown field `nom`"),
        ("  workloadTemplate:", "  workloads: []\n  workloadTemplate:", "[0].workloads: duplicate field"),
        ("- name: Case", "- name: [Case", "invalid YAML"),
    ],
)
def test_an_invalid_file_gives_one_error_with_the_place(before: str, after: str, error: str, tmp_path: Path) -> None:
    file = written(tmp_path, VALID.replace(before, after, 1))
    with pytest.raises(InputError) as raised:
        read_test_cases(file)
    assert str(raised.value).startswith(f"{file}: ")
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("$initNodes", "$nodes", "parameter $nodes is not set; the workload has $initNodes, $measurePods"),
        ("$initNodes", "initNodes", "expected a parameter such as $initNodes, got 'initNodes'"),
        ("initNodes: 5,", "initNodes: five,", "parameter $initNodes: expected an integer, got 'five'"),
        ("initNodes: 5,", "initNodes: -5,", "count: expected no negative number, got -5"),
        (
            "opcode: createNodes\n    countParam: $initNodes",
            "{opcode: churn, mode: create, templatePaths: [a.yaml], intervalMilliseconds: -5}",
            "intervalMilliseconds: expected no negative number, got -5",
        ),
        ("true}", "true, skipWaitToCompletion: true}", "cannot be set together"),
        ("true}", "true, steadyState: true, duration: soon}", "expected a positive duration in a steady state"),
        ("true}", "true, podTemplatePath: none.yaml}", "none.yaml does not exist"),
        (", collectMetrics: true", "", "measures nothing"),
    ],
)
def test_values_that_cannot_be_used_are_refused_before_anything_starts(
    before: str, after: str, error: str, tmp_path: Path
) -> None:
    file = written(tmp_path, VALID.replace(before, after, 1))
    [plan, *_] = plans(Selection((str(file),)))
    with pytest.raises(InputError) as raised:
        check(plan)
    assert str(raised.value).startswith(str(file)) and "Case/small" in str(raised.value)
    assert error in str(raised.value)


def test_workloads_are_selected_by_name_and_labels(tmp_path: Path) -> None:
    file = str(written(tmp_path, VALID))

    def names(**selection: str) -> list[str]:
        return [plan.name for plan in plans(Selection((file,), **selection))]

    assert names() == ["Case/small", "Case/large"]
    assert names(name_filter="larg") == ["Case/large"]
    assert names(name_filter="^Case/l") == ["Case/large"]
    assert names(label_filter="short,-performance") == ["Case/small"]
    assert names(label_filter="-short") == ["Case/large"]
    with pytest.raises(InputError, match="no workload matches huge"):
        names(name_filter="huge")
    with pytest.raises(InputError, match="--filter: expected a regular expression"):
        names(name_filter="(")
    with pytest.raises(InputError, match="no such file or installed workload"):
        plans(Selection(("NoSuchCase",)))
    with pytest.raises(InputError, match="SchedulingBasic/500Nodes"):
        plans(Selection(("SchedulingBasic/7Nodes",)))


def test_parameters_can_be_overridden_also_by_short_names(tmp_path: Path) -> None:
    file = str(written(tmp_path, VALID))
    [plan, *_] = plans(Selection((file,), overrides=("nodes=7", "measurePods=3")))
    assert plan.parameters == {"initNodes": 7, "measurePods": 3}
    with pytest.raises(InputError, match="has no parameter 'init', only initNodes, measurePods"):
        plans(Selection((file,), overrides=("init=1",)))
    with pytest.raises(InputError, match="expected NAME=VALUE, got 'nodes'"):
        plans(Selection((file,), overrides=("nodes",)))


def rendered(expression: str, index: int = 0, **parameters: object) -> object:
    template = ObjectTemplate(f"metadata: {{name: {{{{ {expression} }}}}}}", "template.yaml")
    return template.object(index, 10, parameters)["metadata"]["name"]


@given(st.integers(0, 10**6), st.integers(1, 1000))
def test_template_functions_compute_as_go_does(index: int, divisor: int) -> None:
    assert rendered(f"DivideInt .Index {divisor}", index) == index // divisor
    assert rendered(f"Mod .Index {divisor}", index) == index % divisor
    assert rendered(f"AddInt .Index (MultiplyInt {divisor} 2)", index) == index + 2 * divisor
    assert rendered(f"SubtractInt .Count {divisor}", index) == 10 - divisor


def test_template_parameters_are_substituted() -> None:
    assert rendered(".Zone", Zone="a") == "a"


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("range .Index", "unknown 'range'"),
        (".Nope", "unknown '.Nope', expected .Index, .Count"),
        ("DivideInt .Index 0", "division by zero"),
        ("Mod .Index", "Mod does not take 1 arguments"),
        ("AddInt (.Index 1", "expected a closing parenthesis"),
        ('AddInt "a" 1', "expected a number, got 'a'"),
        (".Index .Index", "unexpected '.Index'"),
    ],
)
def test_an_invalid_expression_is_named_with_its_line(expression: str, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        rendered(expression)
    assert "template.yaml: line 1: {{" in str(raised.value)
    assert problem in str(raised.value)


def test_fields_are_spelled_as_kubernetes_does_and_labels_stay() -> None:
    text = "metadata: {labels: {App: a}}\nspec: {NodeAffinityPolicy: Ignore, selector: {matchLabels: {App: a}}}"
    assert ObjectTemplate(text, "t").object(0, 1) == {
        "metadata": {"labels": {"App": "a"}},
        "spec": {"nodeAffinityPolicy": "Ignore", "selector": {"matchLabels": {"App": "a"}}},
    }


def test_objects_of_one_template_are_independent() -> None:
    template = ObjectTemplate("metadata: {name: a}", "t")
    template.object(0, 1)["metadata"]["name"] = "b"
    assert template.object(0, 1) == {"metadata": {"name": "a"}}
