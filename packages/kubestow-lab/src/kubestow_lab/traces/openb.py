"""Reader for the public trace of Alibaba's GPU cluster "openb".

A directory with one node list and one of several pod lists (CSV) becomes a workload: every pod of the list is submitted
in order of creation, regardless of its fate in the trace. The trace has no zones, taints, priorities or scheduling
gates, and none are added. :mod:`kubestow_lab.workloads.gpu` builds the Kubernetes objects.

An invalid file raises InputError with file, line, column and the expected value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kubestow.errors import InputError
from kubestow_lab.traces.tables import Row, rows
from kubestow_lab.workloads import gpu
from kubestow_lab.workloads.gpu import NodeShape, PodShape
from kubestow_lab.workloads.openb_shapes import ATTRIBUTION
from kubestow_lab.workloads.workload import DURATION, Object, Workload

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
#: What a pod's shape is read from.
_SHAPE_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos")
_TIME_COLUMNS = ("creation_time", "deletion_time")
_NODE_LIST, _POD_LIST = "openb_node_list_{}.csv", "openb_pod_list_{}.csv"


@dataclass(frozen=True, slots=True)
class TracePod:
    """A row of a pod list.

    ``created`` is in seconds since the start of the trace. ``duration`` is the run time in seconds, or the waiting time
    of a pod that never ran; None if the list has no times.
    """

    name: str
    shape: PodShape
    created: int = 0
    duration: int | None = None


def list_files(directory: Path, *, pod_list: str, node_list: str) -> tuple[Path, Path]:
    """The files of a node list and a pod list by their short names. Raises InputError with the available lists."""
    return _list_file(directory, _NODE_LIST, node_list), _list_file(directory, _POD_LIST, pod_list)


def read(directory: Path, *, pod_list: str = "default", node_list: str = "gpu_node", timed: bool = False) -> Workload:
    """Read the cluster and workload of a trace directory; lists have short names, such as ``gpuspec33``.

    With ``timed``, pods have their run time in the annotation ``kubestow.dev/duration`` for simulated nodes. Raises
    InputError for missing and invalid files.
    """
    node_file, pod_file = list_files(directory, pod_list=pod_list, node_list=node_list)
    nodes = [gpu.node(name, shape) for name, shape in read_nodes(node_file)]
    pods: list[Object] = []
    for pod in sorted(read_pods(pod_file, timed=timed), key=lambda pod: pod.created):
        pods.append(gpu.pod(pod.name, pod.shape))
        if timed and pod.duration is not None:
            pods[-1]["metadata"]["annotations"] = {DURATION: f"{pod.duration}s"}
    return Workload(
        title=f"openb, {len(nodes):,} nodes and the {len(pods):,} pods of the list {pod_list!r}",
        attribution=ATTRIBUTION,
        nodes=tuple(nodes),
        pods=tuple(pods),
    )


def read_nodes(path: Path) -> Iterator[tuple[str, NodeShape]]:
    """The name and shape of each node of a node list. Raises InputError."""
    for row in rows(path, _NODE_COLUMNS, unique="sn"):
        shape = NodeShape(row.integer("cpu_milli"), row.integer("memory_mib"), row.integer("gpu"), row.text("model"))
        if bool(shape.gpus) != bool(shape.model):
            raise row.error("model", "a GPU model if and only if the node has GPUs")
        yield row.name("sn"), shape


def read_pods(path: Path, *, timed: bool = False) -> Iterator[TracePod]:
    """Each pod of a pod list, in file order; ``timed`` requires the time columns. Raises InputError."""
    shapes: dict[tuple[str | None, ...], PodShape] = {}
    for row in rows(path, (*_POD_COLUMNS, *_TIME_COLUMNS) if timed else _POD_COLUMNS, unique="name"):
        texts = tuple([row.cells.get(column) for column in _SHAPE_COLUMNS])
        yield TracePod(
            name=row.name("name"),
            shape=shapes.get(texts) or shapes.setdefault(texts, _pod_shape(row)),
            created=row.integer("creation_time") if row.text("creation_time") else 0,
            duration=_duration(row),
        )


def _list_file(directory: Path, pattern: str, name: str) -> Path:
    """The file of a list. Raises InputError with the available lists."""
    if not directory.is_dir():
        raise InputError(str(directory), "no such directory, expected the CSV files of cluster-trace-gpu-v2023")
    path = directory / pattern.format(name)
    if path.is_file():
        return path
    prefix, suffix = pattern.split("{}")
    lists = sorted(p.name.removeprefix(prefix).removesuffix(suffix) for p in directory.glob(pattern.format("*")))
    raise InputError(str(path), f"no such file, available lists: {', '.join(lists) or 'none'}")


def _pod_shape(row: Row) -> PodShape:
    gpus, gpu_milli = row.integer("num_gpu"), row.integer("gpu_milli")
    if (gpus == 0 and gpu_milli) or (gpus == 1 and not 0 < gpu_milli <= 1000) or (gpus > 1 and gpu_milli != 1000):
        raise row.error("gpu_milli", "0 for a pod without GPUs, 1 to 1000 for one GPU, 1000 for several")
    qos = row.text("qos") or "Burstable"
    if qos not in gpu.QOS_CLASSES:
        raise row.error("qos", f"one of {', '.join(gpu.QOS_CLASSES)}")
    models = tuple(dict.fromkeys(filter(None, row.text("gpu_spec").split("|"))))
    return PodShape(row.integer("cpu_milli"), row.integer("memory_mib"), gpus, gpu_milli, qos, models)


def _duration(row: Row) -> int | None:
    if not row.text("deletion_time"):
        return None
    start = "scheduled_time" if row.text("scheduled_time") else "creation_time"
    duration = row.integer("deletion_time") - row.integer(start)
    if duration < 0:
        raise row.error("deletion_time", f"a time not earlier than {start}")
    return duration
