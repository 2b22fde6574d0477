"""Azure's traces: VM requests for packing (2020, SQLite), and VMs of a region (2017 and 2019, CSV without headers).

Tables and columns are documented at https://github.com/Azure/AzurePublicDataset.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from kubestow.errors import InputError
from kubestow_lab.traces.tables import Row, find_table, object_name, rows
from kubestow_lab.traces.trace import (
    Assumptions,
    ClusterTrace,
    PodTemplate,
    Task,
    assumed_nodes,
    assumption,
)
from kubestow_lab.workloads.gpu import NodeShape, PodShape

_ATTRIBUTION = "Microsoft, AzurePublicDataset: {} (CC-BY)"
_DAY = 86_400.0
#: Shares of a machine's disks and network, in millionths.
_SHARES = {name: f"trace.kubestow.dev/{name}-millionths" for name in ("hdd", "ssd", "nic")}
_VM_TABLE = (
    "vmid",
    "subscriptionid",
    "deploymentid",
    "vmcreated",
    "vmdeleted",
    "maxcpu",
    "avgcpu",
    "p95maxcpu",
    "vmcategory",
    "cores",
    "memory",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingAssumptions(Assumptions):
    """The cluster, of which the packing trace has only what share of a machine each VM type takes."""

    machine: int = assumption(-1, "machineId of all nodes; -1 is the one on which most of the requested VMs can run")
    cpu: float = assumption(64.0, "cores of a machine: the unit of the column core")
    memory: float = assumption(512.0, "GiB of a machine: the unit of the column memory")
    nodes: int = assumption(0, "number of nodes; 0 is what the trace needs at its peak, times the headroom")
    headroom: float = assumption(1.1, "nodes per node that the peak needs")
    before: bool = assumption(True, "VMs that were there at the start, with negative start times, arrive at 0")


def read_packing(path: Path, assumed: PackingAssumptions) -> ClusterTrace:
    """Read a zone of the packing trace. VMs whose type cannot run on the chosen machine are left out.

    A request of high priority (0) gets the priority 1000, one of low priority 0. Raises InputError for a file that is
    no such database.
    """
    if path.is_dir():
        path = next(iter(find_table(path, "packing_trace*.sqlite", "*.sqlite")))
    if not path.is_file():
        raise InputError(str(path), "no such file, expected packing_trace_zone_a_v1.sqlite")
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            types = connection.execute("SELECT vmTypeId, machineId, core, memory, hdd, ssd, nic FROM vmType").fetchall()
            requests = connection.execute(
                "SELECT vmId, tenantId, vmTypeId, priority, starttime, endtime FROM vm ORDER BY starttime"
            ).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise InputError(str(path), f"not the packing trace: {error}") from None
    by_machine: dict[int, dict[int, PodTemplate]] = defaultdict(dict)
    for type_id, machine, core, memory, *shares in types:
        shape = PodShape(
            math.ceil(1000 * assumed.cpu * (core or 0)), math.ceil(1024 * assumed.memory * (memory or 0)), 0, 0, "LS"
        )
        extra = zip(_SHARES.values(), (math.ceil(1e6 * (share or 0)) for share in shares), strict=True)
        by_machine[machine][type_id] = PodTemplate(shape, resources=tuple((name, n) for name, n in extra if n))
    frequency = Counter(request[2] for request in requests)
    machine = assumed.machine
    if machine < 0 and by_machine:
        machine = max(by_machine, key=lambda each: (sum(frequency[t] for t in by_machine[each]), -each))
    if machine not in by_machine:
        raise InputError("--assume", f"no machine {machine} in {path}, which has {sorted(by_machine)[:40]}")
    tasks: list[Task] = []
    left_out: Counter[str] = Counter()
    for vm, tenant, type_id, priority, start, end in requests:
        template = by_machine[machine].get(type_id)
        if template is None:
            left_out[f"VM whose type does not run on machine {machine}"] += 1
        elif start < 0 and not assumed.before:
            left_out["VM from before the start"] += 1
        else:
            created = max(0.0, start) * _DAY
            duration = None if end is None else max(0.0, end * _DAY - created)
            of_priority = PodTemplate(template.shape, 0 if priority else 1000, resources=template.resources)
            tasks.append(Task(f"vm-{vm}", of_priority, created, duration, queue=f"tenant-{tenant}"))
    shape_of_node = NodeShape(int(1000 * assumed.cpu), int(1024 * assumed.memory), 0, "")
    extra_of_node = dict.fromkeys(_SHARES.values(), 1_000_000)
    nodes = assumed_nodes(tasks, shape_of_node, count=assumed.nodes, headroom=assumed.headroom, resources=extra_of_node)
    return ClusterTrace(_ATTRIBUTION.format("AzureTracesForPacking2020"), nodes, tasks, left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class VmAssumptions(Assumptions):
    """The cluster, which the VM traces do not have, and the open buckets of 2019."""

    cpu: int = assumption(64, "cores of a node")
    memory: float = assumption(512.0, "GiB of a node")
    nodes: int = assumption(0, "number of nodes; 0 is what the trace needs at its peak, times the headroom")
    headroom: float = assumption(1.1, "nodes per node that the peak needs")
    cores_above: float = assumption(30.0, "cores of a VM in the open bucket, such as >24")
    memory_above: float = assumption(70.0, "GiB of a VM in the open bucket, such as >64")


def read_vms(folder: Path, assumed: VmAssumptions) -> ClusterTrace:
    """Read vmtable.csv of 2017, with amounts, or of 2019, with buckets. Raises InputError."""
    tasks: list[Task] = []
    for path in find_table(folder, "vmtable*.csv"):
        for row in rows(path, _VM_TABLE, names=_VM_TABLE):
            created, deleted = row.number("vmcreated"), row.number("vmdeleted")
            shape = PodShape(
                math.ceil(1000 * _bucket(row, "cores", assumed.cores_above)),
                math.ceil(1024 * _bucket(row, "memory", assumed.memory_above)),
                0,
                0,
                "LS" if row.text("vmcategory") == "Interactive" else "Burstable",
            )
            name = f"vm-{len(tasks)}"
            queue = object_name(row.text("subscriptionid"))
            tasks.append(Task(name, PodTemplate(shape), created, max(0.0, deleted - created), queue=queue))
    shape_of_node = NodeShape(1000 * assumed.cpu, int(1024 * assumed.memory), 0, "")
    nodes = assumed_nodes(tasks, shape_of_node, count=assumed.nodes, headroom=assumed.headroom)
    return ClusterTrace(_ATTRIBUTION.format("VM trace"), nodes, tasks)


def _bucket(row: Row, column: str, above: float) -> float:
    """An amount, or the upper end of its bucket."""
    return above if row.text(column).startswith(">") else row.number(column)
