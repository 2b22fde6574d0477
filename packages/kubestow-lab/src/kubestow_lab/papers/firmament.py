"""Firmament's placement policies against kube-scheduler's (Gog et al., OSDI 2016), on the same pods.

Batches of pods arrive at a cluster of equal nodes, request CPU, memory and bandwidth, and read a data set that a
few nodes have, as container images. FlowPlacement places each batch by one min-cost flow; kube-scheduler one pod after
the other. A row has what a policy is for. The paper claims better placements than those of four schedulers, one of
which is Kubernetes', and measures response times on a cluster, which placement alone does not define.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.placement import solvers
from kubestow.rules.requests import requests_by_spec
from kubestow.version import VERSION
from kubestow_lab.flow.cost_models import BANDWIDTH, NetworkAware, Octopus, Quincy
from kubestow_lab.metrics.intervals import Estimate, estimate
from kubestow_lab.papers.measured_runs import measure_runs
from kubestow_lab.papers.published import Trend, below
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions

NODES, PODS, BATCHES = 100, 400, 20
#: Data sets, how many nodes have each, and their sizes in bytes.
DATA_SETS, REPLICAS, SIZES = 60, 3, (500_000_000, 4_000_000_000)
MEGABITS = 10_000
KUBERNETES = "kube-scheduler"
#: The policies by what they are for: each is compared with kube-scheduler by its own measure.
PURPOSES: Mapping[str, str] = {
    "load spreading, deviation of pods per node": Octopus.name,
    "locality, % of the data to fetch": Quincy.name,
    "network, % of the bandwidth of the fullest node": NetworkAware.name,
}
WORKLOADS = ("batches",)
_BETWEEN_BATCHES = 60.0


def objects(seed: int) -> tuple[ClusterObjects, Arrivals]:
    """The cluster, and the pods of a seed."""
    random = Random(f"firmament {seed}")
    sizes = [random.randrange(*SIZES) for _ in range(DATA_SETS)]
    has: dict[int, list[int]] = {number: [] for number in range(NODES)}
    for data_set in range(DATA_SETS):
        for number in random.sample(range(NODES), REPLICAS):
            has[number].append(data_set)
    nodes = [_node(f"n{number:03}", {_image(each): sizes[each] for each in has[number]}) for number in range(NODES)]
    pods = []
    for number in range(PODS):
        requests = {
            "cpu": f"{random.randrange(500, 4001)}m",
            "memory": f"{random.randrange(1024, 8193)}Mi",
            BANDWIDTH: str(random.choice((50, 100, 500, 1000, 2000))),
        }
        pod = _pod(f"p{number}", _image(random.randrange(DATA_SETS)), requests)
        pods.append(Arrival(pod, number * BATCHES // PODS * _BETWEEN_BATCHES, None, {}))
    return ClusterObjects(nodes=nodes), Arrivals(pods)


def _image(data_set: int) -> str:
    return f"data.example/set{data_set}:v1"


def _node(name: str, images: Mapping[str, int]) -> Node:
    status = {
        "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110", BANDWIDTH: str(MEGABITS)},
        "images": [{"names": [image], "sizeBytes": size} for image, size in images.items()],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return convert(Node, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status})


def _pod(name: str, image: str, requests: Mapping[str, str]) -> Pod:
    spec = {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "main", "image": image, "resources": {"requests": requests}}],
    }
    return convert(Pod, {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})


def published() -> dict[tuple[str, str], Trend]:
    """That each policy's placements are better than Kubernetes' by its own measure."""
    return {(purpose, policy): below(KUBERNETES) for purpose, policy in PURPOSES.items()}


def measure(
    data: Path,
    workloads: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    processes: int | None,
    progress: Callable[[int, int], None],
) -> dict[tuple[str, str], Estimate]:
    """What each policy achieves by its own measure, and kube-scheduler by all. Raises InputError without OR-Tools."""
    solvers.require_solvers("firmament")
    policies = (KUBERNETES, *PURPOSES.values())
    runs = {f"{VERSION}.{policy}.{seed}": (policy, seed) for policy in policies for seed in seeds}
    found = measure_runs(runs, qualities, folder, processes, progress)
    values: dict[tuple[str, int], list[float]] = {runs[name]: result for name, result in found.items()}
    return {
        (purpose, policy): estimate([values[policy, seed][column] for seed in seeds])
        for column, (purpose, special) in enumerate(PURPOSES.items())
        for policy in (KUBERNETES, special)
    }


def qualities(policy: str, seed: int) -> list[float]:
    """The measures of :data:`PURPOSES` in their order, of the placement at the end."""
    cluster, arrivals = objects(seed)
    configuration: dict[str, Any] | None = None
    if policy != KUBERNETES:
        profile = {
            "plugins": {"preEnqueue": {"enabled": [{"name": "FlowPlacement"}]}},
            "pluginConfig": [{"name": "FlowPlacement", "args": {"costModel": policy}}],
        }
        configuration = {"apiVersion": config.API_VERSION, "kind": config.KIND, "profiles": [profile]}
    options = SimulationOptions(seed=seed, samples=2)
    result = Simulation(cluster, arrivals, configuration, options=options).run()
    node_of = {outcome.name: outcome.node for outcome in result.outcomes if outcome.state.is_placed}
    return placement_qualities(cluster.nodes, [arrival.pod for arrival in arrivals.pods], node_of)


def placement_qualities(nodes: Sequence[Node], pods: Sequence[Pod], node_of: Mapping[str, str]) -> list[float]:
    """The measures of :data:`PURPOSES` of a placement: the node of each placed pod by its name."""
    sizes = {name: image.size_bytes for node in nodes for image in node.status.images for name in image.names}
    present = {(node.metadata.name, name) for node in nodes for image in node.status.images for name in image.names}
    counts, bandwidth = Counter(node_of.values()), Counter[str]()
    total = fetched = 0
    for pod in pods:
        if (node := node_of.get(pod.metadata.name)) is not None:
            image = pod.spec.containers[0].image
            total += sizes.get(image, 0)
            fetched += 0 if (node, image) in present else sizes.get(image, 0)
            bandwidth[node] += requests_by_spec(pod).get(BANDWIDTH, 0)
    return [
        float(np.std([counts[node.metadata.name] for node in nodes])),
        100 * fetched / max(total, 1),
        100 * max(bandwidth.values(), default=0) / MEGABITS,
    ]
