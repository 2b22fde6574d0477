"""Logs of clusters that train models: Philly (Microsoft), Helios (SenseTime), Acme (Shanghai AI Lab), MIT Supercloud.

Their formats are documented at github.com/msr-fiddle/philly-traces, S-Lab-System-Group/HeliosData, InternLM/AcmeTrace
and MIT-AI-Accelerator/MIT-Supercloud-Dataset. They are logs of jobs: what ran, on how many GPUs and nodes, and when.
The pods of a job start and end together, and are gangs with the assumption ``gangs``.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kubestow.errors import InputError
from kubestow.files import MAX_DUMP, as_utf8, read_file
from kubestow_lab.traces.tables import Row, find_table, object_name, parse_moment, rows
from kubestow_lab.traces.trace import (
    Assumptions,
    ClusterTrace,
    PodTemplate,
    Task,
    TracedNode,
    assumption,
    gpu_amounts,
    uniform_nodes,
)
from kubestow_lab.workloads.gpu import NodeShape, PodShape

_HELIOS = ("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time", "duration")
_ACME = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state", "submit_time", "duration")
_SLURM = ("id_job", "id_user", "time_submit", "time_start", "time_end", "tres_req")
#: Trackable resources of Slurm by number: CPUs, memory in MiB, nodes, and the two GPU types of the Supercloud.
_CPU, _MEMORY, _NODES, _TESLA, _VOLTA = "1", "2", "4", "1001", "1002"


class _Detail(msgspec.Struct):
    ip: str = ""
    gpus: list[str] = []


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Detail] = []


class _PhillyJob(msgspec.Struct):
    jobid: str
    submitted_time: str
    status: str = ""
    vc: str = ""
    user: str | None = None
    attempts: list[_Attempt] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class PhillyAssumptions(Assumptions):
    """What the log of Philly does not say."""

    cpu_per_gpu: float = assumption(4.0, "cores that a pod requests for each of its GPUs")
    node_cpu_per_gpu: float = assumption(6.0, "cores of a node for each of its GPUs")
    node_memory: float = assumption(512.0, "GiB of a node; pods request none")
    pods: str = assumption("server", "server: a pod for each server of the first attempt, with its GPUs; gpu: one each")


def read_philly(folder: Path, assumed: PhillyAssumptions) -> ClusterTrace:
    """Read cluster_job_log and cluster_machine_list. Jobs without an attempt on GPUs are left out.

    A job runs as long as its attempts did in all; one whose last attempt has no end does not end. Raises InputError.
    """
    (machines,) = find_table(folder, "cluster_machine_list*")[:1]
    nodes = []
    for row in rows(machines, ("machineId", "number of GPUs"), unique="machineId"):
        gpus = row.count("number of GPUs")
        model = object_name(row.text("single GPU mem") or "gpu", prefix="gpu-")
        shape = NodeShape(
            int(1000 * assumed.node_cpu_per_gpu * max(1, gpus)), int(1024 * assumed.node_memory), gpus, model
        )
        nodes.append(TracedNode(object_name(row.text("machineId")), shape))
    (log,) = find_table(folder, "cluster_job_log*")[:1]
    try:
        jobs = msgspec.json.decode(as_utf8(read_file(log, limit=MAX_DUMP), str(log)), type=list[_PhillyJob])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(log), f"expected a list of jobs in JSON: {error}") from None
    tasks, left_out = [], Counter[str]()
    for index, job in enumerate(jobs):
        servers = [len(detail.gpus) for detail in job.attempts[0].detail if detail.gpus] if job.attempts else []
        if not servers:
            left_out["job without an attempt on GPUs"] += 1
            continue
        at = _Position(log, index)
        created, duration = at.moment("submitted_time", job.submitted_time), _run_time(job, at)
        name = object_name(job.jobid.removeprefix("application_"), prefix="job-")
        pods = Counter(servers) if assumed.pods == "server" else Counter({1: sum(servers)})
        for gpus, count in sorted(pods.items(), reverse=True):
            template = PodTemplate(PodShape(math.ceil(1000 * assumed.cpu_per_gpu * gpus), 0, gpus, 1000, "BE"))
            part = name if len(pods) == 1 else f"{name}-gpu{gpus}"
            is_gang, of_job = sum(pods.values()) > 1, name if len(pods) > 1 else ""
            tasks.append(Task(part, template, created, duration, count, job.vc, is_gang=is_gang, job=of_job))
    return ClusterTrace("Microsoft, philly-traces (Jeon et al., ATC 2019)", nodes, tasks, left_out)


@dataclass(frozen=True, slots=True)
class _Position:
    """Where a job is in the log, for error messages."""

    path: Path
    index: int

    def moment(self, name: str, text: str) -> float:
        try:
            return parse_moment(text)
        except ValueError:
            problem = f"expected a date and time such as 2017-10-07 01:11:39, got {text!r}"
            raise InputError(str(self.path), problem, place=f"[{self.index}].{name}") from None


def _run_time(job: _PhillyJob, at: _Position) -> float | None:
    """The time of all attempts; attempts without a start count nothing; None if the last one has not ended."""
    if not job.attempts[-1].end_time or job.attempts[-1].end_time == "None":
        return None
    ran = 0.0
    for attempt in job.attempts:
        if attempt.start_time and attempt.end_time and "None" not in (attempt.start_time, attempt.end_time):
            ran += at.moment("end_time", attempt.end_time) - at.moment("start_time", attempt.start_time)
    return max(0.0, ran)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeliosAssumptions(Assumptions):
    """What the logs of Helios do not say."""

    node_gpus: int = assumption(8, "GPUs of a node")
    node_cpu: int = assumption(48, "cores of a node")
    node_memory: float = assumption(376.0, "GiB of a node; pods request none")
    nodes: int = assumption(0, "number of nodes; 0 is the largest total of cluster_gpu_number.csv / GPUs of a node")


def read_helios(folder: Path, assumed: HeliosAssumptions) -> ClusterTrace:
    """Read cluster_log.csv and cluster_gpu_number.csv of one cluster, such as ``data/Venus``. Raises InputError."""
    count = assumed.nodes
    if not count:
        (numbers,) = find_table(folder, "cluster_gpu_number*.csv")[:1]
        count = math.ceil(max(row.number("total") for row in rows(numbers, ("date", "total"))) / assumed.node_gpus)
    nodes = _gpu_nodes(count, assumed.node_cpu, assumed.node_memory, assumed.node_gpus)
    tasks: list[Task] = []
    for path in find_table(folder, "cluster_log*.csv"):
        tasks += (_job(row, 0.0, row.text("vc")) for row in rows(path, _HELIOS))
    return ClusterTrace("SenseTime, HeliosData (Hu et al., SC 2021)", nodes, tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeAssumptions(Assumptions):
    """What the logs of Acme do not say; the nodes are those of the paper's table 1."""

    cluster: str = assumption("seren", "seren or kalos")
    nodes: int = assumption(0, "number of nodes; 0 is 286 of Seren, 302 of Kalos")
    node_gpus: int = assumption(8, "GPUs of a node")
    node_cpu: int = assumption(128, "cores of a node")
    node_memory: float = assumption(0.0, "GiB of a node; 0 is 1,024 of Seren, 2,048 of Kalos")


