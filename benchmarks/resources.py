"""Volumes and devices, the core alone."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import Any

from benchmarks.clusters import HOSTNAME, ZONE, Engine, node, pod
from benchmarks.harness import Rows
from kubestow.api.meta import convert
from kubestow.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kubestow.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.plugins.dynamic_resources.dynamic_resources import DynamicResources
from kubestow.testing.storage import mounting

# -- volumes -----------------------------------------------------------------------------------------------------------

_CSI_DRIVER = "csi.example.com"


def volumes(nodes: int = 5000, pods: int = 5000, fill: int = 50_000) -> Rows:
    """Pods with volumes: decide, reserve, assume, on nodes with a limit of 39 volumes.

    Three workloads, with a claim (and so a shape) per pod: bound CSI volumes with node affinity to one of three zones;
    local volumes that are bound when the pod is placed; and dynamically provisioned volumes with capacity tracking. For
    the first also the time per pod before and after many others are placed. Elapsed time, without the binding.
    """
    engine = _VolumeEngine(nodes)
    costs = [engine.schedule_bound(start, pods) for start in range(0, fill, pods)]
    for case, cost in ((f"bound CSI volumes, the first {pods:,}", costs[0]), (f"after {fill - pods:,}", costs[-1])):
        yield case, {"pods/s": 1 / cost, "µs each": cost * 1e6}
    for case, prepare in (("local volumes", _VolumeEngine.put_local), ("volumes provisioned", _VolumeEngine.put_class)):
        engine = _VolumeEngine(nodes)
        cost = engine.reserve(engine.claiming(pods, prepare(engine)))
        yield f"{case} on placement", {"pods/s": 1 / cost, "µs each": cost * 1e6}


class _VolumeEngine(Engine):
    """The engine with volumes, and what the volume controller does."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        self._names = list(self.cluster.nodes.names)
        for name in self._names:
            drivers = [{"name": _CSI_DRIVER, "nodeID": name, "allocatable": {"count": 39}}]
            self._put(CSINode, {"metadata": {"name": name}, "spec": {"drivers": drivers}})

    def _put(self, kind: type[Any], manifest: dict[str, Any]) -> None:
        self.cluster.catalog(kind).put(convert(kind, manifest))

    def _put_volume(self, name: str, key: str, value: str, **spec: Any) -> None:
        terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
        affinity = {"required": {"nodeSelectorTerms": terms}}
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nodeAffinity": affinity, **spec}
        self._put(PersistentVolume, {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}})

    def _pods(self, numbers: range, **spec: Any) -> list[PodInfo]:
        """Pods with a claim each, bound if it has a volumeName."""
        bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}} if "volume_prefix" in spec else {}
        prefix = spec.pop("volume_prefix", None)
        for n in numbers:
            metadata = {"name": f"claim-{n}", "namespace": "default", "uid": f"claim-uid-{n}", **bound}
            named = {"volumeName": f"{prefix}-{n}"} if prefix else {}
            requested = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            self._put(PersistentVolumeClaim, {"metadata": metadata, "spec": {**requested, **named, **spec}})
        return self.infos(pod(n, cpu="1m", memory="1Mi", spec=mounting(f"claim-{n}")) for n in numbers)

    def schedule_bound(self, start: int, count: int) -> float:
        """Schedule pods with a bound CSI volume each; the seconds per pod."""
        for n in range(start, start + count):
            csi = {"driver": _CSI_DRIVER, "volumeHandle": f"handle-{n}"}
            claim_ref = {"namespace": "default", "name": f"claim-{n}", "uid": f"claim-uid-{n}"}
            self._put_volume(f"pv-{n}", ZONE, f"zone-{n % 3}", csi=csi, claimRef=claim_ref)
        return self.reserve(self._pods(range(start, start + count), volume_prefix="pv", storageClassName="fast"))

    def claiming(self, count: int, storage_class: str) -> list[PodInfo]:
        """Pods with an unbound claim each."""
        return self._pods(range(count), storageClassName=storage_class)

    def put_local(self) -> str:
        """Two local volumes per node; their storage class."""
        self._put_storage_class("local", "kubernetes.io/no-provisioner")
        for n in range(2 * len(self._names)):
            self._put_volume(f"local-{n}", HOSTNAME, self._names[n // 2], storageClassName="local")
        return "local"

    def put_class(self) -> str:
        """A storage class that provisions volumes, with one CSIStorageCapacity per node."""
        self._put_storage_class("dynamic", _CSI_DRIVER)
        self._put(CSIDriver, {"metadata": {"name": _CSI_DRIVER}, "spec": {"storageCapacity": True}})
        for name in self._names:
            capacity = {
                "metadata": {"name": name, "namespace": "kube-system"},
                "storageClassName": "dynamic",
                "nodeTopology": {"matchLabels": {HOSTNAME: name}},
                "capacity": "100Gi",
            }
            self._put(CSIStorageCapacity, capacity)
        return "dynamic"

    def _put_storage_class(self, name: str, provisioner: str) -> None:
        manifest = {
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        self._put(StorageClass, manifest)

    def reserve(self, infos: list[PodInfo]) -> float:
        """Place pods one after another and bind assumed volumes; the seconds per pod, without the binding."""
        (profile,) = self.pipeline.profiles.values()
        spent = 0.0
        for info in infos:
            began = perf_counter()
            decision = self.pipeline.decide_by_plugins(info)
            assert decision.node_name is not None, decision.message
            self.cluster.assume(info, decision.node_name)
            status = profile.binding.run_reserve_plugins(decision.state, info, decision.node_name)
            assert status.ok, status
            spent += perf_counter() - began
            self._bind_assumed()
        return spent / len(infos)

    def _bind_assumed(self) -> None:
        """Act as the volume controller: confirm assumed volumes and claims."""
        catalogs = ((PersistentVolume, ""), (PersistentVolumeClaim, "default"))
        for catalog, namespace in [(self.cluster.catalog(kind), namespace) for kind, namespace in catalogs]:
            for obj in catalog.assumed():
                catalog.restore(namespace, obj.metadata.name)
                catalog.put(obj)


# -- devices -----------------------------------------------------------------------------------------------------------

_GPU_DRIVER = "gpu.example.com"


def devices(
    nodes: int = 2000, devices: int = 8, pods: int = 200, unique: bool = False, constraint: bool = False, seed: int = 0
) -> Rows:
    """DynamicResources alone: PreFilter, Filter and Reserve of pods with claims, on nodes with devices of their own.

    The CPU time of the first pod, the median of the pods after it, which have equal claims, and the time of the next
    pod after one slice was published again. With ``--unique`` every device has an attribute of its own, such as a
    serial number. With ``--constraint`` the claims ask for two devices of one NUMA node instead of one device.
    """
    inventory = (node(number, cpu="64", memory="1Ti") for number in range(nodes))
    engine = _DeviceEngine(inventory, devices, unique=unique, constraint=constraint, random=Random(seed))
    for number in range(nodes):
        engine.publish(number)
    seconds = [engine.reserve(number) for number in range(pods)]
    engine.publish(0)
    figures = {
        "ms for the first pod": seconds[0] * 1e3,
        "ms then": median(seconds[1:]) * 1e3,
        "ms after a changed slice": engine.reserve(pods) * 1e3,
    }
    yield f"{nodes:,} nodes with {devices} devices", figures


class _DeviceEngine(Engine):
    """A cluster with devices, and the plugin."""

    def __init__(self, nodes: Iterator[Any], devices: int, *, unique: bool, constraint: bool, random: Random) -> None:
        super().__init__(nodes)
        self._devices, self._unique, self._constraint, self._random = devices, unique, constraint, random
        selector = {"cel": {"expression": f"device.driver == '{_GPU_DRIVER}'"}}
        gpu = convert(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
        self.cluster.catalog(DeviceClass).put(gpu)
        (profile,) = self.harness.profiles.values()
        self._plugin = next(plugin for plugin in profile.plugins if isinstance(plugin, DynamicResources))

    def publish(self, number: int) -> None:
        """Publish the slice of a node, again if it exists; half of its devices are on each of two NUMA nodes."""
        listed = [
            {
                "name": f"gpu-{n}",
                "attributes": {
                    "model": {"string": "h100"},
                    "numa": {"int": n * 2 // self._devices},
                    **({"uuid": {"string": f"{number}-{n}"}} if self._unique else {}),
                },
                "capacity": {"memory": {"value": "80Gi"}},
            }
            for n in range(self._devices)
        ]
        name = f"node-{number:05}"
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": _GPU_DRIVER, "nodeName": name, "pool": pool, "devices": listed}
        manifest = {"metadata": {"name": f"slice-{name}"}, "spec": spec}
        self.cluster.catalog(ResourceSlice).put(convert(ResourceSlice, manifest))

    def reserve(self, number: int) -> float:
        """Place a pod with a claim of its own on a random feasible node; CPU seconds."""
        exactly = {
            "deviceClassName": "gpu",
            "allocationMode": "ExactCount",
            "count": 2 if self._constraint else 1,
            "selectors": [{"cel": {"expression": f"device.attributes['{_GPU_DRIVER}'].model == 'h100'"}}],
        }
        requested: dict[str, Any] = {"requests": [{"name": "r", "exactly": exactly}]}
        if self._constraint:
            requested["constraints"] = [{"requests": ["r"], "matchAttribute": f"{_GPU_DRIVER}/numa"}]
        metadata = {"name": f"claim-{number}", "namespace": "default", "uid": f"uid-claim-{number}"}
        claim = convert(ResourceClaim, {"metadata": metadata, "spec": {"devices": requested}})
        self.cluster.catalog(ResourceClaim).put(claim)
        claims = {"resourceClaims": [{"name": "c", "resourceClaimName": f"claim-{number}"}]}
        [info] = self.infos([pod(number, spec=claims)])
        nodes = Nodes(self.cluster.nodes, slice(0, len(self.cluster.nodes)))
        began = process_time()
        state = CycleState()
        self._plugin.pre_filter(state, info, nodes)
        verdict = self._plugin.filter(state, info, nodes)
        seconds = process_time() - began
        feasible = [position for position in range(len(nodes)) if verdict is None or verdict.keys[position] == 0]
        node_name = nodes.name(self._random.choice(feasible))
        began = process_time()
        status = self._plugin.reserve(state, info, node_name)
        assert status is None, status
        return seconds + process_time() - began
