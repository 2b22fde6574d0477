"""``kubestow simulate --optimal``: the report in every form, and bad usage."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import yaml

from core_tests.engine.input.manifests import node, pod, write
from kubestow.cli import main
from kubestow_lab.cli.simulate import simulate
from kubestow_lab.flow.cost_models import COST_MODELS


class Run(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Run]:
    """Run ``kubestow simulate`` on two nodes that a large pod needs one of."""
    dump = write(tmp_path, node("a", cpu="4"), node("b", cpu="4"), name="dump.json")
    small = [pod(f"small-{i}", cpu="2") for i in range(2)]
    workload = write(tmp_path, *small, pod("large", cpu="4"), name="w.json")

    def run_command(*arguments: str) -> Run:
        with pytest.raises(SystemExit) as exited:
            main(["simulate", "--cluster", str(dump), "--workload", str(workload), *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Run(int(exited.value.code or 0), out, err)

    return run_command


def test_a_missing_extra_is_named_before_anything_is_simulated(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def without_ortools(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name.partition(".")[0] == "ortools":
            raise ModuleNotFoundError(name)
        return imported(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_ortools)
    result = run("--optimal")
    assert (result.status, result.out) == (1, "")
    assert result.err == "kubestow: --optimal: needs OR-Tools, install kubestow[solvers]\n"


def test_every_cost_model_can_be_chosen() -> None:
    [option] = [option for option in simulate.params if option.name == "cost_model"]
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == list(COST_MODELS)


@pytest.mark.parametrize("option", [("--cost-model", "octopus"), ("--optimal-limit", "1")])
def test_options_of_the_optimum_need_it(run: Callable[..., Run], option: tuple[str, str]) -> None:
    result = run(*option)
    assert result.status == 2
    assert "--cost-model and --optimal-limit need --optimal" in result.err


def test_the_table_and_the_documents_say_what_the_optimum_places(run: Callable[..., Run]) -> None:
    pytest.importorskip("ortools", reason="kubestow-lab[flow] is not installed")
    table = run("--optimal").out
    assert "gap: +1 pod (proven optimal)" in table
    assert "1 pending pod placed, 0 displaced, 1 moved" in table
    report = json.loads(run("--optimal", "--cost-model", "octopus", "-o", "json").out)["optimal"]
    assert (report["greedy"]["placed"], report["optimum"]["placed"], report["proven"]) == (2, 3, True)
    assert [each["pod"] for each in report["newlyPlaced"]] == ["default/large"]
    cluster, gap = yaml.safe_load_all(run("--optimal", "-o", "yaml").out)
    assert cluster["kind"] == "List"
    assert (gap["kind"], gap["gap"]["pods"]) == ("OptimalPlacement", 1)


def test_without_the_option_nothing_of_it_is_reported(run: Callable[..., Run]) -> None:
    assert "optimal" not in json.loads(run("-o", "json").out)
