"""The verbs of an extender that a profile has plugins for (semantics 5.5): which, and how they are evaluated.

Results come from the evaluation cache, as in the scheduler, so they equal those of the plugins in process; only scores
are coarser, because the protocol has 0 to 10 where a plugin has 0 to 100. This module is independent of HTTP and of the
source of the cluster state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from kubestow.api.core import Pod
from kubestow.api.extender import MAX_SCORE, MetaVictims
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError
from kubestow.framework import interface
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.evaluation.feasibility import Feasibility
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status

_UNKNOWN_NODE = "node not found in the extender's cache"


@dataclass(frozen=True, slots=True)
class ExtenderCapabilities:
    """The verbs that an extender serves; with ``node_cache_capable`` it gets node names instead of full nodes.

    ``weight`` gives its scores the same weight as those of the plugins in process.
    """

    filters: bool
    prioritizes: bool
    preempts: bool
    binds: bool
    node_cache_capable: bool
    weight: int

    @classmethod
    def of(cls, profile: Profile, *, node_cache_capable: bool, binds: bool = False) -> ExtenderCapabilities:
        """The capabilities of a profile. preempt and bind need a cache, because their requests have no nodes."""
        evaluations = profile.evaluations
        filters = evaluations.has_filters
        weight = evaluations.max_total // interface.MAX_SCORE
        cached = node_cache_capable
        return cls(filters, weight > 0, filters and cached, binds and cached, cached, weight)

    @property
    def verbs(self) -> list[str]:
        """The served verbs, which are also the URL paths."""
        verbs = {"filter": self.filters, "prioritize": self.prioritizes, "preempt": self.preempts, "bind": self.binds}
        return [verb for verb, served in verbs.items() if served]


def config_snippet(capabilities: ExtenderCapabilities, url: str) -> str:
    """The ``extenders`` of a KubeSchedulerConfiguration, as YAML."""
    extender: dict[str, Any] = {"urlPrefix": url}
    extender |= {f"{verb}Verb": verb for verb in capabilities.verbs}
    if capabilities.prioritizes:
        extender["weight"] = capabilities.weight
    extender["nodeCacheCapable"] = capabilities.node_cache_capable
    if url.startswith("https:"):
        extender["enableHTTPS"] = True
        extender["tlsConfig"] = {"caFile": "/path/to/ca.crt"}
    text: str = yaml.safe_dump({"extenders": [extender]}, sort_keys=False)
    return text


@dataclass(slots=True)
class FilteredNodes:
    """The result of filter: feasible nodes, failed nodes and nodes where preemption cannot help, with reasons."""

    feasible: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)

    def reject(self, name: str, status: Status) -> None:
        """Add a rejected node."""
        reasons = self.unresolvable if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE else self.failed
        reasons[name] = status.message or f"rejected by {status.plugin}"


class ProfileExtender:
    """The extender verbs of one profile on one cluster."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster = cluster
        self._profile = profile

    def filter(self, pod: Pod, names: Sequence[str]) -> FilteredNodes:
        """Run the filters of the profile for the named nodes. Raises KubestowError if a plugin fails."""
        result = FilteredNodes()
        known = self._known(names)
        for name in names:
            if name not in known:
                result.failed[name] = _UNKNOWN_NODE
        if not known:
            return result
        _, _, feasible = self._evaluate(pod)
        mask = np.zeros(len(self._cluster.nodes), np.bool_)
        mask[feasible.rows] = True
        result.feasible = [name for name, row in known.items() if mask[row]]
        if len(result.feasible) < len(known):
            statuses = self._statuses(feasible.diagnose(), known)
            for name in known.keys() - result.feasible:
                result.reject(name, statuses[name])
        return result

    def _statuses(self, diagnosis: Diagnosis, known: Mapping[str, int]) -> dict[str, Status]:
        """The status of each rejected node among ``known``."""
        names = self._cluster.nodes.names
        mask = np.zeros(len(names), np.bool_)
        mask[list(known.values())] = True
        statuses = dict.fromkeys(known, diagnosis.absent_nodes_status)
        for rejection in diagnosis.rejections:
            for status, where in rejection.verdict.by_status(rejection.where & mask):
                attributed = status.by(rejection.plugin)
                statuses |= {names[row]: attributed for row in np.flatnonzero(where).tolist()}
        return statuses

    def prioritize(self, pod: Pod, names: Sequence[str]) -> list[tuple[str, int]]:
        """The scores of the named nodes, 0 to 10, without unknown nodes. Raises KubestowError if a plugin fails."""
        known = self._known(names)
        highest = self._profile.evaluations.max_total
        if not known or not highest:
            return [(name, 0) for name in known]
        info, evaluation, _ = self._evaluate(pod)
        rows = np.array(sorted(known.values()), np.intp)
        totals = evaluation.compute_totals(info, rows)
        scores: NDArray[np.int64] = (totals * MAX_SCORE + highest // 2) // highest
        table = self._cluster.nodes
        return [(table.names[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]

    def preempt(self, pod: Pod, victims: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """The candidates that pass the filters without their victims. Raises KubestowError if a plugin fails."""
        known = self._known(victims)
        if not known:
            return {}
        _, _, feasible = self._evaluate(pod)
        if not feasible.count and feasible.diagnose().pre_filter_status is not None:
            return {}
        rows = np.array(sorted(known.values()), np.intp)
        names = [self._cluster.nodes.names[row] for row in rows.tolist()]
        changes = []
        for row, name in zip(rows.tolist(), names, strict=True):
            pods = self._cluster.nodes.pods[row]
            changes.append(NodeChange(removed=tuple(pods[one.uid] for one in victims[name].pods if one.uid in pods)))
        mask = np.ones(len(self._cluster.nodes), np.bool_)
        for rejection in feasible.filters.rejections(HypotheticalNodes(self._cluster.nodes, rows, changes)):
            mask &= ~rejection.where
        return {name: victims[name] for name, row in zip(names, rows.tolist(), strict=True) if mask[row]}

    def _evaluate(self, pod: Pod) -> tuple[PodInfo, Evaluation, Feasibility]:
        """Run the filters for all nodes."""
        # kube-scheduler itself evaluates the nominated node of the pod first.
        status = msgspec.structs.replace(pod.status, nominated_node_name="")
        info = self._cluster.shapes.info(msgspec.structs.replace(pod, status=status))
        evaluation = self._profile.evaluations.of(info)
        feasible = evaluation.find_feasible(info)
        if feasible.error is not None:
            raise KubestowError(feasible.error.message)
        return info, evaluation, feasible

    def _known(self, names: Sequence[str] | Mapping[str, MetaVictims]) -> dict[str, int]:
        rows = self._cluster.nodes.rows
        return {name: rows[name] for name in names if name in rows}
