"""A snapshot contains nothing confidential, and everything that scheduling reads."""

from __future__ import annotations

import json

from core_tests.engine.input.manifests import container, pod, workload
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.engine.input.redaction import redacted

SECRET = "hunter2"
CONFIDENTIAL = {
    "env": [{"name": "A", "value": SECRET}],
    "envFrom": [{"secretRef": {"name": SECRET}}],
    "command": ["sh", "-c", SECRET],
    "args": [SECRET],
    "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
    "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
}
FULL = container("2", **CONFIDENTIAL)


def test_containers_keep_only_what_scheduling_reads() -> None:
    manifest = pod("p", initContainers=[{**FULL, "restartPolicy": "Always"}], ephemeralContainers=[FULL])
    manifest["spec"]["containers"] = [{**FULL, "ports": [{"hostPort": 80}]}]
    manifest["metadata"] |= {
        "managedFields": [{"manager": SECRET}],
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": SECRET,
            "note": SECRET,
            "vault.example.com/template": SECRET,
            "scheduling.volcano.sh/queue-name": "this",
        },
    }
    before = convert(Pod, json.loads(json.dumps(manifest)))
    after = redacted(manifest)
    assert SECRET not in json.dumps(after)
    assert convert(Pod, after).spec == before.spec
    assert after["metadata"]["annotations"] == {"scheduling.volcano.sh/queue-name": "this"}


def test_the_loads_that_are_measured_on_nodes_are_kept() -> None:
    annotations = {"cpu_usage_avg_5m": "0.3,2026-01-01T00:00:00Z", "example.com/note": SECRET}
    after = redacted({"kind": "Node", "metadata": {"name": "n", "annotations": annotations}})
    assert after["metadata"]["annotations"].keys() == {"cpu_usage_avg_5m"}


def test_persistent_volumes_lose_what_their_drivers_are_given() -> None:
    for source in (
        {"csi": {"driver": "d", "volumeAttributes": {"a": SECRET}}},
        {"flexVolume": {"options": {"a": SECRET}}},
    ):
        after = redacted({"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": source})
        assert SECRET not in json.dumps(after)
    assert redacted({"kind": "PersistentVolume", "spec": {"csi": {"driver": "d"}}})["spec"]["csi"] == {"driver": "d"}


def test_pod_templates_are_redacted_like_pods() -> None:
    for kind in ("ReplicaSet", "StatefulSet", "Job"):
        manifest = workload(kind, "w", pod_spec={"containers": [FULL]})
        assert SECRET not in json.dumps(redacted(manifest))
    cron_job = {"kind": "CronJob", "spec": {"jobTemplate": workload("Job", "w", pod_spec={"containers": [FULL]})}}
    assert SECRET not in json.dumps(redacted(cron_job))


def test_secrets_and_config_maps_lose_their_data() -> None:
    for kind in ("Secret", "ConfigMap"):
        manifest = {"kind": kind, "data": {"a": SECRET}, "stringData": {"b": SECRET}, "binaryData": {"c": SECRET}}
        assert redacted(manifest) == {"kind": kind}


def test_pod_sets_of_workloads_lose_what_pods_lose() -> None:
    container = {"name": "main", "env": [{"name": "TOKEN", "value": "secret"}], "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": 2, "template": {"spec": {"containers": [container]}}}
    after = redacted({"kind": "Workload", "metadata": {"name": "w"}, "spec": {"podSets": [pod_set, "invalid"]}})
    assert "secret" not in str(after)
    assert after["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
