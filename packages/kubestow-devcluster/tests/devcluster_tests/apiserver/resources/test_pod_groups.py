"""Pod groups of the three APIs: validation, status, admission and tables."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import PODS, Client, pod

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
WORKLOADS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads"
CUSTOM = {
    "coscheduling": "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups",
    "volcano": "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups",
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def group(**policy: Any) -> dict[str, Any]:
    return {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy}}


async def test_the_table_of_a_gang_has_its_size(client: Client) -> None:
    assert (await client.post(GROUPS, group(gang={"minCount": 3}))).status == 201
    (row,) = (await client.get(GROUPS, accept=TABLE)).json["rows"]
    assert row["cells"][:3] == ["g", "Gang (3)", "<unknown>"]


async def test_the_status_subresource_writes_only_the_status(client: Client) -> None:
    status = {"conditions": [{"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": "m"}]}
    created = await client.post(GROUPS, {**group(basic={}), "status": status})
    assert "status" not in created.json
    patched = await client.patch(f"{GROUPS}/g/status", {"status": status, "spec": None}, "strategic-merge-patch+json")
    assert patched.status == 200, patched.content
    assert patched.json["status"]["conditions"][0]["type"] == "PodGroupScheduled"
    assert patched.json["spec"] == {"schedulingPolicy": {"basic": {}}}


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ({}, 'spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`'),
        ({"basic": {}, "gang": {"minCount": 1}}, "must specify exactly one of: `basic`, `gang`"),
        ({"gang": {"minCount": 0}}, "minCount: Invalid value: 0: must be greater than or equal to 1"),
    ],
)
async def test_a_group_has_exactly_one_policy(client: Client, policy: dict[str, Any], problem: str) -> None:
    rejected = await client.post(GROUPS, group(**policy))
    assert rejected.status == 422 and problem in rejected.message


async def test_the_policy_of_a_group_is_immutable(client: Client) -> None:
    await client.post(GROUPS, group(gang={"minCount": 3}))
    rejected = await client.patch(f"{GROUPS}/g", {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    assert rejected.status == 422 and "field is immutable" in rejected.message


async def test_the_workload_of_a_group_must_exist(client: Client) -> None:
    new = group(gang={"minCount": 2})
    new["spec"]["podGroupTemplateRef"] = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    assert (await client.post(GROUPS, new)).status == 403
    template = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}
    assert (
        await client.post(WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template]}})
    ).status == 201
    assert (await client.post(GROUPS, new)).status == 201


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            "Too many: 2: must have at most 1 items",
        ),
        ({"schedulingConstraints": {"topology": [{}]}}, "schedulingConstraints.topology[0].key: Required value"),
        ({"schedulingConstraints": {"topology": [{"key": "a b"}]}}, 'topology[0].key: Invalid value: "a b"'),
        ({"disruptionMode": "Node"}, 'disruptionMode: Unsupported value: "Node": supported values: "Pod", "PodGroup"'),
    ],
)
async def test_constraints_and_disruption_mode_are_validated(
    client: Client, fields: dict[str, Any], problem: str
) -> None:
    new = group(basic={})
    new["spec"] |= fields
    rejected = await client.post(GROUPS, new)
    assert rejected.status == 422 and problem in rejected.message
    template = {"name": "t", "schedulingPolicy": {"basic": {}}} | fields
    rejected = await client.post(WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template]}})
    assert rejected.status == 422 and problem in rejected.message


async def test_a_group_gets_the_priority_of_its_class(client: Client) -> None:
    await client.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 100})
    new = group(basic={})
    new["spec"]["priorityClassName"] = "high"
    assert (await client.post(GROUPS, new)).json["spec"]["priority"] == 100
    new["metadata"]["name"] = "other"
    new["spec"]["priority"] = 7
    assert "the integer value of priority (7) must not be provided" in (await client.post(GROUPS, new)).message
    new["spec"]["priorityClassName"] = "none"
    assert "no PriorityClass with name none was found" in (await client.post(GROUPS, new)).message


async def test_the_templates_of_a_workload_have_unique_names(client: Client) -> None:
    template = {"name": "t", "schedulingPolicy": {"basic": {}}}
    new = {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template, template]}}
    assert 'podGroupTemplates[1].name: Duplicate value: "t"' in (await client.post(WORKLOADS, new)).message
    assert (await client.post(WORKLOADS, {"metadata": {"name": "w"}})).status == 422


async def test_the_group_of_a_pod_is_immutable(client: Client) -> None:
    created = await client.post(PODS, pod(schedulingGroup={"podGroupName": "g"}))
    assert created.json["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    moved = {"spec": {"schedulingGroup": {"podGroupName": "other"}}}
    assert (await client.patch(f"{PODS}/p", moved)).status == 422
    assert (await client.post(PODS, pod("q", schedulingGroup={"podGroupName": "No!"}))).status == 422


@pytest.mark.parametrize(
    ("name", "subresource"), [("coscheduling", "/status"), ("volcano", "")], ids=["subresource", "without subresource"]
)
async def test_custom_groups_have_a_status(client: Client, name: str, subresource: str) -> None:
    """In Volcano's CustomResourceDefinition it is a field like any other."""
    path = CUSTOM[name]
    new = {"metadata": {"name": "g"}, "spec": {"minMember": 3, "queue": "q"}, "status": {"phase": "Mine"}}
    assert "status" not in (await client.post(path, new)).json
    assert (await client.patch(f"{path}/g/status", {"status": {}})).status == (200 if subresource else 404)
    await client.patch(f"{path}/g{subresource}", {"status": {"phase": "Running", "running": 3}})
    (row,) = (await client.get(path, accept=TABLE)).json["rows"]
    assert row["cells"][:4] == ["g", "Running", 3, 3]


@pytest.mark.parametrize("minimum", [0, "three", None])
@pytest.mark.parametrize("path", CUSTOM.values(), ids=CUSTOM.keys())
async def test_the_min_member_of_custom_groups_is_validated(client: Client, path: str, minimum: Any) -> None:
    rejected = await client.post(path, {"metadata": {"name": "g"}, "spec": {"minMember": minimum}})
    assert rejected.status == 422 and "minMember" in rejected.message


async def test_queues_of_volcano(client: Client) -> None:
    queues = "/apis/scheduling.volcano.sh/v1beta1/queues"
    new = {"metadata": {"name": "q"}, "spec": {"weight": 2, "parent": "root"}, "status": {"state": "Closed"}}
    created = await client.post(queues, new)
    assert created.status == 201, created.content
    assert "status" not in created.json
    (row,) = (await client.get(queues, accept=TABLE)).json["rows"]
    assert row["cells"] == ["q", "root"]
    for weight in (0, 65536, "1"):
        rejected = await client.patch(f"{queues}/q", {"spec": {"weight": weight}})
        assert rejected.status == 422
        assert "spec.weight" in rejected.message
    closed = await client.patch(f"{queues}/q/status", {"status": {"state": "Closed"}})
    assert closed.json["status"] == {"state": "Closed"}
