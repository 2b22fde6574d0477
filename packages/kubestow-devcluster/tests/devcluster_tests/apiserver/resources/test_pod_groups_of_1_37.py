"""Pod groups, composite pod groups and workloads of Kubernetes 1.37: defaults and validation."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import Client
from kubestow.rules.minors import Minor
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.cluster import DevCluster

BETA = "/apis/scheduling.k8s.io/v1beta1/namespaces/default"
GROUPS, WORKLOADS = f"{BETA}/podgroups", f"{BETA}/workloads"
COMPOSITES = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/compositepodgroups"
REFERENCE = {"workloadName": "w", "templateName": "t"}
LEAF = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}


@pytest.fixture
def client() -> Client:
    return Client(DevCluster(nodes=1, apiserver=APIServerOptions(minor=Minor(37))))


def group(name: str = "g", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"basic": {}}} | spec}


def tree(depth: int) -> dict[str, Any]:
    """A composite template with this many levels below it, the leaves included."""
    below = {"podGroupTemplates": [LEAF]} if depth == 1 else {"compositePodGroupTemplates": [tree(depth - 1)]}
    return {"name": f"c{depth}", "schedulingPolicy": {"gang": {"minGroupCount": 1}}, **below}


async def test_groups_are_disrupted_pod_by_pod_by_default(client: Client) -> None:
    created = await client.post(GROUPS, group())
    assert created.json["spec"]["disruptionMode"] == {"single": {}}
    assert (await client.post(GROUPS, group("h", disruptionMode={"all": {}}))).json["spec"]["disruptionMode"] == {
        "all": {}
    }


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"disruptionMode": {}}, 'disruptionMode: Invalid value: "": must specify one of: `all`, `single`'),
        ({"disruptionMode": {"all": {}, "single": {}}}, "must specify exactly one of: `all`, `single`"),
        ({"workloadRef": {"workloadName": "w"}}, "spec.workloadRef.templateName: Required value"),
        ({"parentCompositePodGroupName": "c"}, "spec.workloadRef: Required value"),
        ({"resourceClaims": [{"name": f"c{n}", "resourceClaimName": "c"} for n in range(5)]}, "Too many: 5"),
    ],
)
async def test_the_fields_of_a_group_are_validated(client: Client, spec: dict[str, Any], problem: str) -> None:
    await client.post(WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [LEAF]}})
    rejected = await client.post(GROUPS, group(**spec))
    assert rejected.status == 422 and problem in rejected.message


async def test_only_the_min_count_of_a_group_may_change(client: Client) -> None:
    await client.post(GROUPS, group(schedulingPolicy={"gang": {"minCount": 3}}))
    changed = await client.patch(f"{GROUPS}/g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    assert (changed.status, changed.json["spec"]["schedulingPolicy"]) == (200, {"gang": {"minCount": 2}})
    changes: list[dict[str, Any]] = [
        {"schedulingPolicy": {"gang": None, "basic": {}}},
        {"disruptionMode": {"single": None, "all": {}}},
    ]
    for spec in changes:
        rejected = await client.patch(f"{GROUPS}/g", {"spec": spec})
        assert rejected.status == 422 and "field is immutable" in rejected.message
    assert (await client.patch(f"{GROUPS}/g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 0}}}})).status == 422


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, "must specify one of: `compositePodGroupTemplates`, `podGroupTemplates`"),
        ({"podGroupTemplates": [LEAF], "compositePodGroupTemplates": [tree(1)]}, "must specify exactly one of"),
        ({"compositePodGroupTemplates": [{**tree(1), "podGroupTemplates": []}]}, "must have at least one template"),
        ({"compositePodGroupTemplates": [tree(4)]}, "is deeper than 4"),
        ({"podGroupTemplates": [LEAF, LEAF]}, "podGroupTemplates[1].name: Duplicate value"),
    ],
)
async def test_the_templates_of_a_workload_are_validated(client: Client, spec: dict[str, Any], problem: str) -> None:
    rejected = await client.post(WORKLOADS, {"metadata": {"name": "w"}, "spec": spec})
    assert rejected.status == 422 and problem in rejected.message


async def test_the_tree_of_a_workload_has_up_to_four_levels(client: Client) -> None:
    new = {"metadata": {"name": "w"}, "spec": {"compositePodGroupTemplates": [tree(3)]}}
    assert (await client.post(WORKLOADS, new)).status == 201


async def test_a_composite_group_belongs_to_a_workload(client: Client) -> None:
    policy = {"gang": {"minGroupCount": 2}}
    rejected = await client.post(COMPOSITES, group("c", schedulingPolicy=policy))
    assert rejected.status == 422 and "spec.workloadRef: Required value" in rejected.message
    await client.post(WORKLOADS, {"metadata": {"name": "w"}, "spec": {"compositePodGroupTemplates": [tree(1)]}})
    created = await client.post(COMPOSITES, group("c", schedulingPolicy=policy, workloadRef=REFERENCE))
    assert created.status == 201
    assert created.json["spec"]["disruptionMode"] == {"single": {}}
    changed = await client.patch(f"{COMPOSITES}/c", {"spec": {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}})
    assert changed.status == 422 and "field is immutable" in changed.message
