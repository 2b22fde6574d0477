"""The descheduler's strategies, one module each: which pods to evict."""

from kubestow.descheduling.strategies.duplicates import RemoveDuplicates
from kubestow.descheduling.strategies.failed_pods import RemoveFailedPods
from kubestow.descheduling.strategies.inter_pod_anti_affinity import RemovePodsViolatingInterPodAntiAffinity
from kubestow.descheduling.strategies.node_affinity import RemovePodsViolatingNodeAffinity
from kubestow.descheduling.strategies.node_taints import RemovePodsViolatingNodeTaints
from kubestow.descheduling.strategies.node_utilization import HighNodeUtilization, LowNodeUtilization
from kubestow.descheduling.strategies.pod_lifetime import PodLifeTime
from kubestow.descheduling.strategies.too_many_restarts import RemovePodsHavingTooManyRestarts
from kubestow.descheduling.strategies.topology_spread import RemovePodsViolatingTopologySpreadConstraint

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
