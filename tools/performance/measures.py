"""What is measured of a version: the engine, the scheduler end to end, a simulation, the start, and memory."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.performance.checkouts import ROOT, run_kubestow

_FILES = ROOT / "packages" / "kubestow-lab" / "src" / "kubestow_lab" / "scheduler_perf" / "workloads"

#: Workloads that together use the parts of the engine whose cost matters, with their parameters: seconds each.
WORKLOADS: Mapping[str, Sequence[str]] = {
    "SchedulingBasic/500Nodes": ("pods=5000",),
    "SchedulingPodAntiAffinity/500Nodes": ("nodes=4000", "pods=3000"),
    "SchedulingPreferredPodAffinity/500Nodes": ("pods=5000",),
    "TopologySpreading/500Nodes": ("pods=5000",),
    "SchedulingCSIPVs/500Nodes": ("pods=3000",),
    "PreemptionBasic/500Nodes": ("nodes=1500", "init=6000", "pods=1500"),
}
#: The other measures, with their units.
END_TO_END, SIMULATION, START, MEMORY = "end to end", "simulation", "start", "memory"
UNITS: Mapping[str, str] = {
    **dict.fromkeys(WORKLOADS, "CPU seconds per pod"),
    END_TO_END: "CPU seconds per pod",
    SIMULATION: "CPU seconds",
    START: "CPU seconds",
    MEMORY: "bytes",
}

Costs = Mapping[str, float]
"""What each measure costs, in its unit."""

_SIMULATED_NODES, _SIMULATED_SHAPES, _SIMULATED_REPLICAS = 2000, 10, 800


def measure_engine(checkout: Path) -> Costs:
    """Run all workloads with the engine of a checkout alone."""
    return {name: _cost_per_pod(checkout, name, parameters, "--core") for name, parameters in WORKLOADS.items()}


def measure(checkout: Path) -> Costs:
    """Measure everything with the code of a checkout.

    END_TO_END is the scheduler's share of a workload on the embedded API server. SIMULATION is the whole of a
    ``kubestow simulate``, and MEMORY its peak; START is a command that reads a configuration.
    """
    costs = dict(measure_engine(checkout))
    costs[END_TO_END] = _cost_per_pod(checkout, "SchedulingBasic/500Nodes", ("pods=2000",))
    with _simulated_files() as (cluster, workload, configuration):
        files = (f"--cluster={cluster}", f"--workload={workload}")
        simulation = run_kubestow(checkout, "simulate", *files, "--output=json")
        costs[SIMULATION], costs[MEMORY] = simulation.cpu_seconds, simulation.peak_bytes
        costs[START] = run_kubestow(checkout, "config", "check", str(configuration)).cpu_seconds
    return costs


def _cost_per_pod(checkout: Path, workload: str, parameters: Sequence[str], *options: str) -> float:
    """The CPU seconds of the scheduler per pod of a workload."""
    given = [*options, *(f"--param={parameter}" for parameter in parameters)]
    done = run_kubestow(checkout, "bench", str(_FILES), f"--filter=^{workload}$", "--output=json", *given)
    [result] = json.loads(done.output)["workloads"]
    cost: float = result["phases"][0]["scheduler"]["cpuSecondsPerPod"]
    return cost


@contextmanager
def _simulated_files() -> Iterator[tuple[Path, Path, Path]]:
    """A cluster, a workload that fits on it, and a configuration: files in a temporary folder."""
    nodes = [_node(number) for number in range(_SIMULATED_NODES)]
    deployments = [_deployment(number) for number in range(_SIMULATED_SHAPES)]
    configuration = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    with TemporaryDirectory(prefix="kubestow-performance-") as folder:
        paths = Path(folder) / "cluster.json", Path(folder) / "workload.json", Path(folder) / "config.yaml"
        for path, items in zip(paths, (nodes, deployments), strict=False):
            path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        paths[2].write_text(json.dumps(configuration))
        yield paths


def _node(number: int) -> dict[str, object]:
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    resources = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": resources, "capacity": resources},
    }


def _deployment(number: int) -> dict[str, object]:
    labels = {"app": f"app-{number}"}
    requests = {"cpu": f"{(number + 1) * 100}m", "memory": f"{(number % 4 + 1) * 512}Mi"}
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"app-{number}", "namespace": "default"},
        "spec": {
            "replicas": _SIMULATED_REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def median_ratios(pairs: Sequence[tuple[Costs, Costs]]) -> dict[str, float]:
    """For each measure the median over the pairs of the cost now by the cost before."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for before, now in pairs:
        for name in now:
            ratios[name].append(now[name] / before[name])
    return {name: statistics.median(values) for name, values in ratios.items()}
