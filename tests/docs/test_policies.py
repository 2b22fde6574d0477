"""docs/policies: the policies that were evolved and trained are as good as the pages say, and the searches run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "policies"
EVALUATE, LEARNING = ((FOLDER.parent / page).read_text(encoding="utf-8") for page in ("evaluate.md", "learning.md"))


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The modules of the folder by name."""
    pytest.importorskip("gymnasium")
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("evolve", "evolved", "fgd", "train")
    found = {name: __import__(name) for name in names}
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    return found


def test_the_evolved_plugin_beats_fgd_on_a_held_out_seed(policies: dict[str, ModuleType]) -> None:
    from kubestow_lab.evaluation.suites import SUITES, configuration_of

    suite = SUITES[policies["evolve"].SUITE]
    seed = suite.held_out_seeds[0]
    shown = {}
    for name in ("FragmentationGradientDescent", "evolved"):
        [row] = re.findall(rf"^\| {name} \| ([\d.]+) %", EVALUATE, re.MULTILINE)
        shown[name] = float(row)
    found = {}
    for name, plugin in (
        ("FragmentationGradientDescent", policies["fgd"].Fgd),
        ("evolved", policies["evolved"].Evolved),
    ):
        placed = suite.place(seed, configuration_of(plugin), [plugin])
        assert not placed.failure
        found[name] = round(100 * suite.measure(seed, placed.nodes)[0][policies["evolve"].OBJECTIVE], 2)
    assert found == shown
    assert found["evolved"] > found["FragmentationGradientDescent"]


def test_a_candidate_differs_in_its_numbers_alone(policies: dict[str, ModuleType]) -> None:
    evolve, evolved = policies["evolve"], policies["evolved"]
    numbers = [evolved.CORES_PER_GPU, *evolved.WEIGHTS]
    text = evolve.program(numbers)
    assert text == (FOLDER / "evolved.py").read_text(encoding="utf-8")
    other = evolve.program([2 * number for number in numbers])
    assert [left == right for left, right in zip(text.splitlines(), other.splitlines(), strict=True)].count(False) == 2


def test_a_search_keeps_the_best(policies: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    evolve = policies["evolve"]

    def objective(text: str) -> float:
        ratio = re.findall(r"^CORES_PER_GPU = (.+)$", text, re.MULTILINE)[0]
        return -abs(float(ratio) - 20.0)

    monkeypatch.setattr(evolve, "objective", objective)
    first, found = float(evolve.FIRST[0]), float(evolve.evolve(6, 8, seed=1)[0])
    assert abs(found - 20) < abs(first - 20) / 4
    assert found == float(evolve.evolve(6, 8, seed=1)[0])


def test_the_trained_policy_beats_the_default_scheduler(policies: dict[str, ModuleType]) -> None:
    train = policies["train"]
    weights = json.loads(train.FILE.read_text(encoding="utf-8"))
    trained, default = train.compare(weights, seeds=range(1000, 1004))
    assert trained.mean() > default.mean()


def test_training_improves(policies: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]) -> None:
    import gymnasium

    train = policies["train"]
    environment = gymnasium.make("kubestow/Placement-v0", nodes=4, pods=30)
    arguments = {"iterations": 2, "population": 4, "elite": 2, "episodes": 1, "seed": 1}
    weights = train.train(environment, **arguments)
    assert weights.tolist() == train.train(environment, **arguments).tolist()
    assert len(re.findall(r"^iteration \d: ", capsys.readouterr().out, re.MULTILINE)) == 4
