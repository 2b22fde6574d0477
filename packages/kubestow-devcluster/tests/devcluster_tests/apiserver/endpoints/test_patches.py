"""The four patch types, as requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from devcluster_tests.client import NODES, PODS, Client, node, pod

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def apply(client: Client, path: str, config: dict[str, Any], manager: str, *, force: bool = False) -> Any:
    query = f"?fieldManager={manager}" + ("&force=true" if force else "")
    return await client.patch(path + query, config, "apply-patch+yaml")


def deployment(replicas: int | None, **labels: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"selector": {"matchLabels": {"a": "b"}}}
    spec["template"] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": labels}, "spec": spec}


async def test_apply_conflicts_with_another_manager_unless_forced(client: Client) -> None:
    assert (await apply(client, f"{DEPLOYMENTS}/d", deployment(1), "one")).status == 201
    rejected = await apply(client, f"{DEPLOYMENTS}/d", deployment(2), "two")
    assert (rejected.status, rejected.message) == (
        409,
        'Apply failed with 1 conflict: conflict with "one": .spec.replicas',
    )
    forced = await apply(client, f"{DEPLOYMENTS}/d", deployment(2), "two", force=True)
    assert forced.json["spec"]["replicas"] == 2


async def test_a_field_that_is_no_longer_applied_is_removed_unless_another_manager_owns_it(client: Client) -> None:
    await apply(client, f"{DEPLOYMENTS}/d", deployment(3, mine="1", ours="2"), "one")
    await apply(client, f"{DEPLOYMENTS}/d", deployment(3, ours="2"), "two")
    applied = (await apply(client, f"{DEPLOYMENTS}/d", deployment(None), "one")).json
    assert applied["metadata"]["labels"] == {"ours": "2"}
    assert applied["spec"]["replicas"] == 3


async def test_an_update_takes_ownership_of_the_fields_it_changes(client: Client) -> None:
    await apply(client, f"{DEPLOYMENTS}/d", deployment(1), "one")
    await client.patch(f"{DEPLOYMENTS}/d/scale?fieldManager=scaler", {"spec": {"replicas": 5}})
    managed = (await client.get(f"{DEPLOYMENTS}/d")).json["metadata"]["managedFields"]
    fields = {entry["manager"]: entry["fieldsV1"]["f:spec"] for entry in managed}
    assert "f:replicas" in fields["scaler"] and "f:replicas" not in fields["one"]


async def test_a_strategic_merge_patch_replaces_the_taints_of_a_node(client: Client) -> None:
    taints = [{"key": "k1", "effect": "NoExecute"}, {"key": "k2", "effect": "NoExecute"}]
    await client.post(NODES, node("n"))
    for remaining in (taints, taints[:1], []):
        patch = {"spec": {"taints": remaining}}
        spec = (await client.patch(f"{NODES}/n", patch, "strategic-merge-patch+json")).json["spec"]
        assert spec.get("taints", []) == remaining


async def test_a_strategic_merge_patch_replaces_the_selector_of_a_disruption_budget(client: Client) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web", "tier": "front"}}}
    await client.post(budgets, {"metadata": {"name": "b"}, "spec": spec})
    patch = {"spec": {"selector": {"matchLabels": {"app": "db"}}}}
    patched = await client.patch(f"{budgets}/b", patch, "strategic-merge-patch+json")
    assert patched.json["spec"]["selector"] == {"matchLabels": {"app": "db"}}


async def test_a_patch_can_change_the_image_of_a_pod_but_not_its_node_selector(client: Client) -> None:
    await client.post(PODS, pod("p"))
    rejected = await client.patch(f"{PODS}/p", {"spec": {"nodeSelector": {"a": "b"}}})
    assert rejected.status == 422
    accepted = await client.patch(
        f"{PODS}/p", {"spec": {"containers": [{"name": "c", "image": "y"}]}}, "strategic-merge-patch+json"
    )
    assert accepted.json["spec"]["containers"][0]["image"] == "y"


SERVICES = "/api/v1/namespaces/default/services"


async def test_an_applied_list_item_goes_whole_with_its_defaults(client: Client) -> None:
    ports = [{"name": "a", "port": 80, "targetPort": 80}, {"name": "b", "port": 81, "targetPort": 81}]
    for applied in (ports, ports[:1]):
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": applied}}
        response = await apply(client, f"{SERVICES}/s", service, "one")
        assert response.status in (200, 201)
        assert [port["port"] for port in response.json["spec"]["ports"]] == [port["port"] for port in applied]


async def test_applied_containers_ports_and_volumes_are_removed(client: Client) -> None:
    def config(**spec: Any) -> dict[str, Any]:
        applied = deployment(1)
        applied["spec"]["template"]["spec"] |= spec
        return applied

    ports = [{"containerPort": 80}, {"containerPort": 81, "name": "b"}]
    first, second = {"name": "c", "image": "x", "ports": ports}, {"name": "d", "image": "y"}
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/w"}}]
    assert (
        await apply(client, f"{DEPLOYMENTS}/d", config(containers=[first, second], volumes=volumes), "one")
    ).status == 201
    remaining = [{**first, "ports": ports[:1]}]
    response = await apply(client, f"{DEPLOYMENTS}/d", config(containers=remaining, volumes=volumes[:1]), "one")
    assert response.status == 200, response.json
    spec = response.json["spec"]["template"]["spec"]
    assert [container["name"] for container in spec["containers"]] == ["c"]
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert [volume["name"] for volume in spec["volumes"]] == ["v"]


async def test_an_item_whose_last_owner_drops_it_goes_with_the_fields_of_others(client: Client) -> None:
    def config(*names: str) -> dict[str, Any]:
        applied = deployment(1)
        applied["spec"]["template"]["spec"]["containers"] = [{"name": name, "image": "x"} for name in names]
        return applied

    await apply(client, f"{DEPLOYMENTS}/d", config("c", "d"), "one")
    image = {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "other"}]}}}}
    await client.patch(f"{DEPLOYMENTS}/d?fieldManager=two", image, "strategic-merge-patch+json")
    response = await apply(client, f"{DEPLOYMENTS}/d", config("c"), "one")
    assert [container["name"] for container in response.json["spec"]["template"]["spec"]["containers"]] == ["c"]
    assert [entry["manager"] for entry in response.json["metadata"]["managedFields"]] == ["one"]


async def test_an_item_that_another_manager_applies_remains_with_what_it_applies(client: Client) -> None:
    def config(**container: Any) -> dict[str, Any]:
        applied = deployment(1)
        applied["spec"]["template"]["spec"]["containers"] = [{"name": "c", "image": "x"}, container][
            : 1 + bool(container)
        ]
        return applied

    await apply(client, f"{DEPLOYMENTS}/d", config(name="d", image="y", workingDir="/"), "one")
    await apply(client, f"{DEPLOYMENTS}/d", config(name="d", image="y"), "two")
    response = await apply(client, f"{DEPLOYMENTS}/d", config(), "one")
    _, kept = response.json["spec"]["template"]["spec"]["containers"]
    assert (kept["name"], kept["image"], kept.get("workingDir")) == ("d", "y", None)


async def test_the_last_owner_of_all_labels_can_drop_them(client: Client) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}}
    path = "/api/v1/namespaces/default/configmaps/m"
    await apply(client, path, {**config, "metadata": {"name": "m", "labels": {"a": "b"}}}, "one")
    response = await apply(client, path, config, "one")
    assert response.status == 200
    assert "labels" not in response.json["metadata"]


async def test_fields_are_written_in_order(client: Client) -> None:
    ports = [{"port": port, "name": f"p{port}"} for port in (443, 80)]
    config = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"type": "NodePort", "ports": ports},
    }
    applied = (await apply(client, f"{SERVICES}/s", config, "one")).json
    spec = applied["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]
    assert list(spec) == ["f:ports", "f:type"]
    assert list(spec["f:ports"]) == [f'k:{{"port":{port},"protocol":"TCP"}}' for port in (80, 443)]


async def test_malformed_managed_fields_of_a_client_do_no_harm(client: Client) -> None:
    fields: dict[str, Any] = {"f:data": {"k:{": {}, "k:[1]": {}, "v:null": {}, "v:1": {}}}
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    path = "/api/v1/namespaces/default/configmaps"
    await client.post(path, {"metadata": {"name": "m"}})
    await client.patch(f"{path}/m?fieldManager=other", {"metadata": {"managedFields": [entry]}})
    assert (await client.patch(f"{path}/m?fieldManager=m", {"data": {"a": "b"}})).status == 200


async def test_a_single_empty_entry_removes_all_managed_fields(client: Client) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    await client.post(path, {"metadata": {"name": "m"}, "data": {"a": "b"}})
    stripped = await client.patch(f"{path}/m?fieldManager=m", {"metadata": {"managedFields": [{}]}})
    assert (stripped.status, stripped.json["metadata"].get("managedFields")) == (200, None)
    assert (await client.patch(f"{path}/m?fieldManager=m", {"data": {"a": "c"}})).status == 200


@pytest.mark.parametrize(
    "change",
    [
        {"operation": "Remove"},
        {"apiVersion": ""},
        {"fieldsType": ""},
        {"fieldsV1": {"f:data": "a"}},
    ],
)
async def test_invalid_managed_fields_of_a_client_are_ignored(client: Client, change: dict[str, Any]) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    created = (await client.post(f"{path}?fieldManager=m", {"metadata": {"name": "m"}, "data": {"a": "b"}})).json
    (entry,) = created["metadata"]["managedFields"]
    metadata = {"managedFields": [{**entry, "manager": "x", **change}], "labels": {"a": "b"}}
    patched = await client.patch(f"{path}/m?fieldManager=other", {"metadata": metadata})
    assert patched.status == 200, patched.content
    assert [one["manager"] for one in patched.json["metadata"]["managedFields"]] == ["m", "other"]


async def test_a_subresource_does_not_write_managed_fields(client: Client) -> None:
    created = (await client.post(f"{PODS}?fieldManager=m", pod())).json
    container = {"name": "debug", "image": "x", "terminationMessagePolicy": "File"}
    changed = {**created, "metadata": {**created["metadata"], "managedFields": [{}]}}
    changed["spec"] = {**created["spec"], "ephemeralContainers": [container]}
    written = await client.put(f"{PODS}/p/ephemeralcontainers?fieldManager=other", changed)
    assert written.status == 200, written.content
    assert [one["manager"] for one in written.json["metadata"]["managedFields"]] == ["m", "other"]


async def test_an_entry_of_managed_fields_needs_no_manager(client: Client) -> None:
    entry = {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}
    path = "/api/v1/namespaces/default/configmaps"
    await client.post(path, {"metadata": {"name": "m"}, "data": {"a": "b"}})
    for metadata in ({"managedFields": [entry]}, {"labels": {"a": "b"}}):
        patched = await client.patch(f"{path}/m?fieldManager=m", {"metadata": metadata})
        assert patched.status == 200, patched.content
    assert [one.get("manager") for one in patched.json["metadata"]["managedFields"]] == [None, "m"]


STRATEGIC = "strategic-merge-patch+json"


@pytest.mark.parametrize(
    ("patch", "value", "problem"),
    [
        ({"spec": {"replicas": "x"}}, "map[spec:map[replicas:x]]", "unrecognized type: int32"),
        ({"spec": {"selector": [1]}}, "map[spec:map[selector:[1]]]", "cannot restore struct from: slice"),
        (
            {"spec": {"template": {"spec": {"containers": "y"}}}},
            "map[spec:map[template:map[spec:map[containers:y]]]]",
            "cannot restore slice from string",
        ),
        (
            {"z": None, "y": [True, 1.5, "s"]},
            "map[y:[true 1.5 s] z:<nil>]",
            'strict decoding error: unknown field "y"',
        ),
    ],
)
async def test_a_strategic_merge_patch_that_does_not_fit_is_shown_in_the_error(
    client: Client, patch: dict[str, Any], value: str, problem: str
) -> None:
    """As kube-apiserver 1.36.2 responds."""
    await client.post(DEPLOYMENTS, deployment(1))
    rejected = await client.patch(f"{DEPLOYMENTS}/d?fieldValidation=Strict", patch, STRATEGIC)
    assert (rejected.status, rejected.message) == (422, f' "" is invalid: patch: Invalid value: "{value}": {problem}')
    cause = {"reason": "FieldValueInvalid", "message": f'Invalid value: "{value}": {problem}', "field": "patch"}
    assert rejected.json["details"] == {"causes": [cause]}


@pytest.mark.parametrize(
    ("patch_type", "patch", "problem"),
    [
        (
            "merge-patch+json",
            {"spec": {"replicas": "x"}},
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "json-patch+json",
            [{"op": "add", "path": "/spec/zz", "value": 1}],
            'strict decoding error: unknown field "spec.zz"',
        ),
    ],
)
async def test_another_patch_that_does_not_fit_is_rejected_with_its_result(
    client: Client, patch_type: str, patch: Any, problem: str
) -> None:
    await client.post(DEPLOYMENTS, deployment(1))
    rejected = await client.patch(f"{DEPLOYMENTS}/d?fieldValidation=Strict", patch, patch_type)
    assert (rejected.status, rejected.json["reason"]) == (422, "Invalid")
    assert rejected.message.startswith(' "" is invalid: patch: Invalid value: "{\\"kind\\":\\"Deployment\\"')
    assert rejected.message.endswith(f'": {problem}')


@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
async def test_the_scale_of_a_workload_is_a_table_too(client: Client, include: str) -> None:
    await client.post(DEPLOYMENTS, deployment(3))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    found = (await client.get(f"{DEPLOYMENTS}/d/scale?includeObject={include}", accept=accept)).json
    assert [column["name"] for column in found["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    [row] = found["rows"]
    assert row["cells"][:3] == ["d", 3, 0]
    kind = {"None": None, "Metadata": "PartialObjectMetadata", "Object": "Scale"}[include]
    assert (row["object"] and row["object"]["kind"]) == kind
    metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    assert (await client.get(f"{DEPLOYMENTS}/d/scale", accept=metadata)).json["metadata"]["name"] == "d"


async def test_a_change_of_the_annotations_is_a_new_generation_of_a_deployment_only(client: Client) -> None:
    await client.post(DEPLOYMENTS, deployment(1))
    annotated = (await client.patch(f"{DEPLOYMENTS}/d", {"metadata": {"annotations": {"a": "b"}}})).json
    assert annotated["metadata"]["generation"] == 2
    in_status = {"metadata": {"annotations": {"a": "c"}}}
    assert (await client.patch(f"{DEPLOYMENTS}/d/status", in_status)).json["metadata"]["generation"] == 2
    replica_sets = DEPLOYMENTS.replace("deployments", "replicasets")
    await client.post(replica_sets, deployment(1) | {"kind": "ReplicaSet"})
    annotated = (await client.patch(f"{replica_sets}/d", {"metadata": {"annotations": {"a": "b"}}})).json
    assert annotated["metadata"]["generation"] == 1


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


async def applied_by_client(client: Client, last: dict[str, Any] | str, **data: str) -> None:
    """A config map as `kubectl apply` creates it, with ``last`` in the annotation."""
    text = last if isinstance(last, str) else json.dumps(last)
    new = {"metadata": {"name": "m", "annotations": {LAST_APPLIED: text}}, "data": data}
    created = await client.post(f"{CONFIG_MAPS}?fieldManager=kubectl-client-side-apply", new)
    assert created.status == 201


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "default"}, "data": data}


async def test_kubectl_may_change_by_the_server_what_it_applied_by_the_client(client: Client) -> None:
    await applied_by_client(client, config_map(a="1", b="<2>"), a="1", b="<2>")
    applied = await apply(client, f"{CONFIG_MAPS}/m", config_map(b="<2>", a="3"), "kubectl")
    assert (applied.status, applied.json["data"]) == (200, {"a": "3", "b": "<2>"})
    # As Go's encoder writes it: keys in order, characters of HTML escaped, and a line feed at the end.
    assert applied.json["metadata"]["annotations"][LAST_APPLIED] == (
        r'{"apiVersion":"v1","data":{"a":"3","b":"\u003c2\u003e"},"kind":"ConfigMap",'
        '"metadata":{"name":"m","namespace":"default"}}\n'
    )
    again = await apply(client, f"{CONFIG_MAPS}/m", config_map(b="<2>", a="3"), "kubectl")
    assert again.json == applied.json


@pytest.mark.parametrize(
    ("manager", "last"),
    [
        ("kubectl", config_map(a="0", b="2")),  # another client has changed a since
        ("kubectl", config_map(b="2")),
        ("kubectl", {**config_map(a="1"), "apiVersion": "v2"}),
        ("kubectl", {**config_map(a="1"), "data": {"a": 1}}),
        ("kubectl", {**config_map(a="1"), "metadata": []}),
        ("kubectl", "{"),
        ("kubectl", "1"),
        ("kubectl", ""),
        ("argocd", config_map(a="1", b="2")),
    ],
)
async def test_other_fields_and_other_managers_conflict_with_client_side_apply(
    client: Client, manager: str, last: dict[str, Any] | str
) -> None:
    await applied_by_client(client, last, a="1", b="2")
    rejected = await apply(client, f"{CONFIG_MAPS}/m", config_map(a="3"), manager)
    assert (rejected.status, rejected.message) == (
        409,
        'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.a',
    )


async def test_an_annotation_of_client_side_apply_is_kept_up_to_date_by_kubectl_alone(client: Client) -> None:
    await apply(client, f"{CONFIG_MAPS}/m", config_map(a="1"), "kubectl")
    assert "annotations" not in (await client.get(f"{CONFIG_MAPS}/m")).json["metadata"]
    await client.delete(f"{CONFIG_MAPS}/m")
    await applied_by_client(client, "{}", a="1")
    other = (await apply(client, f"{CONFIG_MAPS}/m", config_map(b="1"), "argocd")).json
    assert other["metadata"]["annotations"] == {LAST_APPLIED: "{}"}
    too_long = config_map(c="x" * 2**18)
    applied = (await apply(client, f"{CONFIG_MAPS}/m", too_long, "kubectl")).json
    assert LAST_APPLIED not in applied["metadata"].get("annotations", {})
