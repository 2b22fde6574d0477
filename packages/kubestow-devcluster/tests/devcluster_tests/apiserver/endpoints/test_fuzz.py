"""Fuzzing: objects with parts replaced by arbitrary values are accepted or rejected, and never fail with 500."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from devcluster_tests.client import NODES, PODS, Client, node, pod
from kubestow_devcluster.cluster import DevCluster

LABELS = {"matchLabels": {"app": "web"}}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "x"},
    "spec": {"replicas": 1, "selector": LABELS, "template": TEMPLATE},
}
JOB = {
    "metadata": {"name": "x"},
    "spec": {"completions": 1, "template": {"spec": {**pod()["spec"], "restartPolicy": "Never"}}},
}
BUDGET = {"metadata": {"name": "x"}, "spec": {"minAvailable": "50%", "selector": LABELS}}
STATEFUL_SET = {"metadata": {"name": "x"}, "spec": {**DEPLOYMENT["spec"], "updateStrategy": {"rollingUpdate": {}}}}
DAEMON_SET = {
    "metadata": {"name": "x"},
    "spec": {"selector": LABELS, "template": TEMPLATE, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}},
}
CRON_JOB = {
    "metadata": {"name": "x"},
    "spec": {
        "schedule": "* * * * *",
        "timeZone": "UTC",
        "startingDeadlineSeconds": 9,
        "jobTemplate": {"spec": JOB["spec"]},
    },
}
SERVICE = {"metadata": {"name": "x"}, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http"}]}}
CLAIM = {
    "metadata": {"name": "x"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "s"},
}
RICH_POD = pod(
    "x",
    labels={"app": "web"},
    affinity={
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": LABELS, "topologyKey": "zone"}]
        },
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
            }
        },
    },
    tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": LABELS}
    ],
    volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
)
EVENT = {
    "metadata": {
        "name": "x",
        "finalizers": ["a/b"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}],
    },
    "involvedObject": {"kind": "Pod", "namespace": "default"},
}
OBJECTS = [
    (PODS, RICH_POD),
    (NODES, node("x", zone="a")),
    ("/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT),
    ("/apis/batch/v1/namespaces/default/jobs", JOB),
    ("/apis/apps/v1/namespaces/default/statefulsets", STATEFUL_SET),
    ("/apis/apps/v1/namespaces/default/daemonsets", DAEMON_SET),
    ("/apis/batch/v1/namespaces/default/cronjobs", CRON_JOB),
    ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", BUDGET),
    ("/api/v1/namespaces/default/services", SERVICE),
    ("/api/v1/namespaces/default/persistentvolumeclaims", CLAIM),
    ("/api/v1/namespaces/default/events", EVENT),
    ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "x"}, "value": 7}),
    ("/api/v1/namespaces", {"metadata": {"name": "x"}, "spec": {"finalizers": ["kubernetes"]}}),
]
SCALARS: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 2**31, 2**70, 1.5, "", "x", "1Gi", "-1", "50%", "\x00", "ü" * 300, [], {}]
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "key", ""]), inner)
)
PATCHES = ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every field and item."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        yield from paths(inner, (*path, step))


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The path of a collection, a valid object, and the same object with one or two parts replaced."""
    path, valid = draw(st.sampled_from(OBJECTS))
    invalid = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 2))):
        *ancestors, last = draw(st.sampled_from(list(paths(invalid))))
        parent = invalid
        for step in ancestors:
            parent = parent[step]
        parent[last] = draw(ANYTHING)
    return path, valid, invalid


async def reasons(path: str, valid: dict[str, Any], invalid: dict[str, Any], patch: str) -> list[str]:
    """The reasons of the responses. What server-side apply rejects has the code 500 without one."""
    client = Client(DevCluster(kubelets=False))
    created = await client.post(path, invalid)
    await client.post(path, valid)
    name = valid["metadata"]["name"]
    one = f"{path}/{name}?fieldManager=m"
    body: Any = [{"op": "add", "path": "/spec", "value": invalid.get("spec")}] if patch.startswith("json-") else invalid
    responses = [
        created,
        await client.put(one, invalid),
        await client.patch(one, body, patch),
        await client.patch(f"{path}/{name}/status", invalid, "merge-patch+json"),
        await client.get(path, accept="application/json;as=Table;v=v1;g=meta.k8s.io"),
        await client.delete(f"{path}/{name}", invalid.get("spec")),
    ]
    return [response.json.get("reason", "") for response in responses]


@settings(max_examples=100)
@given(objects=mutated(), patch=st.sampled_from(PATCHES))
def test_no_object_causes_an_internal_error(objects: tuple[str, dict[str, Any], dict[str, Any]], patch: str) -> None:
    assert "InternalError" not in asyncio.run(reasons(*objects, patch))
