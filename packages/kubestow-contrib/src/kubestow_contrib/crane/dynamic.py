"""Dynamic rejects nodes whose load is above a limit, and prefers nodes with little load.

The load is what crane's controller has written to the annotations of the nodes (:mod:`.annotations`). The policy names
the metrics: a node is rejected if one of them exceeds its limit, and scored by the weighted mean of what they leave
free. The hot value, which grows with the pods that were placed recently, is subtracted ten times. Pods of DaemonSets
are not rejected.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow_contrib.crane.annotations import EXTRA_SECONDS, AnnotatedLoad, time_zone
from kubestow_contrib.crane.policy import read_policy

__all__ = ["Dynamic", "DynamicArgs"]

_HOT_VALUE = "node_hot_value"
_HOT_VALUE_LIFETIME = 300.0
#: Values that have expired are noticed after at most so many seconds.
_EXPIRY_PERIOD = 30.0
_LOAD_EXPIRED = "crane.io/LoadExpired"


class DynamicArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The file with the DynamicSchedulerPolicy."""

    policy_config_path: str | None = None


class Dynamic(FilterPlugin, ScorePlugin):
    """Limits and balances the load that annotations report."""

    name = "Dynamic"
    Args = DynamicArgs
    label_keys = ()
    events_to_register = (
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ANNOTATION),
        on(_LOAD_EXPIRED, Action.UPDATE, invalidates=Invalidation.ALL),
    )

    def __init__(self, args: DynamicArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        path = Path(args.policy_config_path or "/etc/kubernetes/dynamic-scheduler-policy.yaml")
        policy = read_policy(path)
        periods = policy.periods()
        self._limits = [
            (predicate.name, predicate.max_limit_pecent)
            for predicate in policy.spec.predicate
            if predicate.max_limit_pecent > 0 and predicate.name in periods
        ]
        self._weights = [(priority.name, priority.weight) for priority in policy.spec.priority]
        self._total_weight = sum(weight for _, weight in self._weights)
        self._statuses = {
            key: Status.unschedulable(f"Load[{metric}] of node is too high")
            for key, (metric, _) in enumerate(self._limits, 1)
        }
        lifetimes = {name: period + EXTRA_SECONDS for name, period in periods.items()}
        lifetimes[_HOT_VALUE] = _HOT_VALUE_LIFETIME
        self._known = lifetimes.keys()
        self._load = AnnotatedLoad(handle, lifetimes, time_zone(os.environ))
        handle.run_periodically(_EXPIRY_PERIOD, self._check_expiry)

    def signature(self, pod: PodInfo) -> Hashable:
        """Whether the pod is one of a DaemonSet."""
        return _is_of_daemon_set(pod)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Rejects by the first metric above its limit."""
        if _is_of_daemon_set(pod):
            return None
        keys = np.zeros(len(nodes), np.int32)
        for key, (metric, limit) in enumerate(self._limits, 1):
            above = self._load.values(metric, nodes.rows) > limit
            keys[above & (keys == 0)] = key
        return Verdict.of(keys, self._statuses) if keys.any() else None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The mean of what is free, in percent, less ten times the hot value; a metric without value adds nothing."""
        total = np.zeros(len(nodes))
        for metric, weight in self._weights:
            if metric in self._known:
                usage = self._load.values(metric, nodes.rows)
                total += np.where(np.isnan(usage), 0.0, (1.0 - usage) * weight * MAX_SCORE)
        free = np.trunc(total / self._total_weight) if self._total_weight else total
        hot = np.trunc(np.nan_to_num(self._load.values(_HOT_VALUE, nodes.rows)) * 10)
        return np.clip(free - hot, 0, MAX_SCORE).astype(np.int64)

    async def _check_expiry(self) -> None:
        if self._load.has_expired():
            self.handle.report_change(ClusterEvent(_LOAD_EXPIRED, Action.UPDATE))


def _is_of_daemon_set(pod: PodInfo) -> bool:
    controller = pod.shape.controller
    return controller is not None and controller.kind == "DaemonSet"
