"""Kueue's queues as offline commands use them: jobs that start and stop, and why they wait."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from contrib_tests.kueue.kueue_objects import (
    API_VERSION,
    GPU,
    Manifest,
    cluster,
    cluster_queue,
    flavor,
    job,
    local_queue,
    workload,
)
from kubestow.engine.job_admission import AdmissionQueues, JobStart, JobStop, Owner, find_admission_system
from kubestow.errors import InputError, InvalidObject
from kubestow_contrib.kueue.admission_system import KUEUE, read_settings

NOW = 1767225600.0
_COHORT: dict[str, Any] = {
    "cohort": "gpu",
    "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
}


def opened(*further: Manifest, configuration: Path | None = None, nodes: Sequence[Manifest] = ()) -> AdmissionQueues:
    """Queues for research and production with 8 GPUs each, and further objects."""
    queues = [cluster_queue(name, 8, **_COHORT) for name in ("research", "production")]
    names = {(one["kind"], one["metadata"]["name"]) for one in further}
    objects = [*queues, flavor("h100", gpu="h100"), local_queue("research"), local_queue("production")]
    kept = [one for one in objects if (one["kind"], one["metadata"]["name"]) not in names]
    dump = cluster(*kept, *further, nodes=nodes)
    found = find_admission_system("kueue").open(dump, configuration=configuration, now=NOW)
    assert found is not None
    return found


def changes(queues: AdmissionQueues, now: float = NOW) -> list[tuple[str, str]]:
    """What starts and stops."""
    return [("stop" if isinstance(one, JobStop) else "start", one.job.rpartition("/")[2]) for one in queues.decide(now)]


def why(queues: AdmissionQueues, name: str) -> list[str]:
    return list(queues.why(Owner("Job", "default", name)))


# -- jobs that start and stop ------------------------------------------------------------------------------------------


def test_pods_get_labels_and_tolerations_of_their_flavor() -> None:
    tainted = flavor("h100", gpu="h100")
    tainted["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
    queues = opened(tainted)
    queues.submit(job("train", "research", 2, pods=3), NOW)
    (started,) = queues.decide(NOW)
    assert isinstance(started, JobStart)
    assert (started.queue, list(started.flavors)) == ("research", ["h100"])
    (pods,) = started.pods
    assert pods.manifest["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert pods.manifest["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert pods.manifest["metadata"]["ownerReferences"][0]["name"] == "train"
    names = [name for name, _ in pods.names]
    assert len(set(names)) == 3 and all(name.startswith("train-") for name in names)


def test_a_job_that_ends_frees_its_quota_a_second_later() -> None:
    queues = opened()
    first = queues.submit(job("a", "research", 16), NOW)
    queues.submit(job("b", "research", 1), NOW)
    assert [kind for kind, _ in changes(queues)] == ["start"]
    queues.end(first, NOW + 10)
    assert changes(queues, NOW + 10) == []
    assert queues.next_decision() == NOW + 11
    assert [kind for kind, _ in changes(queues, NOW + 11)] == ["start"]
    assert queues.next_decision() is None


def test_a_reclaimed_job_stops_and_starts_again() -> None:
    queues = opened()
    queues.submit(job("a", "research", 8), NOW)
    assert len(changes(queues)) == 1
    borrowing = queues.submit(job("b", "research", 8), NOW + 1)
    assert len(changes(queues, NOW + 1)) == 1
    owner = queues.submit(job("c", "production", 8), NOW + 2)
    found = changes(queues, NOW + 2)
    assert found[0] == ("stop", borrowing.rpartition("/")[2])
    assert found[1] == ("start", owner.rpartition("/")[2])
    queues.end(owner, NOW + 20)
    assert changes(queues, NOW + 21) == [("start", borrowing.rpartition("/")[2])]


def test_a_part_of_a_job_is_admitted_if_it_allows_that() -> None:
    queues = opened()
    annotations = {"kueue.x-k8s.io/job-min-parallelism": "4"}
    queues.submit(job("train", "research", 1, pods=40, annotations=annotations), NOW)
    (started,) = queues.decide(NOW)
    assert isinstance(started, JobStart)
    assert sum(len(pods.names) for pods in started.pods) == 16


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (job("a", "research", 1, annotations={"kueue.x-k8s.io/job-min-parallelism": "x"}), "job-min-parallelism"),
        (job("a", "research", 1) | {"spec": {}}, "spec.template"),
        (
            job("a", "research", 1, labels={"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/priority-class": "no"}),
            "priority-class",
        ),
    ],
)
def test_invalid_jobs_name_the_field(manifest: Manifest, path: str) -> None:
    with pytest.raises(InvalidObject, match=path):
        opened().submit(manifest, NOW)


def test_the_priority_of_a_workload_priority_class_counts() -> None:
    high = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"},
        "value": 9,
    }
    queues = opened(
        high, workload("old", "research", 8, admitted="research"), workload("p", "production", 8, admitted="production")
    )
    labels = {"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/priority-class": "high"}
    queues.submit(job("new", "research", 8, labels=labels), NOW)
    assert [kind for kind, _ in changes(queues)] == ["stop", "start"]


def test_workloads_of_other_kinds_start_from_their_pod_sets() -> None:
    one = workload("train", "research", 1, pods=2)
    one["metadata"]["ownerReferences"][0] |= {"kind": "JobSet", "apiVersion": "jobset.x-k8s.io/v1alpha2"}
    (started,) = opened(one).decide(NOW)
    assert isinstance(started, JobStart)
    (pods,) = started.pods
    assert pods.manifest["metadata"]["ownerReferences"][0]["kind"] == "JobSet"
    assert pods.manifest["spec"]["containers"][0]["resources"]["requests"] == {GPU: 1}
    assert len(pods.names) == 2


def test_running_workloads_end_by_their_duration() -> None:
    annotated = workload("a", "research", 1, admitted="research")
    annotated["spec"]["podSets"][0]["template"]["metadata"] = {"annotations": {"kubestow.dev/duration": "1h"}}
    limited = workload("b", "research", 1, admitted="research")
    limited["spec"]["maximumExecutionTimeSeconds"] = 60
    ends = {
        one.owner.name: one.ends
        for one in opened(annotated, limited, workload("c", "research", 1, admitted="research")).running()
    }
    assert ends == {"a": NOW + 3600, "b": NOW + 60, "c": None}


def test_v1beta1_has_other_names() -> None:
    queue = cluster_queue("research", 8, cohort="")
    queue["apiVersion"] = "kueue.x-k8s.io/v1beta1"
    queue["spec"]["cohort"] = "gpu"
    queues = opened(queue)
    queues.submit(job("a", "research", 16), NOW)
    assert [kind for kind, _ in changes(queues)] == ["start"]


def test_no_queues_in_a_cluster() -> None:
    assert KUEUE.open(cluster(), now=NOW) is None


def test_pods_select_the_nodes_of_their_domains() -> None:
    nodes = [
        {
            "metadata": {
                "name": f"host-{number}",
                "labels": {"kubernetes.io/hostname": f"host-{number}", "rack": f"rack-{number // 2}", "gpu": "h100"},
            },
            "status": {"allocatable": {GPU: 4, "pods": 110}},
        }
        for number in range(4)
    ]
    with_topology = flavor("h100", gpu="h100")
    with_topology["spec"]["topologyName"] = "racks"
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    racks = {"apiVersion": API_VERSION, "kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": levels}}
    large = cluster_queue("production", 32, **_COHORT)
    queues = opened(with_topology, racks, large, nodes=nodes)
    one = job("train", "research", 2, pods=4)
    one["spec"]["template"]["metadata"] = {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}
    queues.submit(one, NOW)
    (started,) = queues.decide(NOW)
    assert isinstance(started, JobStart)
    selected = [pods.manifest["spec"]["nodeSelector"]["kubernetes.io/hostname"] for pods in started.pods]
    assert selected == ["host-0", "host-1"]
    assert [len(pods.names) for pods in started.pods] == [2, 2]
    queues.submit(
        job("wide", "production", 4, pods=2) | {"spec": one["spec"] | {"parallelism": 5, "completions": 5}}, NOW
    )
    assert queues.decide(NOW) == []
    (waiting,) = [state for state in queues.states() if not state.is_admitted]
    assert waiting.message == "flavor h100: topology racks has room for 4 of 5 pods"


# -- why ---------------------------------------------------------------------------------------------------------------


def test_why_names_the_cohort_the_position_and_what_has_to_end() -> None:
    running = [workload("a", "research", 8, admitted="research"), workload("b", "production", 6, admitted="production")]
    running[1]["spec"]["maximumExecutionTimeSeconds"] = 3600
    lines = why(
        opened(
            *running, workload("first", "research", 4), workload("c", "research", 5, created="2026-01-01T00:00:05Z")
        ),
        "c",
    )
    assert lines == [
        "Workload job-c in LocalQueue research:",
        "not admitted: cohort gpu is out of nvidia.com/gpu in flavor h100 by 3",
        "position 2 of 2 in ClusterQueue research (BestEffortFIFO), priority 0",
        "it would be admitted when job a ends",
    ]


def test_why_says_that_two_have_to_end() -> None:
    running = [workload(name, "research", 4, admitted="research") for name in "ab"]
    running += [workload(name, "production", 4, admitted="production") for name in "cd"]
    assert why(opened(*running, workload("e", "research", 12)), "e")[-1] == (
        "it would be admitted when job a, job b and job c end"
    )


def test_why_says_what_never_helps() -> None:
    assert why(opened(workload("big", "research", 17)), "big")[1:] == [
        "not admitted: ClusterQueue research never has more than 16 of nvidia.com/gpu in flavor h100,"
        " and 17 are needed",
        "position 1 of 1 in ClusterQueue research (BestEffortFIFO), priority 0",
        "it is not admitted whatever ends",
    ]


def test_why_names_a_borrowing_limit() -> None:
    queue = cluster_queue("research", 8, **_COHORT)
    quota = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    quota["borrowingLimit"] = 2
    running = workload("a", "research", 8, admitted="research")
    assert why(opened(queue, running, workload("b", "research", 4)), "b")[1] == (
        "not admitted: ClusterQueue research may borrow 2 too little of nvidia.com/gpu in flavor h100"
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"stopPolicy": "Hold"}, "not admitted: ClusterQueue research: is stopped (stopPolicy Hold)"),
        ({"namespaceSelector": None}, "not admitted: ClusterQueue research does not select namespace default"),
        ({"admissionChecks": ["p"]}, ""),
    ],
)
def test_why_names_what_is_wrong_with_the_queue(change: dict[str, Any], line: str) -> None:
    queue = cluster_queue("research", 8, **{**_COHORT, **change})
    found = why(opened(queue, workload("a", "research", 1)), "a")[1]
    assert found == (line or "it is admitted in the next cycle")


def test_why_names_a_missing_queue_and_a_mismatching_flavor() -> None:
    assert why(opened(workload("a", "nowhere", 1)), "a")[1] == "not admitted: there is no LocalQueue nowhere"
    picky = workload("b", "research", 1)
    picky["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"gpu": "a100"}
    assert why(opened(picky), "b")[1] == ("not admitted: flavor h100 does not match the node selector or affinity")


def test_states_have_workloads_in_no_queue() -> None:
    inactive = workload("b", "research", 1)
    inactive["spec"]["active"] = False
    queues = opened(workload("a", "nowhere", 1), inactive)
    assert {state.owner.name: state.message for state in queues.states()} == {
        "a": "there is no LocalQueue nowhere",
        "b": "it is not active (spec.active is false)",
    }


def test_why_says_that_a_job_has_quota_and_waits_for_a_check() -> None:
    one = workload("a", "research", 1, admitted="research")
    one["status"]["conditions"] = one["status"]["conditions"][:1]
    one["status"]["admissionChecks"] = [{"name": "provision", "state": "Pending", "message": "no nodes yet"}]
    assert why(opened(one), "a") == [
        "Workload job-a has quota in ClusterQueue research, flavor h100",
        "it waits for admission check provision (Pending) no nodes yet",
    ]
    assert why(opened(), "nothing") == []


def test_why_takes_kinds_as_kubectl_does() -> None:
    queues = opened(workload("a", "research", 17))
    assert queues.why(Owner("jobs", "default", "a")) == why(queues, "a")
    assert queues.why(Owner("workloads", "default", "job-a")) == why(queues, "a")


# -- configuration -----------------------------------------------------------------------------------------------------


def test_the_configuration_in_a_config_map(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "kind: ConfigMap\ndata:\n  controller_manager_config.yaml: |\n"
        "    fairSharing: {preemptionStrategies: [LessThanInitialShare]}\n"
        "    admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 1m, resourceWeights: {cpu: 2}}\n"
    )
    settings = read_settings(path)
    assert settings.fair_sharing == ("LessThanInitialShare",)
    assert (settings.half_life, settings.sampling_interval, settings.resource_weights) == (3600.0, 60.0, {"cpu": 2.0})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fairSharing: {preemptionStrategies: [Never]}", r"preemptionStrategies\[0\]: expected LessThan"),
        ("admissionFairSharing: {usageHalfLifeTime: soon}", "usageHalfLifeTime"),
        ("a: [", "is not YAML"),
    ],
)
def test_mistakes_in_the_configuration_are_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        opened(configuration=path)


def test_invalid_objects_are_named() -> None:
    with pytest.raises(InputError, match=r"nominalQuota"):
        opened(cluster_queue("research", "many"))