def read_acme(folder: Path, assumed: AcmeAssumptions) -> ClusterTrace:
    """Read trace_seren.csv or trace_kalos.csv. Raises InputError."""
    known = {"seren": (286, 1024.0), "kalos": (302, 2048.0)}
    if assumed.cluster not in known:
        raise InputError("--assume", f"expected cluster=seren or cluster=kalos, got {assumed.cluster!r}")
    count, memory = known[assumed.cluster]
    nodes = _gpu_nodes(assumed.nodes or count, assumed.node_cpu, assumed.node_memory or memory, assumed.node_gpus)
    tasks = []
    for path in find_table(folder, f"trace_{assumed.cluster}*.csv", f"job_trace/trace_{assumed.cluster}*.csv"):
        for row in rows(path, _ACME):
            gibibytes = row.number("mem_per_pod_GB", default=0)
            tasks.append(_job(row, gibibytes, row.text("type")))
    return ClusterTrace("Shanghai AI Laboratory, AcmeTrace (Hu et al., NSDI 2024)", nodes, tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupercloudAssumptions(Assumptions):
    """The nodes of TX-GAIA, from the dataset's paper."""

    gpu_nodes: int = assumption(224, "nodes with GPUs")
    gpu_node_gpus: int = assumption(2, "GPUs of such a node")
    gpu_node_cpu: int = assumption(40, "cores of such a node")
    gpu_node_memory: float = assumption(384.0, "GiB of such a node")
    cpu_nodes: int = assumption(480, "nodes without GPUs")
    cpu_node_cpu: int = assumption(48, "cores of such a node")
    cpu_node_memory: float = assumption(192.0, "GiB of such a node")


def read_supercloud(folder: Path, assumed: SupercloudAssumptions) -> ClusterTrace:
    """Read slurm-log.csv: what a job requested is in ``tres_req``, by numbers of trackable resources.

    Jobs that never started are left out. Raises InputError.
    """
    gpu_nodes = _gpu_nodes(
        assumed.gpu_nodes, assumed.gpu_node_cpu, assumed.gpu_node_memory, assumed.gpu_node_gpus, prefix="gpu"
    )
    cpu_shape = NodeShape(1000 * assumed.cpu_node_cpu, int(1024 * assumed.cpu_node_memory), 0, "")
    tasks, left_out = [], Counter[str]()
    for path in find_table(folder, "slurm-log*.csv", "scheduler-log*.csv", "labelled-slurm-log*.csv"):
        for row in rows(path, _SLURM):
            start, end = row.number("time_start", default=0), row.number("time_end", default=0)
            if not start:
                left_out["job that never started"] += 1
                continue
            tres = _tres(row)
            pods = max(1, int(tres.get(_NODES, 1)))
            gpus = math.ceil((tres.get(_TESLA, 0) + tres.get(_VOLTA, 0)) / pods)
            shape = PodShape(
                math.ceil(1000 * tres.get(_CPU, 1) / pods),
                math.ceil(tres.get(_MEMORY, 0) / pods),
                *gpu_amounts(gpus),
                "BE",
            )
            duration = end - start if end >= start else None
            name, queue = f"job-{object_name(row.text('id_job'))}", f"user-{object_name(row.text('id_user'))}"
            created = row.number("time_submit")
            tasks.append(Task(name, PodTemplate(shape), created, duration, pods, queue, is_gang=pods > 1))
    nodes = [*gpu_nodes, *uniform_nodes(assumed.cpu_nodes, cpu_shape, prefix="cpu")]
    return ClusterTrace("MIT Supercloud Dataset (Samsi et al., HPEC 2021)", nodes, tasks, left_out)


def _tres(row: Row) -> dict[str, float]:
    amounts: dict[str, float] = {}
    for part in filter(None, row.text("tres_req").split(",")):
        number, _, amount = part.strip().partition("=")
        try:
            amounts[number] = float(amount)
        except ValueError:
            raise row.error("tres_req", "numbers of resources with amounts, such as 1=20,2=170000,4=1") from None
    return amounts


def _gpu_nodes(count: int, cpu: int, memory: float, gpus: int, *, prefix: str = "node") -> list[TracedNode]:
    return uniform_nodes(count, NodeShape(1000 * cpu, int(1024 * memory), gpus, "gpu"), prefix=prefix)


def _job(row: Row, gibibytes: float, queue: str) -> Task:
    """A job of Helios or Acme: as many pods as it had nodes, which share its GPUs and CPUs."""
    pods = max(1, row.count("node_num", default=1))
    gpus = math.ceil(row.number("gpu_num", default=0) / pods)
    cpu_milli = math.ceil(1000 * row.number("cpu_num", default=0) / pods)
    shape = PodShape(cpu_milli, math.ceil(1024 * gibibytes), *gpu_amounts(gpus), "BE")
    name = object_name(row.text("job_id"), prefix="job-")
    created, duration = row.moment("submit_time"), row.number("duration", default=0)
    return Task(name, PodTemplate(shape), created, duration, pods, queue, is_gang=pods > 1)
