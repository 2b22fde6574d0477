"""The environments follow Gymnasium's rules, and place pods as the scheduler's filters allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kubestow.errors import InputError

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from kubestow.engine.input.cluster_objects import ClusterObjects  # noqa: E402
from kubestow.testing import node, pod  # noqa: E402
from kubestow_lab.gym import ACTIONS, PlacementEnv  # noqa: E402
from kubestow_lab.simulation.arrivals import Arrival, Arrivals  # noqa: E402


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.filterwarnings("ignore:.*render_modes")
def test_gymnasium_accepts_the_environment(action: str) -> None:
    check_env(gymnasium.make("kubestow/Placement-v0", action=action, nodes=4, pods=12).unwrapped)


def _environment(*arrivals: tuple[Any, float, float | None], nodes: Any, **options: Any) -> PlacementEnv:
    given = Arrivals(pods=[Arrival(pod, time, duration, {}) for pod, time, duration in arrivals])
    return PlacementEnv(cluster=ClusterObjects(nodes=list(nodes)), arrivals=given, **options)


def _two_nodes() -> list[Any]:
    return [node("a", cpu="4", memory="8Gi"), node("b", cpu="8", memory="8Gi")]


def test_a_pod_goes_to_the_chosen_node_and_leaves_it_after_its_duration() -> None:
    environment = _environment(
        (pod("p", cpu="4", memory="2Gi"), 5.0, 10.0),
        (pod("q", cpu="4", memory="2Gi"), 6.0, None),
        (pod("r", cpu="4", memory="2Gi"), 15.0, None),
        nodes=_two_nodes(),
    )
    assert environment.resources == ("cpu", "memory")
    observation, info = environment.reset()
    assert info["time"] == 5
    np.testing.assert_allclose(observation["nodes"], [[0.5, 1.0, 0.5, 1.0], [1.0, 1.0, 1.0, 1.0]])
    np.testing.assert_allclose(observation["pods"], [[0.5, 0.25]])
    observation, reward, ended, _, info = environment.step(0)
    assert (info["pod"], info["node"], info["placed"], ended) == ("default/p", "a", True, False)
    assert reward == pytest.approx((4 / 12 + 2 / 16) / 2)
    # Node a is full, until p has ended when r arrives.
    assert observation["mask"].tolist() == [0, 1]
    observation, *_ = environment.step(1)
    assert observation["mask"].tolist() == [1, 1]
    assert environment.step(0)[2:] == (
        True,
        False,
        {"pod": "default/r", "node": "a", "placed": True, "pending": 0, "time": 15.0},
    )
    with pytest.raises(InputError, match="the episode has ended"):
        environment.step(0)


def test_an_invalid_action_leaves_the_pod_pending_and_what_fits_nowhere_has_no_step() -> None:
    environment = _environment(
        (pod("small", cpu="6"), 0.0, None),
        (pod("huge", cpu="9"), 0.0, None),
        (pod("next", cpu="1"), 0.0, None),
        nodes=_two_nodes(),
    )
    environment.reset()
    observation, reward, _, _, info = environment.step(0)
    assert (reward, info["placed"], info["pending"]) == (-1, False, 2)
    assert observation["mask"].tolist() == [1, 1]
    assert environment.step(1)[4]["pod"] == "default/next"


def test_weights_choose_by_the_scores_of_the_configuration() -> None:
    def choose(**weights: float) -> str:
        environment = _environment((pod("p", cpu="1", memory="1Gi"), 0.0, None), nodes=_two_nodes(), action="weights")
        environment.reset()
        action = np.array([weights.get(name, 0.0) for name in environment.score_plugins], np.float32)
        chosen: str = environment.step(action)[4]["node"]
        return chosen

    assert choose(NodeResourcesFit=1) == "b"  # the least allocated
    assert choose(NodeResourcesBalancedAllocation=1) == "b"
    assert choose() == "a"  # all equal: the first by name


def test_the_order_of_waiting_pods_is_an_action() -> None:
    pods = [(pod(name, cpu="8"), 0.0, None) for name in "pqr"]
    environment = _environment(*pods, nodes=[node("a", cpu="8"), node("b", cpu="8")], action="order", choices=2)
    observation, _ = environment.reset()
    assert observation["mask"].tolist() == [1, 1]
    assert environment.step(1)[4]["pod"] == "default/q"
    assert environment.step(1)[4]["pod"] == "default/r"
    # The cluster is full: p waits, and does not fit any more.
    _, reward, ended, _, info = environment.step(0)
    assert (reward, ended, info["placed"], info["pending"]) == (0, True, False, 1)


def test_a_seed_draws_the_same_episode() -> None:
    environment = PlacementEnv(nodes=4, pods=20)
    first, again, other = (environment.reset(seed=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first["pods"], again["pods"])
    np.testing.assert_array_equal(first["nodes"], again["nodes"])
    assert not all(np.array_equal(first[name], other[name]) for name in first)


def test_environments_run_side_by_side() -> None:
    vector = gymnasium.make_vec("kubestow/Placement-v0", num_envs=2, vectorization_mode="sync", nodes=3, pods=8)
    observations, _ = vector.reset(seed=1)
    assert observations["nodes"].shape[:2] == (2, 3)
    vector.step(vector.action_space.sample())
    vector.close()


def test_a_trace_is_an_episode(tmp_path: Path) -> None:
    line = "{} {} 0 10 4 -1 -1 -1 -1 -1 1 1 1 -1 7 -1 -1 -1\n"
    (tmp_path / "log.swf").write_text("; MaxNodes: 2\n; MaxProcs: 8\n" + line.format(1, 0) + line.format(2, 5))
    environment = PlacementEnv(f"swf={tmp_path / 'log.swf'}")
    environment.reset()
    assert environment.step(0)[4]["pod"] == "default/job-1"
    assert environment.step(1)[4]["time"] == 5


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"action": "sing"}, "expected one of node, weights, order, got 'sing'"),
        ({"cluster": ClusterObjects()}, "a cluster and arrivals"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        PlacementEnv(**options)
