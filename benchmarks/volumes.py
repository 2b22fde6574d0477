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

from core import CoreBenchmark, pod
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


def schedule(benchmark: CoreBenchmark, infos: list[PodInfo]) -> float:
    """Schedule pods one after another and bind assumed volumes; the seconds per pod, without the binding."""
    (profile,) = benchmark.pipeline.profiles.values()
    spent = 0.0
    for info in infos:
        began = time.perf_counter()
        decision = benchmark.pipeline.decide(info)
        assert decision.node_name is not None, decision.message
        benchmark.cluster.assume(info, decision.node_name)
        status = profile.runtime.run_reserve_plugins(decision.state, info, decision.node_name)
        assert status.ok, status
        spent += time.perf_counter() - began
        bind_assumed(benchmark.cluster)
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


def benchmark_with_volume_limits(nodes: int) -> CoreBenchmark:
    """Nodes with a limit of 39 volumes."""
    benchmark = CoreBenchmark(nodes)
    for name in benchmark.cluster.nodes.names:
        drivers = [{"name": _DRIVER, "nodeID": name, "allocatable": {"count": 39}}]
        put(benchmark.cluster, CSINode, {"metadata": {"name": name}, "spec": {"drivers": drivers}})
    return benchmark


def bound_volumes(benchmark: CoreBenchmark, start: int, count: int) -> list[PodInfo]:
    """Pods with a bound CSI volume each."""
    for n in range(start, start + count):
        csi = {"driver": _DRIVER, "volumeHandle": f"handle-{n}"}
        claim_ref = {"namespace": "default", "name": f"claim-{n}", "uid": f"claim-uid-{n}"}
        zone = "topology.kubernetes.io/zone"
        put(benchmark.cluster, PersistentVolume, volume(f"pv-{n}", zone, f"zone-{n % 3}", csi=csi, claimRef=claim_ref))
        put(benchmark.cluster, PersistentVolumeClaim, claim(n, volumeName=f"pv-{n}", storageClassName="fast"))
    return [benchmark.cluster.shapes.info(pod_with_claim(n)) for n in range(start, start + count)]


def local_volumes(benchmark: CoreBenchmark, count: int) -> list[PodInfo]:
    """Pods whose claims are bound to one of two local volumes per node."""
    put(
        benchmark.cluster,
        StorageClass,
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for n in range(2 * len(benchmark.cluster.nodes)):
        host = f"node-{n // 2:05}"
        put(
            benchmark.cluster,
            PersistentVolume,
            volume(f"local-{n}", "kubernetes.io/hostname", host, storageClassName="local"),
        )
    return claiming(benchmark, count, "local")


def provisioned_volumes(benchmark: CoreBenchmark, count: int) -> list[PodInfo]:
    """Pods with dynamically provisioned volumes, with one CSIStorageCapacity per node."""
    put(
        benchmark.cluster,
        StorageClass,
        {"metadata": {"name": "dynamic"}, "provisioner": _DRIVER, "volumeBindingMode": "WaitForFirstConsumer"},
    )
    put(benchmark.cluster, CSIDriver, {"metadata": {"name": _DRIVER}, "spec": {"storageCapacity": True}})
    for name in benchmark.cluster.nodes.names:
        put(
            benchmark.cluster,
            CSIStorageCapacity,
            {
                "metadata": {"name": name, "namespace": "kube-system"},
                "storageClassName": "dynamic",
                "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": name}},
                "capacity": "100Gi",
            },
        )
    return claiming(benchmark, count, "dynamic")


def claiming(benchmark: CoreBenchmark, count: int, storage_class: str) -> list[PodInfo]:
    """Pods with an unbound claim each."""
    for n in range(count):
        put(benchmark.cluster, PersistentVolumeClaim, claim(n, storageClassName=storage_class))
    return [benchmark.cluster.shapes.info(pod_with_claim(n)) for n in range(count)]


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

    benchmark = benchmark_with_volume_limits(options.nodes)
    costs = []
    for start in range(0, options.fill, options.pods):
        infos = bound_volumes(benchmark, start, options.pods)
        costs.append(schedule(benchmark, infos))
    report(f"bound CSI volumes, {options.nodes} nodes, first {options.pods}", costs[0])
    report(f"bound CSI volumes, after {options.fill - options.pods} others", costs[-1])

    benchmark = benchmark_with_volume_limits(options.nodes)
    report("local volumes, bound on placement", schedule(benchmark, local_volumes(benchmark, options.pods)))
    benchmark = benchmark_with_volume_limits(options.nodes)
    report("volumes provisioned on placement", schedule(benchmark, provisioned_volumes(benchmark, options.pods)))


if __name__ == "__main__":
    main()
