"""What an explanation proposes for a pod that no NUMA zone can run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubestow.engine.explanation.explain import explain
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions

_CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}}}],
}


@pytest.mark.parametrize(("cpu", "helps"), [("3", False), ("2", True)])
def test_one_more_node_has_the_zones_of_the_one_that_it_is_like(cpu: str, helps: bool, tmp_path: Path) -> None:
    """The node is full, and has two CPUs in each zone: another one like it has no more in one zone."""
    requested = {"cpu": cpu, "memory": "1Gi"}
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [{"name": "cpu", "available": 2}, {"name": "memory", "available": "8Gi"}],
        }
        for number in range(2)
    ]
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
        },
        {
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": "n"},
            "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
            "zones": zones,
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "large", "namespace": "default", "uid": "large"},
            "spec": {
                "nodeName": "n",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "7"}}}],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "uid": "p"},
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"requests": requested, "limits": requested}}]
            },
        },
    ]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    found = explain(ClusterObjects.load(dump), "default/p", SchedulerOptions(_CONFIGURATION))

    proposed = json.dumps(found.document())
    assert ("add one more node like n" in proposed) == helps
