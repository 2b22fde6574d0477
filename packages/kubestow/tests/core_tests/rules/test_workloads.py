"""What the controllers of workloads create from templates."""

from __future__ import annotations

from typing import Any

from kubestow.rules.workloads import (
    completion_index_prefix,
    job_of_cron_job,
    job_pod_labels,
    mount_claims,
    pod_from_template,
    replica_set_of,
    require_node,
    revision_data,
    stateful_pod_labels,
    stateful_set_claims,
    tolerate_node_conditions,
)

REFERENCE = {"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
TEMPLATE: dict[str, Any] = {
    "metadata": {"name": "ignored", "labels": {"app": "web"}, "finalizers": ["example.com/f"]},
    "spec": {"containers": [{"name": "c"}]},
}


def test_a_pod_has_labels_annotations_and_finalizers_of_its_template() -> None:
    assert pod_from_template("web", TEMPLATE, REFERENCE) == {
        "metadata": {
            "generateName": "web-",
            "labels": {"app": "web"},
            "finalizers": ["example.com/f"],
            "ownerReferences": [REFERENCE],
        },
        "spec": TEMPLATE["spec"],
    }
    assert pod_from_template("w" * 253, TEMPLATE, REFERENCE)["metadata"]["generateName"] == "w" * 253


def test_a_replica_set_adds_the_hash_to_selector_and_template() -> None:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE, "minReadySeconds": 5}
    deployment = {"metadata": {"name": "web", "namespace": "prod"}, "spec": spec}
    made = replica_set_of(deployment, "abc", REFERENCE, replicas=3)
    labels = {"app": "web", "pod-template-hash": "abc"}
    assert made["metadata"] == {
        "name": "web-abc",
        "namespace": "prod",
        "labels": labels,
        "ownerReferences": [REFERENCE],
    }
    assert made["spec"]["selector"] == {"matchLabels": labels}
    assert made["spec"]["template"]["metadata"]["labels"] == labels
    assert (made["spec"]["replicas"], made["spec"]["minReadySeconds"]) == (3, 5)
    assert TEMPLATE["metadata"]["labels"] == {"app": "web"}


CLAIM_TEMPLATE = {
    "metadata": {"name": "data", "labels": {"tier": "db"}, "annotations": {"a": "b"}},
    "spec": {"storageClassName": "fast"},
}
STATEFUL_SET: dict[str, Any] = {
    "metadata": {"name": "db", "namespace": "prod"},
    "spec": {"selector": {"matchLabels": {"app": "db"}}, "volumeClaimTemplates": [CLAIM_TEMPLATE]},
}


def test_claims_of_a_stateful_set_have_the_labels_of_template_and_selector() -> None:
    [(volume, claim)] = stateful_set_claims(STATEFUL_SET, "db-0")
    assert volume == "data"
    assert claim == {
        "metadata": {
            "name": "data-db-0",
            "namespace": "prod",
            "labels": {"tier": "db", "app": "db"},
            "annotations": {"a": "b"},
        },
        "spec": {"storageClassName": "fast"},
    }


def test_the_labels_of_a_pod_of_a_stateful_set_say_which_it_is() -> None:
    assert stateful_pod_labels("db-3", 3) == {
        "statefulset.kubernetes.io/pod-name": "db-3",
        "apps.kubernetes.io/pod-index": "3",
    }


def test_a_revision_replaces_the_template_and_has_sorted_keys() -> None:
    data = revision_data({"spec": {"template": {"spec": {"b": 1, "a": 2}, "metadata": {}}}})
    assert str(data) == str({"spec": {"template": {"$patch": "replace", "metadata": {}, "spec": {"a": 2, "b": 1}}}})


def test_the_claims_of_a_pod_come_before_its_other_volumes() -> None:
    spec = {"volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]}
    mount_claims(spec, STATEFUL_SET, "db-0")
    assert spec["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
        {"name": "tmp", "emptyDir": {}},
    ]


def test_daemon_pods_tolerate_the_conditions_of_their_node() -> None:
    own = {"key": "team", "operator": "Exists"}
    timed = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    spec = {"hostNetwork": True, "tolerations": [{**timed, "tolerationSeconds": 5}, own]}
    tolerate_node_conditions(spec)
    tolerations: Any = spec["tolerations"]
    assert tolerations[:2] == [timed, own]  # replaced where it stands
    assert [one["key"].removeprefix("node.kubernetes.io/") for one in tolerations[2:]] == [
        "not-ready",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
        "network-unavailable",
    ]
    assert tolerations[2] == {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}


def test_the_node_of_a_daemon_pod_replaces_what_affinity_requires() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    required: dict[str, Any] = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}
    }
    spec: dict[str, Any] = {"affinity": {"nodeAffinity": {**preferred, **required}, "podAffinity": {}}}
    require_node(spec, "n")
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    assert spec["affinity"] == {"nodeAffinity": {**preferred, **required}, "podAffinity": {}}


def test_the_pods_of_a_job_have_its_uid_and_name() -> None:
    assert job_pod_labels("batch", "u") == {
        "controller-uid": "u",
        "job-name": "batch",
        "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "batch",
    }


def test_the_index_stays_in_the_name_of_a_pod_of_a_job_with_a_long_name() -> None:
    assert completion_index_prefix("batch", 7) == "batch-7-"
    assert completion_index_prefix("b" * 63, 10) == "b" * 54 + "-10-"


def test_a_cron_job_names_its_jobs_after_the_minute() -> None:
    template = {"metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}, "spec": {"parallelism": 2}}
    cron_job = {"metadata": {"name": "nightly", "namespace": "prod"}, "spec": {"jobTemplate": template}}
    job = job_of_cron_job(cron_job, 29, REFERENCE, scheduled="1970-01-01T00:29:00Z")
    assert job["metadata"] == {
        "name": "nightly-29",
        "namespace": "prod",
        "labels": {"c": "d"},
        "annotations": {"a": "b", "batch.kubernetes.io/cronjob-scheduled-timestamp": "1970-01-01T00:29:00Z"},
        "ownerReferences": [REFERENCE],
    }
    assert job["spec"] == {"parallelism": 2}
