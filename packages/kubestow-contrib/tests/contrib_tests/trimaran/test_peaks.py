"""Peaks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from contrib_tests.watched_nodes import EveryNode, collected, profile_of
from kubestow.errors import InputError
from kubestow.framework.interface import Handle
from kubestow.testing import PluginHarness, check_plugin, node, pod
from kubestow_contrib.trimaran.peaks import Peaks

MODELS = {
    "steep": {"k0": 471.7, "k1": -91.5, "k2": -0.072},
    "flat": {"k0": 100, "k1": -10, "k2": -0.01},
}


def rise(model: dict[str, float], before: float, after: float) -> float:
    return model["k1"] * (math.exp(model["k2"] * after) - math.exp(model["k2"] * before))


def test_the_least_rise_of_power_scores_highest() -> None:
    nodes = [node(name, cpu="10") for name in ("steep", "flat", "middle", "unmodelled", "full")]
    models = MODELS | {"middle": {"k0": 0, "k1": -30, "k2": -0.02}}
    metrics = {n.metadata.name: [("CPU", "AVG", 20.0)] for n in nodes} | {"full": [("CPU", "AVG", 95.0)]}
    harness = collected(Peaks, nodes, metrics, args={"nodePowerModel": models})
    largest, middle = rise(MODELS["steep"], 20, 30), rise(models["middle"], 20, 30)
    assert harness.scores(pod(cpu="1"), "Peaks") == {
        "steep": 0,
        "flat": 100 - int(100 * rise(MODELS["flat"], 20, 30) / largest),
        "middle": 100 - int(100 * middle / largest),
        "unmodelled": 100,
        "full": 100,
    }


def test_nodes_that_cost_nothing_score_0() -> None:
    harness = collected(Peaks, [node("a")], {"a": [("CPU", "AVG", 20)]}, args={"nodePowerModel": MODELS})
    assert harness.scores(pod(cpu="1"), "Peaks") == {"a": 0}


def test_a_power_model_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODE_POWER_MODEL", raising=False)
    with pytest.raises(InputError, match=r"nodePowerModel: is empty and the environment variable NODE_POWER_MODEL"):
        PluginHarness(profile=profile_of("Peaks", {}), plugins=[Peaks])


def test_models_are_read_from_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, metrics = [node("steep"), node("flat")], {name: [("CPU", "AVG", 20.0)] for name in ("steep", "flat")}
    expected = collected(Peaks, nodes, metrics, args={"nodePowerModel": MODELS}).scores(pod(cpu="1"), "Peaks")
    (tmp_path / "models.json").write_text(json.dumps(MODELS))
    monkeypatch.setenv("NODE_POWER_MODEL", str(tmp_path / "models.json"))
    assert collected(Peaks, nodes, metrics, args={}).scores(pod(cpu="1"), "Peaks") == expected


def test_models_in_the_args_come_before_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_POWER_MODEL", "/is/not/there")
    PluginHarness(profile=profile_of("Peaks", {"nodePowerModel": MODELS}), plugins=[Peaks])


@pytest.mark.parametrize(
    ("content", "problem"),
    [("{", "expected power models"), ('{"a": {"k4": 1}}', "k4"), ('{"a": {"k1": "x"}}', "Expected `float`")],
)
def test_a_mistake_in_the_file_of_models_is_one_error_that_names_it(
    content: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models.json").write_text(content)
    monkeypatch.setenv("NODE_POWER_MODEL", str(tmp_path / "models.json"))
    with pytest.raises(InputError, match=problem) as found:
        PluginHarness(profile=profile_of("Peaks", {}), plugins=[Peaks])
    assert "NODE_POWER_MODEL" in str(found.value) and "models.json" in str(found.value)


class Measured(Peaks):
    """With metrics of every node."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._collector.usage.replace(EveryNode(handle.now().timestamp() - 1))


def test_the_contract_is_kept() -> None:
    models = {
        f"{name}-{number}": {"k1": 1.0 + number, "k2": 0.01} for name in ("plain", "large") for number in range(9)
    }
    check_plugin(Measured, args={"nodePowerModel": models})
