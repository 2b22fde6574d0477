"""The nodes and pods of a GPU cluster as Kubernetes objects.

Whole GPUs and GPU shares draw on one capacity. Every node has two extended resources:

- ``kubestow.dev/gpu-milli``, 1000 per GPU, is the common capacity. A pod with a GPU share requests its thousandths, a
pod
  with whole GPUs requests 1000 each, so that together they never exceed the node's capacity.
- ``nvidia.com/gpu``, the number of GPUs, is the name of the device plugin. Only pods with whole GPUs request it, in
  addition to their thousandths.

Limitation: the scheduler sees the sum per node, not the devices. A node with eight GPUs can get nine shares of 810; a
node with a share of 500 on each of its two GPUs has 1000 free and can get a pod with a whole GPU. The model therefore
accepts somewhat more pods than the hardware could run; exact placement needs dynamic resource allocation.

Requests and limits follow the quality of service of the trace: LS (latency sensitive) and Guaranteed pods have limits
equal to their requests (Kubernetes' Guaranteed). Burstable and BE (best effort) pods have CPU and memory requests
without limits (Kubernetes' Burstable): the trace has requests for BE pods, and as Kubernetes' BestEffort, 3,398 pods
would use no capacity. The label ``kubestow.dev/qos`` has the trace's own class. Extended resources always have limits,
as the API requires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kubestow_lab.workloads.workload import Object

#: Whole GPUs, the resource name of the NVIDIA device plugin.
GPU = "nvidia.com/gpu"
#: Thousandths of GPUs: 1000 per GPU.
GPU_MILLI = "kubestow.dev/gpu-milli"
#: The node label with the GPU model, set by NVIDIA GPU feature discovery.
GPU_MODEL = "nvidia.com/gpu.product"
#: The pod label with the quality of service in the trace.
QOS = "kubestow.dev/qos"

NAMESPACE = "default"
_PODS_PER_NODE = "110"
_IMAGE = "registry.k8s.io/pause:3.10"

QoS = Literal["LS", "Guaranteed", "Burstable", "BE"]
QOS_CLASSES: tuple[QoS, ...] = get_args(QoS)
_LIMITED: frozenset[QoS] = frozenset({"LS", "Guaranteed"})


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A node: allocatable millicores, MiB, number of GPUs and GPU model ("" without GPUs)."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class PodShape:
    """A pod: millicores, MiB, and ``gpus`` GPUs with ``gpu_milli`` thousandths each.

    One GPU with less than 1000 is a share. ``models`` are the allowed GPU models; empty allows all.
    """

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    qos: QoS
    models: tuple[str, ...] = ()

    @property
    def is_share(self) -> bool:
        """Whether the pod uses a part of one GPU."""
        return self.gpus == 1 and self.gpu_milli < 1000


def node(name: str, shape: NodeShape) -> Object:
    """A ready Node, labelled with its host name and GPU model."""
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
    """A Pod with required node affinity to its GPU models."""
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
    """A node selector term for nodes with one of these GPU models."""
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
    """CPU in canonical form: whole cores without a suffix."""
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def _memory(mebibytes: int) -> str:
    """Memory in canonical form: an integer with the largest possible binary suffix."""
    return f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes // 1024}Gi"
