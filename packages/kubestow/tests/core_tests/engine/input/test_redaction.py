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
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "keep": "this"},
    }
    before = convert(Pod, json.loads(json.dumps(manifest)))
    after = redacted(manifest)
    assert SECRET not in json.dumps(after)
    assert convert(Pod, after).spec == before.spec
    assert after["metadata"]["annotations"] == {"keep": "this"}


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
