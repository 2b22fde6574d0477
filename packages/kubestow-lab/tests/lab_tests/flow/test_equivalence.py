"""The classes of a problem, and where the engine's filters let them go."""

from __future__ import annotations

import numpy as np
import pytest

from kubestow.engine.placement.modelled_pods import why_not_modelled
from kubestow.testing import builders
from kubestow_lab.flow.cost_models import CpuMem
from kubestow_lab.flow.equivalence import formulate
from lab_tests.flow.clusters import infos, scheduler_of

HOSTNAME = "kubernetes.io/hostname"


def term(app: str) -> dict[str, object]:
    return {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}


def required(kind: str, app: str) -> dict[str, object]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term(app)]}}


def test_pods_that_the_problem_cannot_tell_apart_are_one_class() -> None:
    scheduler = scheduler_of(builders.nodes(2))
    pods = infos(
        scheduler,
        *builders.pods(3, cpu="1"),
        builders.pod("labelled", cpu="1", labels={"app": "x"}),
        builders.pod("larger", cpu="2"),
        builders.pod("urgent", cpu="1", priority=5),
    )
    problem = formulate(scheduler.cache, scheduler.profiles, pods, CpuMem()).problem
    assert sorted((each.count, each.priority, each.requests["cpu"]) for each in problem.classes) == [
        (1, 0, 2000),
        (1, 5, 1000),
        (4, 0, 1000),
    ]


def test_feasibility_and_free_amounts_are_those_of_the_engine() -> None:
    scheduler = scheduler_of(
        [
            builders.node("free"),
            builders.node("used"),
            builders.node("cordoned", unschedulable=True),
            builders.node("tainted", taints=["a=b:NoSchedule"]),
            builders.node("full", max_pods=0),
        ],
        [builders.pod("running", node="used", cpu="3500m")],
    )
    problem = formulate(scheduler.cache, scheduler.profiles, infos(scheduler, builders.pod(cpu="1")), CpuMem()).problem
    assert [name for name, fits in zip(problem.nodes, problem.feasible[0], strict=True) if fits] == ["free"]
    by_name = dict(zip(problem.nodes, problem.free["cpu"].tolist(), strict=True))
    assert (by_name["free"], by_name["used"]) == (4000, 500)
    assert dict(zip(problem.nodes, problem.slots.tolist(), strict=True))["full"] == 0


def test_a_relaxed_problem_keeps_what_other_pods_can_change() -> None:
    scheduler = scheduler_of([builders.node("a"), builders.node("b", unschedulable=True)])
    follower = builders.pod("follower", cpu="1", affinity=required("podAffinity", "leader"))
    pods = infos(scheduler, follower, builders.pod("leader", cpu="1", labels={"app": "leader"}))
    strict = formulate(scheduler.cache, scheduler.profiles, pods, CpuMem())
    relaxed = formulate(scheduler.cache, scheduler.profiles, pods, CpuMem(), relaxed=True)
    assert strict.solution({}).shape == (2, 2)
    assert not strict.problem.feasible[[members[0].name == "follower" for members in strict.members]].any()
    assert relaxed.problem.feasible.tolist() == [[True, False]]
    assert relaxed.interacting == {pods[0].uid}


def test_a_solution_keeps_pods_on_their_nodes_where_it_has_room_for_them() -> None:
    scheduler = scheduler_of(builders.nodes(3))
    pods = infos(scheduler, *builders.pods(3, cpu="1"))
    formulation = formulate(scheduler.cache, scheduler.profiles, pods, CpuMem())
    columns = {name: column for column, name in enumerate(formulation.problem.nodes)}
    solution = np.zeros((1, 3), np.int64)
    solution[0, [columns["node-1"], columns["node-2"]]] = 1
    before = {pods[0].uid: "node-0", pods[2].uid: "node-2"}
    placed = {pod.name: name for pod, name in formulation.assignments(solution, before)}
    assert placed == {"pod-2": "node-2", "pod-0": "node-1"}
    assert (formulation.solution({pods[0].uid: "node-1", pods[2].uid: "node-2"}) == solution).all()


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, ""),
        ({"volumes": [{"name": "token", "projected": {"sources": []}}]}, ""),  # the API server adds one to every pod
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "has volumes"),
        ({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, "has resource claims"),
    ],
)
def test_pods_with_volumes_and_claims_are_not_modelled(spec: dict[str, object], reason: str) -> None:
    scheduler = scheduler_of(builders.nodes(1))
    [pod] = infos(scheduler, builders.pod(spec=spec))
    assert why_not_modelled(scheduler.profiles["default-scheduler"], pod) == reason
