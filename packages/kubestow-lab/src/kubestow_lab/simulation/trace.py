"""Traces of clusters: nodes, and pods that arrive and depart.

The format is that of Alibaba's GPU cluster "openb" (:mod:`kubestow_lab.workloads.openb`): a folder with CSV lists of
nodes and pods. A pod arrives when it was created in the trace, and runs for as long as it ran there, from when it is
bound.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from kubestow import gc_tuning
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.engine.input.admission import Admission
from kubestow.engine.input.cluster import Cluster
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.workloads import gpu, openb
from kubestow_lab.workloads.gpu import PodShape
from kubestow_lab.workloads.workload import Object

__all__ = ["load_trace"]


def load_trace(folder: str | Path, *, pods: str = "default", nodes: str = "gpu_node") -> tuple[Cluster, Arrivals]:
    """The cluster and the pods of a trace; ``pods`` and ``nodes`` are short names of lists, such as ``gpuspec33``.

    Raises InputError for missing and invalid files.
    """
    with gc_tuning.paused():
        files = openb.list_files(Path(folder), pod_list=pods, node_list=nodes)
        return _cluster(files.nodes), _arrivals(files.pods)


def _cluster(path: Path) -> Cluster:
    cluster = Cluster(nodes=[convert(Node, gpu.node(name, shape)) for name, shape in openb.read_nodes(path)])
    cluster.summary.read["Node"] = len(cluster.nodes)
    return cluster


def _arrivals(path: Path) -> Arrivals:
    """Pods of one shape share their spec; most pods of a trace have one of a few shapes."""
    templates: dict[PodShape, tuple[Pod, Object]] = {}
    arrivals = Arrivals(attribution=openb.ATTRIBUTION)
    for traced in openb.read_pods(path):
        if traced.shape not in templates:
            templates[traced.shape] = _template(traced.shape)
        template, manifest = templates[traced.shape]
        metadata = msgspec.structs.replace(
            template.metadata, name=traced.name, uid=f"pod/{gpu.NAMESPACE}/{traced.name}"
        )
        pod = msgspec.structs.replace(template, metadata=metadata)
        duration = None if traced.duration is None else float(traced.duration)
        arrivals.pods.append(Arrival(pod, float(traced.created), duration, manifest))
    arrivals.pods.sort(key=lambda arrival: arrival.time)
    arrivals.summary.read["Pod"] = len(arrivals.pods)
    return arrivals


def _template(shape: PodShape) -> tuple[Pod, Object]:
    manifest = gpu.pod("", shape)
    Admission().admit(manifest, gpu.NAMESPACE)
    return convert(Pod, manifest), manifest
