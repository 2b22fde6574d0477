"""Workloads become the pods that their controllers and admission would create."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core_tests.engine.input.manifests import Object, arrivals, cluster, container, node, pod, workload, write
from kubestow.api.apps import ReplicaSet
from kubestow.api.resource import ResourceClaim
from kubestow.api.storage import PersistentVolumeClaim
from kubestow.errors import InputError
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.expansion import expand


def names(found: Arrivals) -> list[str]:
    return [arrival.pod.metadata.name for arrival in found.pods]


def test_a_deployment_creates_a_replica_set_and_its_pods(tmp_path: Path) -> None:
    found = arrivals(tmp_path, workload("Deployment", "web", replicas=3))
    [replica_set] = found.objects
    assert isinstance(replica_set, ReplicaSet)
    hash_ = replica_set.metadata.name.removeprefix("web-")
    assert len(set(names(found))) == 3
    for arrival in found.pods:
        metadata = arrival.pod.metadata
        assert metadata.name.startswith(f"web-{hash_}-")
        assert metadata.labels == {"app": "web", "pod-template-hash": hash_}
        assert metadata.controller is not None
        assert (metadata.controller.kind, metadata.controller.name) == ("ReplicaSet", f"web-{hash_}")
        assert replica_set.spec.selector is not None
        assert replica_set.spec.selector.match_labels == metadata.labels
    assert names(found) == names(arrivals(tmp_path, workload("Deployment", "web", replicas=3)))


def test_a_stateful_set_numbers_its_pods_and_creates_their_claims(tmp_path: Path) -> None:
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}}
    stateful_set = workload("StatefulSet", "db", replicas=2, volumeClaimTemplates=[template], ordinals={"start": 5})
    found = arrivals(tmp_path, stateful_set)
    assert names(found) == ["db-5", "db-6"]
    claims = [o for o in found.objects if isinstance(o, PersistentVolumeClaim)]
    assert [claim.metadata.name for claim in claims] == ["data-db-5", "data-db-6"]
    [volume] = found.pods[0].pod.spec.volumes
    assert volume.persistent_volume_claim is not None
    assert volume.persistent_volume_claim.claim_name == "data-db-5"
    labels = found.pods[0].pod.metadata.labels
    assert labels["apps.kubernetes.io/pod-index"] == "5"
    assert labels["controller-revision-hash"].startswith("db-")


def test_a_daemon_set_has_a_pod_for_each_node_that_it_may_run_on(tmp_path: Path) -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    nodes = [
        node("plain", labels={"disk": "ssd"}),
        node("cordoned", labels={"disk": "ssd"}, unschedulable=True),
        node("tainted", labels={"disk": "ssd"}, taints=[taint]),
        node("other"),
    ]
    daemon_set = workload("DaemonSet", "agent", pod_spec={"nodeSelector": {"disk": "ssd"}})
    found = arrivals(tmp_path, daemon_set, within=cluster(tmp_path, *nodes))
    required = []
    for arrival in found.pods:
        affinity = arrival.pod.spec.affinity
        assert affinity is not None
        assert affinity.node_affinity is not None
        selector = affinity.node_affinity.required_during_scheduling_ignored_during_execution
        assert selector is not None
        required += selector.node_selector_terms[0].match_fields[0].values
    assert required == ["plain", "cordoned"]


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 3}, 3),
        ({"parallelism": 5, "completions": 2}, 2),
        ({"suspend": True}, 0),
        ({"parallelism": 2, "completions": 4, "completionMode": "Indexed"}, 2),
    ],
)
def test_a_job_has_the_pods_that_run_at_the_same_time(tmp_path: Path, spec: dict[str, Any], count: int) -> None:
    found = arrivals(tmp_path, workload("Job", "batch", **spec), pod("another"))
    assert len(found.pods) == count + 1


def test_the_pods_of_a_job_have_its_name_as_a_label(tmp_path: Path) -> None:
    found = arrivals(tmp_path, workload("Job", "batch", parallelism=2))
    assert [arrival.pod.metadata.labels for arrival in found.pods] == 2 * [
        {
            "app": "batch",
            "controller-uid": "job/default/batch",
            "job-name": "batch",
            "batch.kubernetes.io/controller-uid": "job/default/batch",
            "batch.kubernetes.io/job-name": "batch",
        }
    ]


def test_a_cron_job_runs_once(tmp_path: Path) -> None:
    job = workload("Job", "inner", parallelism=2)
    cron_job = {
        **job,
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"jobTemplate": {"spec": job["spec"]}},
    }
    found = arrivals(tmp_path, cron_job)
    assert [name.startswith("nightly-0-") for name in names(found)] == [True, True]


def test_objects_of_a_controller_in_the_same_input_are_left_to_it(tmp_path: Path) -> None:
    deployment = workload("Deployment", "web", replicas=2)
    replica_set = workload("ReplicaSet", "web-1", replicas=2)
    replica_set["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "web", "uid": "u", "controller": True}]
    owned = pod("web-1-x", nodeName="a")
    owned["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "web-1", "uid": "v", "controller": True}]
    alone = pod("alone", nodeName="a")
    found = arrivals(tmp_path, owned, replica_set, deployment, alone)
    assert len(found.pods) == 3
    assert names(found)[-1] == "alone"
    assert all(not arrival.pod.spec.node_name for arrival in found.pods)
    left_out = "1 Pod of a controller in the same input, 1 ReplicaSet of a controller in the same input"
    assert f"left out {left_out}" in found.summary.lines()


def test_nodes_of_a_workload_are_left_out(tmp_path: Path) -> None:
    found = arrivals(tmp_path, node("a"), pod("p"))
    assert list(found.summary.lines()) == ["read 1 Pod", "left out 1 Node (the cluster's are used)"]


def test_pods_get_what_admission_would_add(tmp_path: Path) -> None:
    limits = {"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": {"cpu": "50m"}}
    objects: list[Object] = [
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [limits]}},
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "batch"},
            "value": -5,
            "globalDefault": True,
            "preemptionPolicy": "Never",
        },
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "vm"},
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}},
        },
    ]
    bare = pod("bare", runtimeClassName="vm", hostNetwork=True)
    bare["spec"]["containers"] = [container(resources={"limits": {"cpu": "1"}}, ports=[{"containerPort": 80}])]
    [arrival] = arrivals(tmp_path, *objects, bare).pods
    spec = arrival.pod.spec
    assert (spec.scheduler_name, spec.priority, spec.preemption_policy) == ("default-scheduler", -5, "Never")
    assert spec.containers[0].resources.requests == {"cpu": "1", "memory": "1Gi"}
    assert spec.containers[0].ports[0].host_port == 80
    assert (spec.overhead, spec.node_selector) == ({"cpu": "250m"}, {"vm": "yes"})
    assert {t.key for t in spec.tolerations} == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


@pytest.mark.parametrize(
    ("requests", "of_container", "expected"),
    [
        ({}, {}, {"cpu": "4", "memory": "1Gi"}),
        ({}, {"cpu": "1500m"}, {"cpu": "2", "memory": "1Gi"}),
        ({"cpu": "3"}, {"cpu": "1500m", "memory": "1Ki"}, {"cpu": "3", "memory": "1Ki"}),
    ],
)
def test_pod_level_requests_are_those_of_the_containers_else_the_limits(
    tmp_path: Path, requests: Object, of_container: Object, expected: Object
) -> None:
    both = pod("both", resources={"limits": {"cpu": "4", "memory": "1Gi"}, "requests": requests})
    both["spec"]["containers"] = [container(resources={"requests": of_container})]
    if of_container:
        both["spec"]["initContainers"] = [container("500m", restartPolicy="Always")]
    [arrival] = arrivals(tmp_path, both).pods
    assert arrival.pod.spec.resources is not None
    assert arrival.pod.spec.resources.requests == expected


def test_label_keys_of_pod_affinity_are_merged_into_its_selectors(tmp_path: Path) -> None:
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["pod-template-hash", "absent"],
        "mismatchLabelKeys": ["app"],
    }
    preferred = {"weight": 1, "podAffinityTerm": {**term, "labelSelector": None}}
    affinity = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]},
    }
    [arrival] = arrivals(tmp_path, workload("Deployment", "web", pod_spec={"affinity": affinity})).pods
    found = arrival.pod.spec.affinity
    assert found is not None
    assert found.pod_anti_affinity is not None
    assert found.pod_affinity is not None
    [required] = found.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    assert required.label_selector is not None
    assert required.label_selector.match_labels == {"app": "web"}
    hash_ = arrival.pod.metadata.labels["pod-template-hash"]
    assert [(e.key, e.operator, e.values) for e in required.label_selector.match_expressions] == [
        ("pod-template-hash", "In", [hash_]),
        ("app", "NotIn", ["web"]),
    ]
    [weighted] = found.pod_affinity.preferred_during_scheduling_ignored_during_execution
    assert weighted.pod_affinity_term.label_selector is None


def test_the_defaults_of_a_limit_range_are_completed_as_by_the_api_server(tmp_path: Path) -> None:
    limits = {"type": "Container", "max": {"cpu": "2", "memory": "4Gi"}, "min": {"cpu": "10m", "nvidia.com/gpu": "1"}}
    limits |= {"default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}}
    limit_range = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [limits]}}
    bare, given = pod("bare"), pod("given")
    bare["spec"]["containers"] = [container(resources={})]
    given["spec"]["containers"] = [container(resources={"requests": {"memory": "1Gi"}, "limits": {"cpu": "500m"}})]
    found = {
        a.pod.metadata.name: a.pod.spec.containers[0].resources
        for a in arrivals(tmp_path, limit_range, bare, given).pods
    }
    assert found["bare"].requests == {"cpu": "100m", "memory": "4Gi", "nvidia.com/gpu": "1"}
    assert found["bare"].limits == {"cpu": "1", "memory": "4Gi"}
    assert found["given"].requests == {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}


def test_claims_of_pods_are_created_with_them(tmp_path: Path) -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu"},
        "spec": {"spec": {"devices": {}}},
    }
    owner = pod(
        "p",
        volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}}],
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    )
    found = arrivals(tmp_path, template, owner)
    [arrival] = found.pods
    [claim] = [o for o in found.objects if isinstance(o, PersistentVolumeClaim)]
    [devices] = [o for o in found.objects if isinstance(o, ResourceClaim)]
    assert claim.metadata.name == "p-scratch"
    assert claim.metadata.controller is not None
    assert claim.metadata.controller.uid == arrival.pod.metadata.uid
    assert arrival.pod.status.resource_claim_statuses[0].resource_claim_name == devices.metadata.name


def test_times_come_from_annotations(tmp_path: Path) -> None:
    late = pod("late")
    late["metadata"]["annotations"] = {"kubestow.dev/arrival": "1m", "kubestow.dev/duration": "90s"}
    found = arrivals(tmp_path, late, pod("early"))
    assert [(a.pod.metadata.name, a.time, a.duration) for a in found.pods] == [("early", 0, None), ("late", 60, 90)]


def test_unusable_workloads_are_left_out_with_file_and_index(tmp_path: Path) -> None:
    timed = pod("timed")
    timed["metadata"]["annotations"] = {"kubestow.dev/arrival": "soon"}
    broken = workload("Deployment", "broken", replicas="three")
    no_template = {**workload("Deployment", "no-template"), "spec": {"replicas": 1}}
    old = {**workload("Deployment", "old"), "apiVersion": "apps/v1beta1"}
    malformed = {**pod("malformed"), "spec": {"containers": "none"}}
    found = arrivals(tmp_path, timed, broken, no_template, old, malformed, pod("twin"), pod("twin"))
    assert names(found) == ["twin"]
    assert [(p.place, p.text.partition(":")[0]) for p in found.summary.problems] == [
        ("items[0]", "invalid Pod"),
        ("items[1]", "invalid Deployment"),
        ("items[2]", "invalid Deployment"),
        ("items[3]", "Deployment of version apps/v1beta1, expected apps/v1"),
        ("items[4]", "invalid Pod"),
        ("items[6]", "Pod default/twin exists already"),
    ]


@pytest.mark.parametrize(
    ("containers", "problem"),
    [
        ({"name": "c"}, "spec.containers: Expected `array`, got `object`"),
        ([{"name": "c", "resources": 1}], "spec.containers[0].resources: Expected `object`, got `int`"),
        ([container(cpu="1x")], 'spec.containers[0].resources.requests[cpu]: "1x" is not a resource quantity'),
        ([container(resources={"limits": {"cpu": "1x"}})], 'spec.containers[0].resources.limits[cpu]: "1x" is not a'),
    ],
)
def test_a_problem_of_a_pod_names_its_field(tmp_path: Path, containers: Any, problem: str) -> None:
    found = arrivals(tmp_path, {**pod("wrong"), "spec": {"containers": containers}}, pod("right"))
    assert names(found) == ["right"]
    [reported] = found.summary.problems
    assert (reported.place, reported.text.startswith(f"invalid Pod: {problem}")) == ("items[0]", True)


@pytest.mark.parametrize(
    ("amount", "problem"),
    [
        ("abc", '"abc" is not a resource quantity (expected a number such as "2", "500m" or "1.5Gi")'),
        ("-1", "expected an amount that is not negative, got '-1'"),
    ],
)
def test_invalid_amounts_are_left_out_with_their_objects(tmp_path: Path, amount: str, problem: str) -> None:
    at_pod = pod("level", resources={"limits": {"cpu": amount}})
    of_init = pod("init", initContainers=[container(amount)])
    limits = [{"type": "Container", "default": {"cpu": amount}}]
    limit_range = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": limits}}
    runtime_class = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"}}
    runtime_class["overhead"] = {"podFixed": {"cpu": amount}}
    broken = (workload("Deployment", "web", cpu=amount), at_pod, of_init, limit_range, runtime_class)
    found = arrivals(tmp_path, *broken, pod("p"))
    assert names(found) == ["p"]
    assert {p.place: p.text for p in found.summary.problems} == {
        "items[0]": f"invalid Deployment: spec.containers[0].resources.requests[cpu]: {problem}",
        "items[1]": f"invalid Pod: spec.resources.limits[cpu]: {problem}",
        "items[2]": f"invalid Pod: spec.initContainers[0].resources.requests[cpu]: {problem}",
        "items[3]": f"invalid LimitRange: spec.limits[0].default[cpu]: {problem}",
        "items[4]": f"invalid RuntimeClass: overhead.podFixed[cpu]: {problem}",
    }


def test_a_volume_claim_template_needs_a_name(tmp_path: Path) -> None:
    found = arrivals(tmp_path, workload("StatefulSet", "db", volumeClaimTemplates=[{"spec": {}}]), pod("p"))
    assert [p.text for p in found.summary.problems] == [
        "invalid StatefulSet: spec.volumeClaimTemplates[0].metadata.name: required value"
    ]


def test_input_without_pods_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, node("a"), name="w.json")
    with pytest.raises(InputError, match="has no pods"):
        Arrivals.load(path, cluster=cluster(tmp_path))


def test_the_pods_of_a_large_daemon_set_have_names_of_their_own() -> None:
    daemon_set = workload("DaemonSet", "agent")
    daemon_set["metadata"]["namespace"] = "default"
    nodes = [node(f"n{index}") for index in range(10_000)]
    found = {expansion.replicas[0].name for expansion in expand(daemon_set, lambda: nodes)}
    assert len(found) == 10_000
