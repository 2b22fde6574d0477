"""The search finds what a complete search finds, and depends on its seed alone."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import current_process
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from core_tests.engine.input.manifests import arrivals, cluster, node, workload
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import ConfigurationError, InputError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Handle, ScorePlugin, Scores
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.tuning.objectives import NAMES
from kubestow_lab.tuning.search_space import SearchSpace
from kubestow_lab.tuning.tuning_result import Trial, TuningResult
from kubestow_lab.tuning.tuning_search import TuningOptions, tune

LABEL = "node.kubernetes.io/instance-type"
STRATEGY = {"args": {"NodeResourcesFit": {"scoringStrategy.type": ["LeastAllocated", "MostAllocated"]}}}
WIDE: dict[str, Any] = {
    **STRATEGY,
    "weights": {
        "NodeResourcesFit": {"min": 0, "max": 10},
        "NodeResourcesBalancedAllocation": {"min": 0, "max": 10},
        "PodTopologySpread": [1, 2, 5],
    },
}


@pytest.fixture
def problem(tmp_path: Path) -> tuple[ClusterObjects, Arrivals]:
    """Small pods that come before a large one: it fits only if they are packed."""
    nodes = [node(name, cpu="4", labels={LABEL: kind}) for name, kind in (("a", "x"), ("b", "x"), ("c", "y"))]
    within = cluster(tmp_path, *nodes)
    small = workload("Deployment", "small", replicas=4, cpu="1")
    large = workload("Deployment", "zlarge", replicas=2, cpu="4")
    return within, arrivals(tmp_path, small, large, within=within)


def search(problem: tuple[ClusterObjects, Arrivals], space: dict[str, Any] = STRATEGY, **fields: Any) -> TuningResult:
    options = fields.pop("options", TuningOptions(trials=10))
    return tune(*problem, SearchSpace.of(space), **{"processes": 1, "options": options, **fields})


class _WithoutPlugin(ThreadPoolExecutor):
    """Workers that lack the module of a plugin."""

    def map(self, *arguments: Any, **options: Any) -> Any:
        sys.modules.pop("only_here", None)
        return super().map(*arguments, **options)


def test_a_worker_that_lacks_a_module_is_an_error_with_the_remedy(
    problem: tuple[ClusterObjects, Arrivals], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("only_here")
    module.Refuses = type("Refuses", (Refuses,), {"__module__": "only_here"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "only_here", module)
    with _WithoutPlugin(1) as executor, pytest.raises(InputError) as raised:
        search(problem, plugins=[module.Refuses], executor=executor)
    assert str(raised.value) == (
        "workers: a trial cannot be run: ModuleNotFoundError: No module named 'only_here'; workers need this version of"
        " kubestow, and the modules of all plugins"
    )


def test_packing_places_the_large_pods(problem: tuple[ClusterObjects, Arrivals]) -> None:
    found = search(problem, objectives=["pending", "nodes"])
    assert found.trials[0].objectives[0] == 2  # the default spreads
    assert found.best.values == {"args.NodeResourcesFit.scoringStrategy.type": "MostAllocated"}
    assert found.best.objectives == (0, 3)
    options = SimulationOptions(departures=False)
    chosen = Simulation(*problem, found.configuration(found.best), options=options).run()
    assert not chosen.pending_groups()


def test_all_of_a_small_space_is_tried(problem: tuple[ClusterObjects, Arrivals]) -> None:
    space = {**STRATEGY, "weights": {"NodeResourcesFit": [1, 3]}}
    found = search(problem, space, options=TuningOptions(trials=4))
    assert sorted(tuple(trial.values.values()) for trial in found.trials[1:]) == [
        (1, "LeastAllocated"),
        (1, "MostAllocated"),
        (3, "LeastAllocated"),
        (3, "MostAllocated"),
    ]


def test_the_result_depends_on_the_seed_alone(problem: tuple[ClusterObjects, Arrivals]) -> None:
    options = TuningOptions(trials=18, seed=3)
    alone = search(problem, WIDE, options=options).document()
    assert search(problem, WIDE, options=options, processes=2).document() == alone
    with ThreadPoolExecutor(3) as executor:
        assert search(problem, WIDE, options=options, executor=executor).document() == alone
    assert search(problem, WIDE, options=TuningOptions(trials=18, seed=4)).document() != alone
    candidates = [tuple(trial["parameters"].values()) for trial in alone["trials"][1:]]
    assert len(candidates) == len(set(candidates)) == 18


def test_runs_in_forks_of_one_process_have_the_same_result(
    problem: tuple[ClusterObjects, Arrivals], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = TuningOptions(trials=6, runs=2, seed=3)
    alone = search(problem, WIDE, options=options).document()
    monkeypatch.setattr("kubestow_lab.tuning.tuning_search._LARGE", 1)
    assert search(problem, WIDE, options=options).document() == alone
    assert search(problem, WIDE, options=options, processes=3).document() == alone
    monkeypatch.setattr(current_process(), "_config", {"daemon": True})
    assert search(problem, WIDE, options=options).document() == alone


def test_every_objective_is_measured(problem: tuple[ClusterObjects, Arrivals]) -> None:
    space = {**STRATEGY, "prices": {"label": LABEL, "values": {"x": 1.0, "y": 10.0}}}
    found = search(problem, space, objectives=NAMES, options=TuningOptions(trials=2, runs=2))
    packed = dict(zip(NAMES, found.trials[2].objectives, strict=True))
    assert packed == {"pending": 0, "fragmentation": packed["fragmentation"], "spread": 0, "nodes": 3, "cost": 12} | {
        "preemptions": 0
    }
    assert len(found.columns()["cost"]) == 3


def test_the_front_has_what_no_trial_beats() -> None:
    figures = [(3.0, 3.0), (1.0, 4.0), (2.0, 2.0), (2.0, 2.0), (4.0, 1.0), (2.0, 5.0)]
    trials = [Trial(number, None, {}, objectives) for number, objectives in enumerate(figures)]
    front = TuningResult.undominated(trials)
    assert [trial.number for trial in front] == [1, 2, 4]
    assert all(any(one.beats(other) or one.objectives == other.objectives for one in front) for other in trials)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "nothing varies"),
        ({"weights": {"NodeResourceFit": [1]}}, "no such plugin, did you mean NodeResourcesFit"),
        ({"weights": {"NodeName": [1]}}, "the plugin does not score nodes"),
        ({"weights": {"NodeResourcesFit": [-1]}}, "expected weights from 0"),
        ({"weights": {"NodeResourcesFit": {"min": 3, "max": 1}}}, "expected min <= max"),
        ({"weights": {"NodeResourcesFit": []}}, "weights.NodeResourcesFit: expected at least one value"),
        ({"weights": {"NodeResourcesFit": [1, "x"]}}, r"weights.NodeResourcesFit\[1\]: expected `int`, got `str`"),
        ({"weight": {}}, "unknown field `weight`"),
        (
            {"args": {"NodeResourcesFit": {"scoringStrategy.type": ["LeastAllocated", "Most"]}}},
            r"args.NodeResourcesFit.scoringStrategy.type: the value 'Most' is not valid: .*scoringStrategy",
        ),
        ({"settings": {"percentageOfNodesToScore": [101]}}, "settings.percentageOfNodesToScore: the value 101"),
        ({**STRATEGY, "profile": "other"}, "no profile is called other"),
    ],
)
def test_invalid_spaces_are_refused(
    problem: tuple[ClusterObjects, Arrivals], space: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        search(problem, space)
    assert not isinstance(caught.value, ConfigurationError)


class Refuses(ScorePlugin):
    """Cannot be constructed."""

    name = "Refuses"

    def __init__(self, args: Any, handle: Handle) -> None:
        raise ValueError("out of order")

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        raise NotImplementedError


@pytest.mark.parametrize("processes", [1, 2])
def test_a_candidate_that_cannot_be_simulated_is_named(
    problem: tuple[ClusterObjects, Arrivals], processes: int
) -> None:
    space = {"weights": {"Refuses": [0, 1]}}
    with pytest.raises(InputError, match=r"the values weights.Refuses=.* cannot be simulated.*out of order"):
        search(problem, space, plugins=[Refuses], processes=processes)


@pytest.mark.parametrize(
    ("objectives", "space", "message"),
    [
        (["speed"], STRATEGY, "objective speed: expected one of pending"),
        (["pending", "pending"], STRATEGY, "is given twice"),
        ([], STRATEGY, "there are none"),
        (["cost"], STRATEGY, "has no prices"),
        (
            ["cost"],
            {**STRATEGY, "prices": {"label": LABEL, "values": {"x": 1}}},
            f"no price for node c, which has the label {LABEL}=y",
        ),
    ],
)
def test_invalid_objectives_are_refused(
    problem: tuple[ClusterObjects, Arrivals], objectives: list[str], space: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        search(problem, space, objectives=objectives)


def test_a_weight_of_zero_disables_the_score(problem: tuple[ClusterObjects, Arrivals]) -> None:
    space = SearchSpace.of({"weights": {"ImageLocality": [0, 7]}})
    found = search(problem, {"weights": {"ImageLocality": [0, 7]}})
    none, seven = (found.configuration(trial)["profiles"][0]["plugins"] for trial in found.trials[1:])
    assert {"name": "ImageLocality"} in none["score"]["disabled"]
    assert {"name": "ImageLocality", "weight": 7} in seven["multiPoint"]["enabled"]
    assert space.size == 2
