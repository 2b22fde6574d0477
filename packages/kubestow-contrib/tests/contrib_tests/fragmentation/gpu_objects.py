"""Nodes and pods with GPUs."""

from __future__ import annotations

from kubestow.api.core import Node, Pod
from kubestow.testing import node, pod
from kubestow_contrib.fragmentation import TypicalPod

GPU, GPU_MILLI, MODEL = "nvidia.com/gpu", "kubestow.dev/gpu-milli", "nvidia.com/gpu.product"
INDEX = "kubestow.dev/gpu-index"

TYPICAL = (
    TypicalPod(cpu=4000, gpus=1, gpu_milli=500, count=5),
    TypicalPod(cpu=8000, gpus=1, count=3),
    TypicalPod(cpu=2000, count=2),
    TypicalPod(cpu=16000, gpus=2, count=1),
    TypicalPod(cpu=8000, gpus=1, gpu_milli=300, models=("T4",), count=2),
)


def gpu_node(name: str, gpus: int, *, cpu: str = "32", model: str = "T4") -> Node:
    amounts = {GPU: str(gpus), GPU_MILLI: str(1000 * gpus)} if gpus else {}
    return node(name, cpu=cpu, memory="256Gi", allocatable=amounts, labels={MODEL: model} if gpus else {})


def share(name: str, milli: int, *, cpu: str = "4", node: str = "", devices: str = "") -> Pod:
    metadata = {"annotations": {INDEX: devices}} if devices else None
    return pod(name, cpu=cpu, requests={GPU_MILLI: str(milli)}, node=node, metadata=metadata)


def whole(name: str, gpus: int, *, cpu: str = "4", node: str = "", devices: str = "") -> Pod:
    metadata = {"annotations": {INDEX: devices}} if devices else None
    return pod(name, cpu=cpu, requests={GPU: str(gpus), GPU_MILLI: str(1000 * gpus)}, node=node, metadata=metadata)
