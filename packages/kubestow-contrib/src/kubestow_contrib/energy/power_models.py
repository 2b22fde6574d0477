"""What nodes draw, in watts: by the models of their CPUs and GPUs, and by how much of both is requested.

A node has as many CPU packages as its allocatable CPU needs. With the granularity ``Device`` a package draws its
maximum as soon as one of its cores is requested, and a GPU as soon as a part of it is; the rest idles (Lettich et al.,
"Power- and Fragmentation-aware Online Scheduling for GPU Datacenters", CCGrid 2025, section III). With ``Proportional``
both draw in proportion to what is requested, from idle to maximum (Fan, Weber and Barroso, "Power Provisioning for a
Warehouse-sized Computer", ISCA 2007). The models know requests, not use.

Scores need differences only: how much more a node draws with a pod. Idle power is part of them where nodes without
pods are switched off.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow_contrib.fragmentation.devices import WHOLE, DeviceTable, GpuRequest, IdleDevices
from kubestow_contrib.fragmentation.gpu_sharing import GpuSharingArgs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_MILLI = 1000


class Granularity(StrEnum):
    """How much of a device draws its maximum: all of it, or the requested share."""

    DEVICE = "Device"
    PROPORTIONAL = "Proportional"


def _check_watts(idle: float, maximum: float) -> None:
    if not 0 <= idle <= maximum < math.inf:
        raise ValueError("expected 0 <= idle <= max")


class CpuPower(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A CPU package: watts when idle and at most, and its physical cores."""

    idle: float
    max: float
    cores: int

    def __post_init__(self) -> None:
        _check_watts(self.idle, self.max)
        if self.cores < 1:
            raise ValueError("cores must be at least 1")


class GpuPower(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A GPU: watts when idle and at most."""

    idle: float
    max: float

    def __post_init__(self) -> None:
        _check_watts(self.idle, self.max)


class PowerArgs(GpuSharingArgs, rename="camel", frozen=True, kw_only=True):
    """The models of CPUs and GPUs, by the values of two node labels; the model ``""`` is that of all other nodes.

    A core has ``threads_per_core`` CPUs of Kubernetes. With ``empty_nodes_off``, a node without pods draws nothing.
    """

    cpus: dict[str, CpuPower]
    gpus: dict[str, GpuPower] = {}
    cpu_model_label: str = "kubestow.dev/cpu-model"
    gpu_model_label: str = "nvidia.com/gpu.product"
    threads_per_core: int = 2
    granularity: Granularity = Granularity.DEVICE
    empty_nodes_off: bool = False

    def __post_init__(self) -> None:
        for name, models in (("cpus", self.cpus), ("gpus", self.gpus)):
            if "" not in models and (models or name == "cpus"):
                raise ValueError(f'{name} needs the model "", for nodes with none of the others')
        if self.threads_per_core < 1:
            raise ValueError("threadsPerCore must be at least 1")


class _Columns(NamedTuple):
    """The models over all rows: watts, float64; cores of a package, int64."""

    cpu_idle: Floats
    cpu_max: Floats
    cores: Integers
    gpu_idle: Floats
    gpu_max: Floats


class PowerModels:
    """The power of nodes and how much it rises with a pod; arrays have one entry per node."""

    def __init__(self, args: PowerArgs, cluster: Cluster) -> None:
        self._args, self._cluster = args, cluster
        self._columns: tuple[int, _Columns | None] = (-1, None)

    def power(self, nodes: Nodes, devices: DeviceTable) -> Floats:
        """What each node draws, in watts."""
        models, idle, counts = self._models(nodes), devices.idle(nodes), devices.counts(nodes)
        packages, active = self._packages(nodes, models, 0)
        watts = packages * models.cpu_idle + active * (models.cpu_max - models.cpu_idle)
        busy = counts - (idle.total / WHOLE if self._is_proportional else idle.whole)
        watts += counts * models.gpu_idle + busy * (models.gpu_max - models.gpu_idle)
        if self._args.empty_nodes_off:
            watts[nodes.pod_count == 0] = 0.0
        return watts

    def rise(self, nodes: Nodes, devices: DeviceTable, cpu: int, request: GpuRequest) -> Floats:
        """By how many watts each node draws more with a pod that fits there, given its millicores and GPUs.

        A share is taken from the GPU where that costs least.
        """
        models = self._models(nodes)
        packages, before = self._packages(nodes, models, 0)
        _, after = self._packages(nodes, models, cpu)
        watts: Floats = (after - before) * (models.cpu_max - models.cpu_idle)
        if request.gpus:
            watts += self._more_busy_gpus(devices.idle(nodes), request) * (models.gpu_max - models.gpu_idle)
        if self._args.empty_nodes_off:
            waking = packages * models.cpu_idle + devices.counts(nodes) * models.gpu_idle
            watts += np.where(nodes.pod_count == 0, waking, 0.0)
        return watts

    @property
    def _is_proportional(self) -> bool:
        return self._args.granularity is Granularity.PROPORTIONAL

    def _packages(self, nodes: Nodes, models: _Columns, cpu: int) -> tuple[Integers, Floats]:
        """The CPU packages of each node, and how many of them draw their maximum with so many millicores more."""
        allocatable, core = nodes.allocatable("cpu"), _MILLI * self._args.threads_per_core
        used = np.minimum(nodes.requested("cpu") + cpu, allocatable)
        packages = _quotient_up(_quotient_up(allocatable, core), models.cores)
        if self._is_proportional:
            share = np.divide(used, allocatable, out=np.zeros(len(nodes)), where=allocatable > 0)
            return packages, packages.astype(np.float64) * share
        return packages, _quotient_up(_quotient_up(used, core), models.cores).astype(np.float64)

    def _more_busy_gpus(self, idle: IdleDevices, request: GpuRequest) -> Floats:
        """How many GPUs draw their maximum with a request, beyond those that do already."""
        count = len(idle.total)
        if self._is_proportional:
            return np.full(count, request.total / WHOLE)
        if not request.is_share:
            return np.full(count, float(request.gpus))
        busy = ((idle.each >= request.milli) & (idle.each < WHOLE)).any(axis=1)
        return np.where(busy, 0.0, 1.0)

    def _models(self, nodes: Nodes) -> _Columns:
        """The models of some nodes."""
        table, args = self._cluster.nodes, self._args
        revision, columns = self._columns
        if columns is None or revision != table.revision:
            everywhere = self._cluster.all_nodes()

            def column(label: str, models: dict[str, Any], field: str, dtype: Any) -> Any:
                default = models.get("")

                def value(model: str | None) -> float:
                    found = models.get(model or "", default)
                    return 0.0 if found is None else getattr(found, field)

                return everywhere.by_label(label, value, dtype)

            columns = _Columns(
                column(args.cpu_model_label, args.cpus, "idle", np.float64),
                column(args.cpu_model_label, args.cpus, "max", np.float64),
                column(args.cpu_model_label, args.cpus, "cores", np.int64),
                column(args.gpu_model_label, args.gpus, "idle", np.float64),
                column(args.gpu_model_label, args.gpus, "max", np.float64),
            )
            self._columns = table.revision, columns
        rows, (cpu_idle, cpu_max, cores, gpu_idle, gpu_max) = nodes.rows, columns
        return _Columns(cpu_idle[rows], cpu_max[rows], cores[rows], gpu_idle[rows], gpu_max[rows])


def _quotient_up(amounts: Integers, by: Integers | int) -> Integers:
    """The quotients, rounded up."""
    quotients: Integers = -(-amounts // by)
    return quotients
