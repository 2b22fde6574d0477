"""Alibaba's cluster traces of 2018, of GPU clusters in 2020 (PAI) and 2025 (DLRM serving), and of spot GPUs in 2026.

Tables and columns are documented at https://github.com/alibaba/clusterdata; the trace of 2023 is read by
:mod:`kubestow_lab.traces.openb`. CPU is in hundredths of a core unless a table says vCPUs.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from kubestow_lab.traces.tables import Row, find_table, object_name, rows
from kubestow_lab.traces.trace import (
    Assumptions,
    ClusterTrace,
    PodTemplate,
    Requirement,
    Task,
    TracedNode,
    assumed_nodes,
    assumption,
    gpu_amounts,
)
from kubestow_lab.workloads.gpu import NodeShape, PodShape

_ATTRIBUTION = "Alibaba, clusterdata: {}"
#: The label of the failure domains of 2018.
_DOMAIN = "trace.kubestow.dev/failure-domain-{}"

_MACHINE_META = (
    "machine_id",
    "time_stamp",
    "failure_domain_1",
    "failure_domain_2",
    "cpu_num",
    "mem_size",
    "status",
)
_CONTAINER_META = (
    "container_id",
    "machine_id",
    "time_stamp",
    "app_du",
    "status",
    "cpu_request",
    "cpu_limit",
    "mem_size",
)
_BATCH_TASK = (
    "task_name",
    "instance_num",
    "job_name",
    "task_type",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
)
_PAI_TASK = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
_PAI_JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_PAI_MACHINE = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
_DLRM = ("instance_sn", "role", "app_name", "cpu_request", "gpu_request", "memory_request", "creation_time")
_SPOT_NODE = ("node_name", "gpu_model", "gpu_capacity_num", "cpu_num")
_SPOT_JOB = (
    "job_name",
    "organization",
    "gpu_model",
    "cpu_request",
    "gpu_request",
    "worker_num",
    "submit_time",
    "duration",
    "job_type",
)
#: Percent of an RDMA network interface, as the DLRM trace counts it, and GiB of local disk.
_RDMA, _DISK = "trace.kubestow.dev/rdma-percent", "trace.kubestow.dev/disk-gib"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alibaba2018Assumptions(Assumptions):
    """What the trace of 2018 does not say."""

    memory: float = assumption(512.0, "GiB of the machine with most memory, to which amounts are normalised")
    containers: bool = assumption(True, "online containers are pods that run from their first record to the end")
    batch: bool = assumption(True, "instances of batch tasks are pods")


def read_2018(folder: Path, assumed: Alibaba2018Assumptions) -> ClusterTrace:
    """Read machine_meta, container_meta and batch_task. A batch task arrives when it started in the trace.

    So its dependencies on other tasks are in its time. Raises InputError with file, line and column.
    """
    # Amounts of memory are percentages of the largest machine.
    unit = 1024 * assumed.memory / 100
    machines: dict[str, TracedNode] = {}
    for path in find_table(folder, "machine_meta*.csv"):
        for row in rows(path, _MACHINE_META[:6], names=_MACHINE_META):
            name = object_name(row.text("machine_id"), prefix="machine-")
            shape = NodeShape(1000 * row.count("cpu_num"), round(row.number("mem_size") * unit), 0, "")
            domains = {
                _DOMAIN.format(i): row.text(f"failure_domain_{i}") for i in (1, 2) if row.has(f"failure_domain_{i}")
            }
            machines.setdefault(name, TracedNode(name, shape, domains))
    tasks: list[Task] = []
    left_out: Counter[str] = Counter()
    seen: set[str] = set()
    for path in find_table(folder, "container_meta*.csv") if assumed.containers else ():
        for row in rows(path, _CONTAINER_META[:7], names=_CONTAINER_META):
            if row.text("container_id") in seen:
                continue
            seen.add(row.text("container_id"))
            memory = max(0.0, row.number("mem_size", default=0, least=-1)) * unit
            shape_of_pod = PodShape(10 * row.count("cpu_request"), round(memory), 0, 0, "LS")
            name = object_name(row.text("container_id"), prefix="container-")
            template = PodTemplate(shape_of_pod, priority=1000)
            tasks.append(Task(name, template, row.number("time_stamp"), None, queue=row.text("app_du")))
    for path in find_table(folder, "batch_task*.csv") if assumed.batch else ():
        for row in rows(path, _BATCH_TASK[:7], names=_BATCH_TASK):
            start, end = row.number("start_time", default=0), row.number("end_time", default=0)
            if not start:
                left_out["batch task without a start"] += 1
                continue
            count = row.count("instance_num", default=1)
            memory = max(0.0, row.number("plan_mem", default=0, least=-1)) * unit
            cpu = math.ceil(10 * row.number("plan_cpu", default=0))
            template = PodTemplate(PodShape(cpu, round(memory), 0, 0, "BE"))
            name = object_name(f"{row.text('job_name')}-{row.text('task_name')[:20]}")
            tasks.append(Task(name, template, start, end - start if end > start else None, count))
    return ClusterTrace(_ATTRIBUTION.format("cluster-trace-v2018"), list(machines.values()), tasks, left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu2020Assumptions(Assumptions):
    """What the trace of PAI does not say."""

    gpu_type: str = assumption(
        "required", "required: a task needs the GPU type that it was given; any: it may have any"
    )


def read_gpu_2020(folder: Path, assumed: Gpu2020Assumptions) -> ClusterTrace:
    """Read pai_task_table and pai_machine_spec, and the times of submission from pai_job_table if it is there.

    A task's instances are pods. More than one GPU is whole GPUs, rounded up. Raises InputError.
    """
    nodes = []
    for path in find_table(folder, "pai_machine_spec*.csv"):
        for row in rows(path, _PAI_MACHINE, names=_PAI_MACHINE):
            gpus = row.count("cap_gpu", default=0)
            shape = NodeShape(
                1000 * row.count("cap_cpu"), round(1024 * row.number("cap_mem")), gpus, _model(row) if gpus else ""
            )
            nodes.append(TracedNode(object_name(row.text("machine"), prefix="machine-"), shape))
    submitted: dict[str, float] = {}
    for path in find_table(folder, "pai_job_table*.csv", is_required=False):
        for row in rows(path, _PAI_JOB[:5], names=_PAI_JOB):
            if row.has("start_time"):
                submitted[row.text("job_name")] = row.number("start_time")
    tasks = []
    left_out: Counter[str] = Counter()
    for path in find_table(folder, "pai_task_table*.csv"):
        for row in rows(path, _PAI_TASK[:9], names=_PAI_TASK):
            job = row.text("job_name")
            start = row.number("start_time") if row.has("start_time") else submitted.get(job)
            if start is None:
                left_out["task that was never submitted"] += 1
                continue
            end = row.number("end_time") if row.has("end_time") else None
            percent = row.number("plan_gpu", default=0)
            gpus, gpu_milli = gpu_amounts(percent / 100)
            cpu, memory = math.ceil(10 * row.number("plan_cpu", default=0)), row.number("plan_mem", default=0)
            is_typed = gpus and assumed.gpu_type == "required" and row.has("gpu_type")
            models = (_model(row),) if is_typed else ()
            template = PodTemplate(PodShape(cpu, math.ceil(1024 * memory), gpus, gpu_milli, "BE", models))
            tasks.append(
                Task(
                    object_name(f"{job}-{row.text('task_name')[:20]}"),
                    template,
                    min(start, submitted.get(job, start)),
                    None if end is None else max(0.0, end - start),
                    count := row.count("inst_num", default=1),
                    is_gang=count > 1,
                )
            )
    return ClusterTrace(_ATTRIBUTION.format("cluster-trace-gpu-v2020 (CC-BY 4.0)"), nodes, tasks, left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu2025Assumptions(Assumptions):
    """The machines, which the trace does not have, and when instances start that were there before it."""

    gpu_node_cpu: int = assumption(128, "cores of a GPU node (HN)")
    gpu_node_memory: float = assumption(1024.0, "GiB of a GPU node")
    gpu_node_gpus: int = assumption(8, "GPUs of a GPU node")
    gpu_node_rdma: int = assumption(200, "percent of an RDMA interface of a GPU node: two interfaces")
    gpu_node_disk: int = assumption(8192, "GiB of local disk of a GPU node")
    cpu_node_cpu: int = assumption(128, "cores of a CPU node (CN)")
    cpu_node_memory: float = assumption(1024.0, "GiB of a CPU node")
    cpu_node_rdma: int = assumption(100, "percent of an RDMA interface of a CPU node: one interface")
    cpu_node_disk: int = assumption(2048, "GiB of local disk of a CPU node")
    gpu_nodes: int = assumption(0, "number of GPU nodes; 0 is what the trace needs at its peak, times the headroom")
    cpu_nodes: int = assumption(0, "number of CPU nodes; 0 is what the trace needs at its peak, times the headroom")
    headroom: float = assumption(1.1, "nodes per node that the peak needs")


def read_gpu_2025(folder: Path, assumed: Gpu2025Assumptions) -> ClusterTrace:
    """Read disaggregated_DLRM_trace.csv: an instance is a pod, its limit per node an extended resource.

    Raises InputError with file, line and column.
    """
    by_role: dict[str, list[Task]] = {"HN": [], "CN": []}
    for path in find_table(folder, "disaggregated_DLRM_trace*.csv"):
        for row in rows(path, _DLRM, unique="instance_sn"):
            role = row.text("role")
            if role not in by_role:
                raise row.error("role", "CN or HN")
            limit = int(row.number("max_instance_per_node", default=-1, least=-1))
            extra = [
                (name, math.ceil(row.number(column, default=0)))
                for name, column in ((_RDMA, "rdma_request"), (_DISK, "disk_request"))
            ]
            shape = PodShape(
                math.ceil(1000 * row.number("cpu_request")),
                math.ceil(1024 * row.number("memory_request")),
                *gpu_amounts(row.count("gpu_request")),
                "LS",
            )
            template = PodTemplate(
                shape,
                requirements=(Requirement(_ROLE, "In", (role.lower(),)),),
                resources=tuple((name, amount) for name, amount in extra if amount),
                app=object_name(row.text("app_name")) if limit > 0 else "",
                most_per_node=max(0, limit),
            )
            created, end = row.number("creation_time", default=0), None
            if row.has("deletion_time"):
                end = row.number("deletion_time")
            duration = None if end is None else max(0.0, end - row.number("scheduled_time", default=created))
            name = object_name(row.text("instance_sn"))
            by_role[role].append(Task(name, template, created, duration, queue=row.text("app_name")))
    gpu_node = NodeShape(1000 * assumed.gpu_node_cpu, int(1024 * assumed.gpu_node_memory), assumed.gpu_node_gpus, "HN")
    cpu_node = NodeShape(1000 * assumed.cpu_node_cpu, int(1024 * assumed.cpu_node_memory), 0, "")
    nodes: list[TracedNode] = []
    for role, node_shape, wanted, extra_of_node in (
        ("HN", gpu_node, assumed.gpu_nodes, {_RDMA: assumed.gpu_node_rdma, _DISK: assumed.gpu_node_disk}),
        ("CN", cpu_node, assumed.cpu_nodes, {_RDMA: assumed.cpu_node_rdma, _DISK: assumed.cpu_node_disk}),
    ):
        equal = assumed_nodes(
            by_role[role],
            node_shape,
            count=wanted,
            headroom=assumed.headroom,
            prefix=role.lower(),
            resources=extra_of_node,
        )
        nodes += (replace(node, labels={_ROLE: role.lower()}) for node in equal)
    tasks = [*by_role["HN"], *by_role["CN"]]
    return ClusterTrace(_ATTRIBUTION.format("cluster-trace-gpu-v2025 (Yang et al., NSDI 2025)"), nodes, tasks)


#: The label and affinity for the role of a node of the DLRM trace.
_ROLE = "trace.kubestow.dev/role"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot2026Assumptions(Assumptions):
    """What the trace of spot GPUs does not say."""

    node_memory: float = assumption(1024.0, "GiB of a node; pods request none")
    priority: int = assumption(1000, "priority of HP jobs; that of Spot jobs is 0")


def read_spot_2026(folder: Path, assumed: Spot2026Assumptions) -> ClusterTrace:
    """Read node_info_df.csv and job_info_df.csv: a job's workers are pods. Raises InputError."""
    memory_mib = int(1024 * assumed.node_memory)
    nodes = []
    for path in find_table(folder, "node_info_df*.csv"):
        for row in rows(path, _SPOT_NODE, unique="node_name"):
            gpus = row.count("gpu_capacity_num")
            shape = NodeShape(1000 * row.count("cpu_num"), memory_mib, gpus, object_name(row.text("gpu_model")))
            nodes.append(TracedNode(object_name(row.text("node_name"), prefix="node-"), shape))
    tasks = []
    for path in find_table(folder, "job_info_df*.csv"):
        for row in rows(path, _SPOT_JOB):
            kind = row.text("job_type").upper()
            if kind not in ("HP", "SPOT"):
                raise row.error("job_type", "HP or Spot")
            gpus, gpu_milli = gpu_amounts(row.number("gpu_request"))
            models = (object_name(row.text("gpu_model")),) if gpus and row.has("gpu_model") else ()
            shape_of_pod = PodShape(math.ceil(1000 * row.number("cpu_request")), 0, gpus, gpu_milli, "BE", models)
            tasks.append(
                Task(
                    object_name(row.text("job_name"), prefix="job-"),
                    PodTemplate(shape_of_pod, assumed.priority if kind == "HP" else 0),
                    row.number("submit_time"),
                    row.number("duration"),
                    count := row.count("worker_num", default=1),
                    row.text("organization"),
                    is_gang=count > 1,
                )
            )
    return ClusterTrace(_ATTRIBUTION.format("cluster-trace-v2026-spot-gpu (Duan et al., ASPLOS 2026)"), nodes, tasks)


def _model(row: Row) -> str:
    return object_name(row.text("gpu_type"))
