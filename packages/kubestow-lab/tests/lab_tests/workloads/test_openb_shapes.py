"""The frequencies of shapes, compared with the trace and with its published totals."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kubestow_lab.traces import openb
from kubestow_lab.workloads import openb_shapes
from kubestow_lab.workloads.gpu import NodeShape, PodShape

_TRACE = Path(__file__).parents[6] / "shared" / "traces" / "openb"


@pytest.fixture
def trace() -> Path:
    if not _TRACE.is_dir():
        pytest.skip(f"the trace is not available: no directory {_TRACE}")
    return _TRACE


def _nodes(trace: Path) -> Counter[NodeShape]:
    return Counter(shape for _, shape in openb.read_nodes(trace / "openb_node_list_gpu_node.csv"))


def _pods(trace: Path, name: str = "default") -> Counter[PodShape]:
    return Counter(pod.shape for pod in openb.read_pods(trace / f"openb_pod_list_{name}.csv"))


def test_node_shapes_occur_as_often_as_in_the_trace(trace: Path) -> None:
    assert _nodes(trace) == openb_shapes.NODES


def test_pod_shapes_occur_as_often_as_in_the_trace(trace: Path) -> None:
    assert _pods(trace) == openb_shapes.PODS


def test_gpu_models_are_required_as_often_as_in_the_trace(trace: Path) -> None:
    required = Counter[tuple[str, ...]]()
    for shape, count in _pods(trace, "gpuspec33").items():
        required[shape.models] += count
    del required[()]
    assert required == openb_shapes.GPU_MODELS


def test_every_list_of_the_trace_is_readable(trace: Path) -> None:
    names = sorted(path.stem.removeprefix("openb_pod_list_") for path in trace.glob("openb_pod_list_*.csv"))
    assert len(names) == 24
    assert all(_pods(trace, name).total() > 4000 for name in names)


def test_the_workload_is_the_complete_trace(trace: Path) -> None:
    workload = openb.read(trace)
    assert (len(workload.nodes), len(workload.pods)) == (1213, 8152)
    assert workload.pods[0]["metadata"]["name"] == "openb-pod-0000"
    assert not workload.gate_removals and not workload.priority_classes


def test_the_cluster_has_the_published_totals() -> None:
    nodes = openb_shapes.NODES
    assert (len(nodes), sum(nodes.values())) == (15, 1213)
    assert sum(shape.cpu_milli * n for shape, n in nodes.items()) == 107_018_000
    assert sum(shape.memory_mib * n for shape, n in nodes.items()) == 503_828_480
    assert sum(shape.gpus * n for shape, n in nodes.items()) == 6_212


def test_gpus_by_model_are_as_published() -> None:
    gpus = Counter[str]()
    for shape, count in openb_shapes.NODES.items():
        gpus[shape.model] += shape.gpus * count
    assert gpus == {"G2": 4392, "T4": 842, "G3": 312, "P100": 265, "V100M32": 204, "V100M16": 195, "A10": 2}


def test_the_pods_have_the_published_totals() -> None:
    pods = openb_shapes.PODS
    assert sum(pods.values()) == 8152
    assert sum(shape.cpu_milli * n for shape, n in pods.items()) == 85_436_012
    assert sum(shape.gpus * shape.gpu_milli * n for shape, n in pods.items()) == 6_086_800
    assert sum(n for shape, n in pods.items() if shape.is_share) == 3_078


def test_pods_by_gpus_and_by_qos_are_as_published() -> None:
    gpus, qos = Counter[int](), Counter[str]()
    for shape, count in openb_shapes.PODS.items():
        gpus[shape.gpus] += count
        qos[shape.qos] += count
    assert gpus == {0: 1088, 1: 6989, 2: 16, 4: 15, 8: 44}
    assert qos == {"LS": 4647, "BE": 3398, "Burstable": 100, "Guaranteed": 7}


def test_there_are_151_pod_shapes_before_quality_of_service() -> None:
    shapes = {(shape.cpu_milli, shape.memory_mib, shape.gpus, shape.gpu_milli) for shape in openb_shapes.PODS}
    assert len(shapes) == 151
