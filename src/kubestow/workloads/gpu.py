"""The nodes and pods of a GPU cluster as Kubernetes objects.

The modelling decision is how whole GPUs and shares of GPUs draw on one capacity. Every node offers two resources:

- ``kubestow.dev/gpu-milli``, a thousand for each GPU: the ledger. A pod with a share asks for its thousandths; a pod
  with whole GPUs asks for a thousand each. So shares and whole GPUs together never exceed what the node has.
- ``nvidia.com/gpu``, the number of GPUs: the name that the device plugin and every manifest use. Only pods with whole
  GPUs ask for it, besides their thousandths.

Its limit: a scheduler that counts resources sees the sum of a node, not its devices. A node of eight GPUs may be given
nine shares of 810; a node with a share of 500 on each of its two GPUs shows a thousand free, and is given a pod that
wants a whole one. So this model places somewhat more than the hardware could; telling devices apart takes dynamic
resource allocation.

Quality of service comes from requests and limits. What the trace calls LS (latency sensitive) and Guaranteed gets
limits equal to its requests, Kubernetes' Guaranteed. Burstable and BE (best effort) get CPU and memory requests without
limits, Kubernetes' Burstable: the trace states what BE pods ask for, and a Kubernetes BestEffort pod asks for nothing,
so dropping the figures would place 3,398 pods for free. The trace's own word stays on the pod as the label
``kubestow.dev/qos``. Extended resources always have limits, as the API demands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kubestow.workloads.workload import Object

__all__ = [
    "GPU",
    "GPU_MILLI",
    "GPU_MODEL",
    "NAMESPACE",
    "QOS",
    "QOS_CLASSES",
    "NodeShape",
    "PodShape",
    "QoS",
    "model_term",
    "node",
    "pod",
]

#: Whole GPUs, as the NVIDIA device plugin names them.
GPU = "nvidia.com/gpu"
#: Thousandths of GPUs, whole ones included: 1000 for each GPU.
GPU_MILLI = "kubestow.dev/gpu-milli"
#: The node label with the GPU's model, as NVIDIA's GPU feature discovery names it.
GPU_MODEL = "nvidia.com/gpu.product"
#: The pod label with the trace's own quality of service.
QOS = "kubestow.dev/qos"

NAMESPACE = "default"
_PODS_PER_NODE = "110"
_IMAGE = "registry.k8s.io/pause:3.10"

QoS = Literal["LS", "Guaranteed", "Burstable", "BE"]
QOS_CLASSES: tuple[QoS, ...] = get_args(QoS)
_LIMITED: frozenset[QoS] = frozenset({"LS", "Guaranteed"})


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A node: allocatable millicores, MiB, number of GPUs and their model ("" when it has none)."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class PodShape:
    """A pod: millicores, MiB, and ``gpus`` GPUs of each of which it takes ``gpu_milli`` thousandths.

    One GPU with fewer than 1000 is a share. ``models`` are the GPU models it may use, none meaning any.
    """

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    qos: QoS
    models: tuple[str, ...] = ()

    @property
    def is_share(self) -> bool:
        """Whether the pod takes a part of one GPU."""
        return self.gpus == 1 and self.gpu_milli < 1000


def node(name: str, shape: NodeShape) -> Object:
    """A ready Node of a shape, labelled with its host name and GPU model."""
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if shape.model:
        labels[GPU_MODEL] = shape.model
    resources = {"cpu": _cores(shape.cpu_milli), "memory": _memory(shape.memory_mib), "pods": _PODS_PER_NODE}
    if shape.gpus:
        resources |= {GPU: str(shape.gpus), GPU_MILLI: str(1000 * shape.gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": dict(resources),
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def pod(name: str, shape: PodShape) -> Object:
    """A Pod of a shape, bound to its GPU models by required node affinity."""
    spec: Object = {"containers": [{"name": "main", "image": _IMAGE, "resources": _requirements(shape)}]}
    if shape.models:
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [model_term(shape.models)]}
            }
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {QOS: shape.qos}},
        "spec": spec,
    }


def model_term(names: Sequence[str]) -> Object:
    """The node selector term for nodes with one of these GPU models."""
    return {"matchExpressions": [{"key": GPU_MODEL, "operator": "In", "values": list(names)}]}


def _requirements(shape: PodShape) -> Object:
    basic = {"cpu": _cores(shape.cpu_milli)}
    if shape.memory_mib:
        basic["memory"] = _memory(shape.memory_mib)
    extended = {}
    if shape.gpus:
        extended[GPU_MILLI] = str(shape.gpus * shape.gpu_milli)
    if shape.gpus and not shape.is_share:
        extended[GPU] = str(shape.gpus)
    limits = basic | extended if shape.qos in _LIMITED else extended
    return {"requests": basic | extended} | ({"limits": dict(limits)} if limits else {})


def _cores(millicores: int) -> str:
    """CPU as the API server writes it: whole cores where they are whole."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def _memory(mebibytes: int) -> str:
    """Memory as the API server writes it: in the largest binary unit that keeps it whole."""
    return f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes // 1024}Gi"
