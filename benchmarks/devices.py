"""DynamicResources alone: PreFilter, Filter and Reserve of pods with claims, on nodes with devices of their own.

    .venv/bin/python benchmarks/devices.py [--nodes 2000] [--devices 8] [--pods 200]

Prints the CPU time of the first pod, the median of the pods after it, which have equal claims, and the time of the next
pod after one slice was published again. With ``--unique`` every device has an attribute of its own, such as a serial
number. With ``--constraint`` the claims ask for two devices of one NUMA node instead of one device.
"""

from __future__ import annotations

import argparse
import time
from random import Random
from statistics import median
from typing import Any

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.profile import build_profile
from kubestow.plugins import in_tree_registry
from kubestow.plugins.dynamic_resources.dynamic_resources import DynamicResources

DRIVER = "gpu.example.com"


class Handle:
    """The plugin handle of this benchmark."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.random = cluster, Random(0)
        self._gates = config.FeatureGates({})

    def feature_enabled(self, gate: str) -> bool:
        """The default of the gate."""
        return self._gates.enabled(gate)


def resource_slice(number: int, devices: int, *, unique: bool) -> ResourceSlice:
    """The slice of one node; half of its devices are on each of two NUMA nodes."""
    listed = [
        {
            "name": f"gpu-{n}",
            "attributes": {
                "model": {"string": "h100"},
                "numa": {"int": n * 2 // devices},
                **({"uuid": {"string": f"{number}-{n}"}} if unique else {}),
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for n in range(devices)
    ]
    name = f"node-{number:05}"
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": listed}
    return convert(ResourceSlice, {"metadata": {"name": f"slice-{name}"}, "spec": spec})


def claim(number: int, *, constraint: bool) -> ResourceClaim:
    """A claim for one device, or for two of one NUMA node."""
    expression = f"device.attributes['{DRIVER}'].model == 'h100'"
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 2 if constraint else 1,
        "selectors": [{"cel": {"expression": expression}}],
    }
    devices: dict[str, Any] = {"requests": [{"name": "r", "exactly": exactly}]}
    if constraint:
        devices["constraints"] = [{"requests": ["r"], "matchAttribute": f"{DRIVER}/numa"}]
    metadata = {"name": f"claim-{number}", "namespace": "default", "uid": f"uid-claim-{number}"}
    return convert(ResourceClaim, {"metadata": metadata, "spec": {"devices": devices}})


def pod(number: int) -> Pod:
    """A pod with the claim of the same number."""
    spec = {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "image": "app"}],
        "resourceClaims": [{"name": "c", "resourceClaimName": f"claim-{number}"}],
    }
    metadata = {"name": f"pod-{number}", "namespace": "default", "uid": f"uid-pod-{number}"}
    return convert(Pod, {"metadata": metadata, "spec": spec})


class World:
    """A cluster with devices, and the plugin."""

    def __init__(self, nodes: int, devices: int, *, unique: bool, constraint: bool) -> None:
        self.cluster = Cluster()
        self._devices, self._unique, self._constraint = devices, unique, constraint
        for number in range(nodes):
            allocatable = {"cpu": "64", "memory": "1Ti", "pods": "110"}
            node = {"metadata": {"name": f"node-{number:05}"}, "status": {"allocatable": allocatable}}
            self.cluster.add_node(convert(Node, node))
            self.publish(number)
        selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
        gpu = convert(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
        self.cluster.catalog(DeviceClass).put(gpu)
        configuration = config.default_configuration(config.FeatureGates({}))
        profile = build_profile(configuration.profiles[0], in_tree_registry(), Handle(self.cluster))  # type: ignore[arg-type]
        self._plugin = next(plugin for plugin in profile.plugins if isinstance(plugin, DynamicResources))
        self._random = Random(0)

    def publish(self, number: int) -> None:
        """Publish the slice of a node, again if it exists."""
        self.cluster.catalog(ResourceSlice).put(resource_slice(number, self._devices, unique=self._unique))

    def place(self, number: int) -> float:
        """Place a pod on a random feasible node; CPU seconds."""
        self.cluster.catalog(ResourceClaim).put(claim(number, constraint=self._constraint))
        info = self.cluster.shapes.info(pod(number))
        nodes = Nodes(self.cluster.nodes, slice(0, len(self.cluster.nodes)))
        began = time.process_time()
        state = CycleState()
        self._plugin.pre_filter(state, info, nodes)
        verdict = self._plugin.filter(state, info, nodes)
        seconds = time.process_time() - began
        feasible = [position for position in range(len(nodes)) if verdict is None or verdict.keys[position] == 0]
        node_name = nodes.name(self._random.choice(feasible))
        began = time.process_time()
        status = self._plugin.reserve(state, info, node_name)
        assert status is None, status
        return seconds + time.process_time() - began


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--unique", action="store_true", help="every device has an attribute of its own")
    parser.add_argument("--constraint", action="store_true", help="two devices of one NUMA node per pod")
    options = parser.parse_args()
    world = World(options.nodes, options.devices, unique=options.unique, constraint=options.constraint)
    seconds = [world.place(number) for number in range(options.pods)]
    world.publish(0)
    after = world.place(options.pods)
    print(
        f"{options.nodes} nodes with {options.devices} devices: first pod {seconds[0] * 1e3:.1f} ms, "
        f"then {median(seconds[1:]) * 1e3:.2f} ms, after a changed slice {after * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main()
