"""Create, update and delete: defaulting, validation, generation, finalizers and graceful deletion."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from devcluster_tests.client import NODES, PODS, Client, node, pod
from kubestow_devcluster.cluster import DevCluster

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


async def test_requests_default_to_limits(client: Client) -> None:
    new = pod()
    new["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi"}}
    created = (await client.post(PODS, new)).json
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert created["status"]["qosClass"] == "Guaranteed"


async def test_pod_level_requests_default_to_those_of_the_containers_and_to_limits(client: Client) -> None:
    new = pod()
    new["spec"]["resources"] = {"limits": {"cpu": "2", "memory": "1Gi"}}
    new["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1500m"}}
    created = (await client.post(PODS, new)).json
    assert created["spec"]["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi"}
    assert created["status"]["qosClass"] == "Burstable"
    new = pod("guaranteed")
    del new["spec"]["containers"][0]["resources"]
    new["spec"]["resources"] = {"limits": {"cpu": "2", "memory": "1Gi"}}
    created = (await client.post(PODS, new)).json
    assert created["spec"]["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
    assert created["status"]["qosClass"] == "Guaranteed"


async def test_label_keys_of_affinity_terms_become_part_of_their_selectors(client: Client) -> None:
    new = pod()
    new["metadata"]["labels"] = {"app": "web", "revision": "2"}
    term = {"topologyKey": "zone", "matchLabelKeys": ["revision", "absent"], "mismatchLabelKeys": ["app"]}
    required = [{**term, "labelSelector": {"matchLabels": {"tier": "front"}}}, {"topologyKey": "zone"}]
    new["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    created = (await client.post(PODS, new)).json
    first, second = created["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert first["labelSelector"] == {
        "matchLabels": {"tier": "front"},
        "matchExpressions": [
            {"key": "revision", "operator": "In", "values": ["2"]},
            {"key": "app", "operator": "NotIn", "values": ["web"]},
        ],
    }
    assert "labelSelector" not in second


async def test_a_priority_class_sets_the_priority(client: Client) -> None:
    await client.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 7})
    created = (await client.post(PODS, pod(priorityClassName="high"))).json
    assert created["spec"]["priority"] == 7
    assert (await client.post(PODS, pod("q", priorityClassName="system-node-critical"))).json["spec"][
        "priority"
    ] == 2000001000


async def test_quantities_can_be_numbers(client: Client) -> None:
    new = pod()
    new["spec"]["containers"][0]["resources"]["requests"] = {"cpu": 2, "memory": 1.5}
    created = (await client.post(PODS, new)).json
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "1500m"}


async def test_a_volume_limit_of_zero_is_stored(client: Client) -> None:
    driver = {"name": "example.com", "nodeID": "n", "topologyKeys": [], "allocatable": {"count": 0}}
    new = {"metadata": {"name": "n"}, "spec": {"drivers": [driver]}}
    created = (await client.post("/apis/storage.k8s.io/v1/csinodes", new)).json
    assert created["spec"]["drivers"][0]["allocatable"] == {"count": 0}


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"tolerations": [{"key": "a", "operator": "Maybe"}]}, "spec.tolerations[0].operator: Unsupported value"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy: Unsupported value"),
        ({"nodeSelector": {"a b": "c"}}, "spec.nodeSelector: Invalid value"),
        ({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z"}]}, "maxSkew: Invalid value"),
    ],
)
async def test_an_invalid_spec_is_rejected_with_the_path_of_the_field(
    client: Client, spec: dict[str, Any], error: str
) -> None:
    rejected = await client.post(PODS, pod(**spec) | ({"spec": spec} if "containers" in spec else {}))
    assert rejected.status == 422
    assert error in rejected.message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"spec": {"containers": "c"}},
            "cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"metadata": {"labels": {"a": 1}}},
            "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            {"spec": {"containers": [{"name": "c", "image": True}]}},
            "Go struct field Container.spec.containers.image of type string",
        ),
    ],
)
async def test_a_wrong_type_is_rejected_with_the_path_of_the_field(
    client: Client, change: dict[str, object], expected: str
) -> None:
    rejected = await client.post(PODS, {**pod(), **change})
    assert rejected.status == 400
    assert expected in rejected.message


async def test_an_outdated_update_conflicts(client: Client) -> None:
    created = (await client.post(NODES, node("n"))).json
    await client.patch(f"{NODES}/n", {"metadata": {"labels": {"a": "b"}}})
    assert (await client.put(f"{NODES}/n", created)).status == 409
    assert (await client.get(f"{NODES}/n")).json["metadata"]["labels"] == {"a": "b"}


async def test_an_update_without_changes_is_not_a_write(client: Client) -> None:
    created = (await client.post(NODES, node("n"))).json
    again = await client.put(f"{NODES}/n", created)
    assert again.json["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_only_spec_changes_increment_the_generation(client: Client) -> None:
    await client.post(PODS, pod("p", schedulingGates=[{"name": "g"}]))
    labelled = await client.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    ungated = await client.patch(f"{PODS}/p", {"spec": {"schedulingGates": None}})
    assert (labelled.json["metadata"]["generation"], ungated.json["metadata"]["generation"]) == (1, 2)


async def test_an_object_is_deleted_when_its_last_finalizer_is_removed(client: Client) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    await client.post(path, {"metadata": {"name": "c", "finalizers": ["example.com/hold"]}})
    assert "deletionTimestamp" in (await client.delete(f"{path}/c")).json["metadata"]
    await client.patch(f"{path}/c", {"metadata": {"finalizers": None}})
    assert (await client.get(f"{path}/c")).status == 404


async def test_a_bound_pod_is_deleted_after_its_grace_period(client: Client) -> None:
    await client.post(PODS, pod("p", nodeName="n"))
    metadata = (await client.delete(f"{PODS}/p")).json["metadata"]
    assert (metadata["deletionGracePeriodSeconds"], metadata["deletionTimestamp"]) == (30, "2026-11-20T19:20:30Z")
    await client.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert (await client.get(f"{PODS}/p")).status == 404


async def test_a_dry_run_does_not_write(client: Client) -> None:
    version = client.server.store.resource_version
    assert (await client.post(f"{PODS}?dryRun=All", pod())).status == 201
    assert client.server.store.resource_version == version
    assert (await client.get(f"{PODS}/p")).status == 404


@pytest.mark.parametrize("path", [f"{PODS}/p", PODS])
async def test_a_dry_run_in_the_body_of_a_delete_deletes_nothing(client: Client, path: str) -> None:
    await client.post(PODS, pod())
    version = client.server.store.resource_version
    assert (await client.delete(path, {"dryRun": ["All"]})).status == 200
    rejected = await client.delete(path, {"dryRun": ["All", "Some"]})
    assert rejected.status == 422 and 'dryRun: Unsupported value: ["All","Some"]' in rejected.message
    assert client.server.store.resource_version == version


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
@pytest.mark.parametrize("dry_run", [[], ["All"]])
async def test_an_eviction_has_the_preconditions_of_its_delete(client: Client, field: str, dry_run: list[str]) -> None:
    await client.post(PODS, pod())
    before = (await client.get(f"{PODS}/p")).json

    async def evict(value: str) -> int:
        body = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {field: value}, "dryRun": dry_run}}
        return (await client.post(f"{PODS}/p/eviction", body)).status

    assert await evict("1") == 409
    assert (await client.get(f"{PODS}/p")).json == before, "another pod of this name is not marked as evicted"
    assert await evict(before["metadata"][field]) == 201


async def test_binding_a_bound_pod_conflicts(client: Client) -> None:
    await client.post(PODS, pod("p"))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert (await client.post(f"{PODS}/p/binding", binding)).status == 201
    assert (await client.post(f"{PODS}/p/binding", binding)).status == 409


async def test_a_bound_pod_has_no_nominated_node_name(client: Client) -> None:
    await client.post(PODS, pod())
    await client.patch(f"{PODS}/p/status", {"status": {"nominatedNodeName": "n"}})
    await client.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    assert "nominatedNodeName" not in (await client.get(f"{PODS}/p")).json["status"]


async def test_a_bound_pod_gets_the_topology_labels_of_its_node(client: Client) -> None:
    await client.post(NODES, node("n", **{"topology.kubernetes.io/zone": "z"}))
    await client.post(PODS, pod("p"))
    await client.post(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    assert (await client.get(f"{PODS}/p")).json["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z"}


async def test_an_update_creates_a_missing_lease(client: Client) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}
    created = await client.put(f"{LEASES}/l", lease)
    assert created.status == 201
    assert (await client.put(f"{LEASES}/l", lease)).status == 422, (
        "an update of an existing lease needs a resourceVersion"
    )


async def test_delete_collection_uses_the_selector(client: Client) -> None:
    for name in ("a", "b", "c"):
        await client.post(PODS, pod(name, labels={"app": name}))
    await client.delete(f"{PODS}?labelSelector=app%20in%20(a,b)")
    assert [item["metadata"]["name"] for item in (await client.get(PODS)).json["items"]] == ["c"]


async def test_an_update_with_the_resource_version_0_is_unconditional(client: Client) -> None:
    config_maps = "/api/v1/namespaces/default/configmaps"
    new = {"metadata": {"name": "m", "resourceVersion": "0"}, "data": {"a": "1"}}
    assert (await client.post(config_maps, new)).status == 201
    for value in ("2", "3"):
        response = await client.put(f"{config_maps}/m", {**new, "data": {"a": value}})
        assert (response.status, response.json["data"]) == (200, {"a": value})
    lease = {"metadata": {"name": "l", "resourceVersion": "0"}, "spec": {"holderIdentity": "x"}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    await client.post(leases, lease)
    rejected = await client.put(f"{leases}/l", lease)
    assert (rejected.status, "must be specified for an update" in rejected.message) == (422, True)


async def test_a_generated_name_that_is_taken_is_generated_again() -> None:
    class RepeatedChoices(Random):
        """Makes the first suffix twice."""

        letters = iter("bbbbbbbbbbccccc")

        def choice(self, seq: Any) -> Any:
            return next(self.letters)

    client = Client(DevCluster(kubelets=False, random=RepeatedChoices(7)))
    created = [(await client.post(PODS, {**pod(), "metadata": {"generateName": "p-"}})).json for _ in range(2)]
    assert [one["metadata"]["name"] for one in created] == ["p-bbbbb", "p-ccccc"]


async def test_string_data_of_a_secret_becomes_data(client: Client) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    texts = {"metadata": {"name": "s"}, "data": {"a": "YQ==", "b": "Yg=="}, "stringData": {"b": "new", "c": "ü"}}
    created = (await client.post(secrets, texts)).json
    assert created["data"] == {"a": "YQ==", "b": "bmV3", "c": "w7w="} and "stringData" not in created
    patched = (await client.patch(f"{secrets}/s", {"stringData": {"a": "z"}})).json
    assert patched["data"] == {"a": "eg==", "b": "bmV3", "c": "w7w="} and "stringData" not in patched
    applied = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t"}, "stringData": {"a": "z"}}
    stored = (await client.patch(f"{secrets}/t?fieldManager=m", applied, "apply-patch+yaml")).json
    assert stored["data"] == {"a": "eg=="} and "stringData" not in stored
    assert (await client.post(secrets, {"metadata": {"name": "x"}, "stringData": {"a/b": "z"}})).status == 422


async def test_the_type_of_a_host_path_volume_is_empty_by_default(client: Client) -> None:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    created = await client.post("/api/v1/persistentvolumes", {"metadata": {"name": "v"}, "spec": spec})
    assert created.json["spec"]["hostPath"] == {"path": "/x", "type": ""}


@pytest.mark.parametrize("template", [{}, {"labels": {"a": "b"}}])
async def test_a_job_without_labels_has_those_of_its_pods(client: Client, template: dict[str, Any]) -> None:
    spec = {"template": {"metadata": template, "spec": pod()["spec"] | {"restartPolicy": "Never"}}}
    created = (
        await client.post("/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "j"}, "spec": spec})
    ).json
    assert created["metadata"]["labels"] == created["spec"]["template"]["metadata"]["labels"]
    assert created["metadata"]["labels"]["job-name"] == "j"


async def test_warnings_of_decoding_come_with_a_failure_too(client: Client) -> None:
    await client.post(PODS, pod())
    new = pod()
    new["spec"]["replica"] = 1
    rejected = await client.post(f"{PODS}?fieldValidation=Warn", new)
    assert (rejected.status, rejected.json["reason"]) == (409, "AlreadyExists")
    assert rejected.headers["Warning"] == '299 - "unknown field \\"spec.replica\\""'


_PATH = "spec.selector.matchExpressions[0]"


@pytest.mark.parametrize(
    ("plural", "second"),
    [
        ("deployments", ": invalid label selector"),
        ("replicasets", ": invalid label selector"),
        ("statefulsets", ""),
        ("daemonsets", None),
    ],
)
@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        (
            {"key": "a", "operator": "Foo", "values": ["b"]},
            f'{_PATH}.operator: Invalid value: "Foo": not a valid selector operator',
        ),
        (
            {"key": "a", "operator": "In"},
            f"{_PATH}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            {"key": "a", "operator": "Exists", "values": ["b"]},
            f"{_PATH}.values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
    ],
)
async def test_a_malformed_selector_of_a_workload_is_rejected(
    client: Client, plural: str, second: str | None, requirement: dict[str, Any], problem: str
) -> None:
    """As kube-apiserver 1.36.2 responds."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchExpressions": [requirement]}, "template": template}
    rejected = await client.post(
        f"/apis/apps/v1/namespaces/default/{plural}", {"metadata": {"name": "w"}, "spec": spec}
    )
    value = json.dumps(spec["selector"], separators=(",", ":"))
    problems = problem if second is None else f"[{problem}, spec.selector: Invalid value: {value}{second}]"
    assert (rejected.status, rejected.message.partition(" is invalid: ")[2]) == (422, problems)


async def test_the_expressions_of_a_selector_must_match_the_template(client: Client) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchExpressions": [{"key": "z", "operator": "Exists"}]}, "template": template}
    path = "/apis/apps/v1/namespaces/default/deployments"
    rejected = await client.post(path, {"metadata": {"name": "w"}, "spec": spec})
    problem = 'Invalid value: {"a":"b"}: `selector` does not match template `labels`'
    assert rejected.message == f'Deployment.apps "w" is invalid: spec.template.metadata.labels: {problem}'
