"""Simulated nodes: they report that they live, and run what is bound to them.

Every Node object is taken to have a kubelet. :class:`Kubelets` is all of them in one task, which reads the history of
nodes and pods from the store as any watcher would and writes through the registry, in process:

    kubelets       the task: what changed, and what falls due
    nodes          the node's own status: conditions, addresses, going silent and shutting down
    heartbeats     leases, renewed in a spread-out batch
    pod_workers    which step of its life each pod takes next, and when
    pod_lifecycle  those steps, as pure functions of the pod
    behaviour      the annotations by which people say how a pod or a node should behave
    addresses      where pods and nodes are to be reached
    timetable      deeds by the time they fall due
"""

from kubestow.devcluster.kubelets.behaviour import (
    DURATION,
    EXIT_CODE,
    INIT_DURATION,
    INIT_EXIT_CODE,
    KUBELET,
    READY,
    SHUT_DOWN,
    SHUTDOWN,
    START,
    STOPPED,
)
from kubestow.devcluster.kubelets.heartbeats import GRACE_PERIOD
from kubestow.devcluster.kubelets.heartbeats import INTERVAL as HEARTBEAT_INTERVAL
from kubestow.devcluster.kubelets.kubelets import Kubelets

__all__ = [
    "DURATION",
    "EXIT_CODE",
    "GRACE_PERIOD",
    "HEARTBEAT_INTERVAL",
    "INIT_DURATION",
    "INIT_EXIT_CODE",
    "KUBELET",
    "READY",
    "SHUTDOWN",
    "SHUT_DOWN",
    "START",
    "STOPPED",
    "Kubelets",
]
