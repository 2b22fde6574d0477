"""The descheduler's strategies, by what they look at: which pods to evict."""

from kubestow.descheduling.strategies.node_constraints import (
    RemovePodsViolatingInterPodAntiAffinity,
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingNodeTaints,
)
from kubestow.descheduling.strategies.node_utilization import HighNodeUtilization, LowNodeUtilization
from kubestow.descheduling.strategies.pod_states import PodLifeTime, RemoveFailedPods, RemovePodsHavingTooManyRestarts
from kubestow.descheduling.strategies.spreading import RemoveDuplicates, RemovePodsViolatingTopologySpreadConstraint

__all__ = [
    "HighNodeUtilization",
    "LowNodeUtilization",
    "PodLifeTime",
    "RemoveDuplicates",
    "RemoveFailedPods",
    "RemovePodsHavingTooManyRestarts",
    "RemovePodsViolatingInterPodAntiAffinity",
    "RemovePodsViolatingNodeAffinity",
    "RemovePodsViolatingNodeTaints",
    "RemovePodsViolatingTopologySpreadConstraint",
]
