"""The filter: whether one NUMA zone can run a container, or a pod as a whole.

The kubelet takes the zone with the lowest number, so what a container requests is subtracted there before the next one
is looked at. Init containers run one after the other, and nothing is subtracted for them (as upstream, for sidecars,
neither).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow_contrib.node_resource_topology.pod_requests import Amounts, PodRequests, is_at_node_level, is_native
from kubestow_contrib.node_resource_topology.zones import ABSENT, Available

__all__ = ["CONTAINER", "CONTAINER_KINDS", "POD", "unaligned_containers", "unaligned_pods"]

#: Keys of what cannot be aligned; 0 if all can.
POD, CONTAINER, _INIT, _SIDECAR = 1, 2, 3, 4
CONTAINER_KINDS = {"": CONTAINER, "init": _INIT, "sidecar": _SIDECAR}

Mask = NDArray[np.bool_]


def unaligned_pods(pod: PodRequests, nodes: Nodes, available: Available) -> NDArray[np.int32]:
    """POD where no zone can run the pod as a whole, int32 per node."""
    fits = _fitting_zones(pod, pod.together, nodes, available).any(axis=0)
    return np.where(fits, 0, POD).astype(np.int32)


def unaligned_containers(pod: PodRequests, nodes: Nodes, available: Available) -> NDArray[np.int32]:
    """The kind of the first container that no zone can run, int32 per node. Changes what is available."""
    keys = np.zeros(len(nodes), np.int32)
    for kind, requests in pod.containers:
        zones = _fitting_zones(pod, requests, nodes, available)
        keys[(keys == 0) & ~zones.any(axis=0)] = CONTAINER_KINDS[kind]
        if not kind:
            lowest = zones.argmax(axis=0)
            for name, request in requests.items():
                if request and pod.needs_zone(name):
                    available.subtract(name, lowest, request)
    return keys


def _fitting_zones(pod: PodRequests, requests: Amounts, nodes: Nodes, available: Available) -> Mask:
    """Which zones have all that is requested, bool (zones, nodes)."""
    fitting = np.ones(available.shape, np.bool_)
    for name, request in requests.items():
        if not request:
            continue
        there = available.of(name)
        zones = there >= request if pod.needs_zone(name) else there != ABSENT
        if is_at_node_level(name):
            zones = zones | ~(there != ABSENT).any(axis=0)
        if not is_native(name):
            zones = zones & (nodes.allocatable(name) > 0)
        fitting &= zones
    return fitting
