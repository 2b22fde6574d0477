"""Topology-aware placement: the table of Kueue's tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from contrib_tests.kueue.table_cases import TABLES, cases_of, parameters
from kubestow.api.core import Node
from kubestow.api.meta import convert
from kubestow_contrib.kueue.objects import PodSet, amount
from kubestow_contrib.kueue.topology import DomainUsage, FlavorTopology, PlacementRequest

Case = dict[str, Any]


@cache
def _nodes() -> list[list[dict[str, Any]]]:
    nodes: list[list[dict[str, Any]]] = json.loads((TABLES.folder / "topology.json").read_text())["nodes"]
    return nodes


def _topology(case: Case) -> FlavorTopology:
    wanted = case.get("nodeLabels", {})
    nodes = [
        convert(Node, one)
        for one in _nodes()[case.get("nodes", 0)]
        if not one.get("notReady") and not one.get("spec", {}).get("unschedulable")
    ]
    levels = case["levels"]
    nodes = [
        one
        for one in nodes
        if all(one.metadata.labels.get(name) == value for name, value in wanted.items())
        and all(level in one.metadata.labels for level in levels)
    ]
    return FlavorTopology("default", levels, nodes)


def _pod_set(one: dict[str, Any]) -> PodSet:
    spec = {"tolerations": one.get("tolerations", []), "nodeSelector": one.get("nodeSelector", {})}
    if "nodeAffinity" in one:
        spec["affinity"] = {"nodeAffinity": one["nodeAffinity"]}
    manifest = {"name": one["name"], "count": one["count"], "template": {"spec": spec}}
    request = dict(one.get("topologyRequest", {}))
    if "group" in one:
        request["podSetGroupName"] = one["group"]
    if request:
        manifest["topologyRequest"] = request
    return convert(PodSet, manifest)


#: Why cases differ, by a feature gate that they enable.
_ABSENT_GATES = {
    "TASBalancedPlacement": "balanced placement (alpha) is not there",
    "TASRespectNodeAffinityPreferred": "preferred node affinity (alpha) does not count",
    "ElasticJobsViaWorkloadSlicesWithTAS": "elastic jobs are not there",
    "SkipReassignmentForPodOwnedWorkloads": "failed nodes are not replaced",
}


def _different() -> Iterable[tuple[int, str]]:
    for case in cases_of("topology"):
        for gate, reason in _ABSENT_GATES.items():
            if case.get("gates", {}).get(gate):
                yield case["number"], reason
        if case.get("replaces"):
            yield case["number"], "failed nodes are not replaced"


@pytest.mark.parametrize("case", parameters("topology", dict(_different())))
def test_placement(case: Case) -> None:
    topology = _topology(case)
    for pod in case.get("pods", ()):
        if pod["status"]["phase"] not in ("Succeeded", "Failed"):
            requests: dict[str, int] = {}
            for container in pod["spec"]["containers"]:
                for name, quantity in container["resources"].get("requests", {}).items():
                    requests[name] = requests.get(name, 0) + amount(name, quantity)
            topology.occupy(pod["spec"]["nodeName"], requests)
    for used in (*case.get("priorFlavor", ()), *case.get("priorOwn", ())):
        topology.use(DomainUsage(tuple(used["values"]), used["requests"], used["count"]))
    requested = [
        PlacementRequest(_pod_set(one), one["count"], one["requests"], is_implied="topologyRequest" not in one)
        for one in case["podSets"]
    ]
    found = topology.place(requested)
    wanted = {
        one["name"]: None if one.get("fails") else [[tuple(values), count] for values, count in one.get("want", ())]
        for one in case["podSets"]
    }
    assert {
        name: placement.assignment and [[domain.values, domain.count] for domain in placement.assignment.domains]
        for name, placement in found.items()
    } == wanted
