"""Pods with volumes, the core alone: decide, reserve, assume; without HTTP, every node scored.

    .venv/bin/python benchmarks/volumes.py [--nodes 5000] [--pods 5000] [--fill 50000]

Three workloads, with a claim (and so a shape) per pod: bound CSI volumes with node affinity to one of three zones, on
nodes with a limit of 39 volumes; local volumes that are bound when the pod is placed; and dynamically provisioned
volumes with capacity tracking. For the first also the time per pod before and after many others are placed.

Measured on 2 shared cores of an Intel Xeon, 5,000 nodes: bound volumes 2,300 to 3,000 pods/s and as many after 45,000
others, local volumes 2,000, provisioned volumes 2,200.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from core import World, pod
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo

_DRIVER = "csi.example.com"


def put(cluster: Cluster, kind: type[Any], manifest: dict[str, Any]) -> None:
    """Put an object into its catalog."""
    cluster.catalog(kind).put(convert(kind, manifest))


def claim(number: int, **spec: Any) -> dict[str, Any]:
    """A claim, bound if it has a volumeName."""
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}} if "volumeName" in spec else {}
    return {
        "metadata": {"name": f"claim-{number}", "namespace": "default", "uid": f"claim-uid-{number}", **bound},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
    }


def volume(name: str, key: str, value: str, **spec: Any) -> dict[str, Any]:
    """A volume with node affinity to a label."""
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "nodeAffinity": affinity, **spec}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}


def pod_with_claim(number: int) -> Pod:
    """A pod with minimal requests and one claim."""
    plain = pod(number, cpu="1m", memory="1Mi")
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{number}"}}]
    spec = {
        "schedulerName": "default-scheduler",
        "containers": [
            {"name": "c", "image": "pause", "resources": {"requests": plain.spec.containers[0].resources.requests}}
        ],
        "volumes": mounted,
    }
    metadata = {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-{number}", "labels": {"app": "a"}}
    return convert(Pod, {"metadata": metadata, "spec": spec})


def schedule(world: World, infos: list[PodInfo]) -> float:
    """Schedule pods one after another and bind assumed volumes; the seconds per pod, without the binding."""
    (profile,) = world.pipeline.profiles.values()
    spent = 0.0
    for info in infos:
        began = time.perf_counter()
        decision = world.pipeline.decide(info)
        assert decision.node_name is not None, decision.message
        world.cluster.assume(info, decision.node_name)
        status = profile.runtime.run_reserve_plugins(decision.state, info, decision.node_name)
        assert status.ok, status
        spent += time.perf_counter() - began
        bind_assumed(world.cluster)
    return spent / len(infos)


def bind_assumed(cluster: Cluster) -> None:
    """Act as the volume controller: confirm assumed volumes and claims."""
    if cluster.catalog(PersistentVolume).assumed() or cluster.catalog(PersistentVolumeClaim).assumed():
        for obj in cluster.catalog(PersistentVolume).assumed():
            cluster.catalog(PersistentVolume).restore("", obj.metadata.name)
            cluster.catalog(PersistentVolume).put(obj)
        for assumed in cluster.catalog(PersistentVolumeClaim).assumed():
            cluster.catalog(PersistentVolumeClaim).restore("default", assumed.metadata.name)
            cluster.catalog(PersistentVolumeClaim).put(assumed)


def world_with_drivers(nodes: int) -> World:
    """Nodes with a limit of 39 volumes."""
    world = World(nodes)
    for name in world.cluster.nodes.names:
        drivers = [{"name": _DRIVER, "nodeID": name, "allocatable": {"count": 39}}]
        put(world.cluster, CSINode, {"metadata": {"name": name}, "spec": {"drivers": drivers}})
    return world


def bound_volumes(world: World, start: int, count: int) -> list[PodInfo]:
    """Pods with a bound CSI volume each."""
    for n in range(start, start + count):
        csi = {"driver": _DRIVER, "volumeHandle": f"handle-{n}"}
        claim_ref = {"namespace": "default", "name": f"claim-{n}", "uid": f"claim-uid-{n}"}
        zone = "topology.kubernetes.io/zone"
        put(world.cluster, PersistentVolume, volume(f"pv-{n}", zone, f"zone-{n % 3}", csi=csi, claimRef=claim_ref))
        put(world.cluster, PersistentVolumeClaim, claim(n, volumeName=f"pv-{n}", storageClassName="fast"))
    return [world.cluster.shapes.info(pod_with_claim(n)) for n in range(start, start + count)]


def local_volumes(world: World, count: int) -> list[PodInfo]:
    """Pods whose claims are bound to one of two local volumes per node."""
    put(
        world.cluster,
        StorageClass,
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for n in range(2 * len(world.cluster.nodes)):
        host = f"node-{n // 2:05}"
        put(
            world.cluster,
            PersistentVolume,
            volume(f"local-{n}", "kubernetes.io/hostname", host, storageClassName="local"),
        )
    return claiming(world, count, "local")


def provisioned_volumes(world: World, count: int) -> list[PodInfo]:
    """Pods with dynamically provisioned volumes, with one CSIStorageCapacity per node."""
    put(
        world.cluster,
        StorageClass,
        {"metadata": {"name": "dynamic"}, "provisioner": _DRIVER, "volumeBindingMode": "WaitForFirstConsumer"},
    )
    put(world.cluster, CSIDriver, {"metadata": {"name": _DRIVER}, "spec": {"storageCapacity": True}})
    for name in world.cluster.nodes.names:
        put(
            world.cluster,
            CSIStorageCapacity,
            {
                "metadata": {"name": name, "namespace": "kube-system"},
                "storageClassName": "dynamic",
                "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": name}},
                "capacity": "100Gi",
            },
        )
    return claiming(world, count, "dynamic")


def claiming(world: World, count: int, storage_class: str) -> list[PodInfo]:
    """Pods with an unbound claim each."""
    for n in range(count):
        put(world.cluster, PersistentVolumeClaim, claim(n, storageClassName=storage_class))
    return [world.cluster.shapes.info(pod_with_claim(n)) for n in range(count)]


def report(workload: str, cost: float) -> None:
    """Print one line of results."""
    print(f"{workload}: {1 / cost:,.0f} pods/s ({cost * 1e6:.0f} us each)")


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=5000)
    arguments.add_argument("--fill", type=int, default=50000)
    options = arguments.parse_args()

    world = world_with_drivers(options.nodes)
    costs = []
    for start in range(0, options.fill, options.pods):
        infos = bound_volumes(world, start, options.pods)
        costs.append(schedule(world, infos))
    report(f"bound CSI volumes, {options.nodes} nodes, first {options.pods}", costs[0])
    report(f"bound CSI volumes, after {options.fill - options.pods} others", costs[-1])

    world = world_with_drivers(options.nodes)
    report("local volumes, bound on placement", schedule(world, local_volumes(world, options.pods)))
    world = world_with_drivers(options.nodes)
    report("volumes provisioned on placement", schedule(world, provisioned_volumes(world, options.pods)))


if __name__ == "__main__":
    main()
