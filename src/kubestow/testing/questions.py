"""The calls that the contract checker makes to a plugin, and a runtime that notices what else they do."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import (
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
)
from kubestow.framework.profile import Profile
from kubestow.framework.profile_plugins import ProfilePlugins
from kubestow.framework.runtime import FrameworkRuntime
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.framework.validation import in_range

__all__ = ["Questions", "ReadOnlyRuntime", "told"]

T = TypeVar("T")

_encode = msgspec.json.Encoder(order="deterministic").encode


class ReadOnlyRuntime(FrameworkRuntime):
    """Calls plugins as the scheduler does, and fails when a call changes the cluster or the pod."""

    def __init__(self, plugins: ProfilePlugins, cluster: Cluster) -> None:
        super().__init__(plugins)
        self._cluster = cluster

    def call(self, plugin: Plugin, extension_point: str, method: Callable[..., T], *arguments: Any) -> T:
        """Call a method of a plugin. Raises PluginError when the cluster or the pod is not what it was before."""
        before = self._picture(arguments)
        result = super().call(plugin, extension_point, method, *arguments)
        for part, now in self._picture(arguments).items():
            if before[part] != now:
                raise PluginError(plugin.name, extension_point, f"changed {part}, which it may only read")
        return result

    def _picture(self, arguments: tuple[Any, ...]) -> dict[str, object]:
        cluster = self._cluster
        nodes = cluster.all_nodes()
        return {
            "the pod it was asked about": [_encode(info.pod) for info in arguments if isinstance(info, PodInfo)],
            "the pods on nodes": [[_encode(info.pod) for info in nodes.pods(i)] for i in range(len(nodes))],
            "the nodes": [_encode(node) for node in cluster.nodes.objects],
            "the cluster": (cluster.journal.position, cluster.nodes.structure, cluster.pod_count),
        }


class Questions:
    """One plugin, to be asked about one pod: PreFilter has been, the rest is asked when wanted."""

    def __init__(self, plugin: Plugin, runtime: FrameworkRuntime, cluster: Cluster, info: PodInfo) -> None:
        self.plugin: Any = plugin
        self._runtime = runtime
        self._info = info
        self._state = CycleState()
        self.concerned: bool = runtime.plugin_applies_to(plugin, info)
        self.signature: Hashable | None = runtime.plugin_signature(plugin, info)
        outcome = self._pre_filter(cluster)
        #: Whether the plugin's filter has a say about this pod.
        self.filters = isinstance(plugin, FilterPlugin) and self.concerned and outcome.ok
        #: Whether its score has.
        self.scores = isinstance(plugin, ScorePlugin) and self.concerned

    def _pre_filter(self, cluster: Cluster) -> Status:
        if not (isinstance(self.plugin, PreFilterPlugin) and self.concerned):
            return SUCCESS
        outcome = self._runtime.run_pre_filter_plugin(self.plugin, self._state, self._info, cluster.all_nodes())
        if isinstance(outcome, PreFilterResult):
            return SUCCESS
        if not (outcome.ok or outcome.code is Code.SKIP or outcome.code.is_rejection):
            raise self._failed("PreFilter", outcome)
        return outcome

    def statuses(self, nodes: Nodes) -> list[str]:
        """What the filter says of some nodes, in words."""
        verdict = self._runtime.run_filter_plugin(self.plugin, self._state, self._info, nodes)
        found = [SUCCESS] * len(nodes) if verdict is None else [verdict.status(i) for i in range(len(nodes))]
        for status in found:
            if not (status.ok or status.code.is_rejection):
                raise self._failed("Filter", status)
        return [_in_words(status) for status in found]

    def raw_scores(self, nodes: Nodes) -> NDArray[np.int64] | None:
        """Prepare scoring for these nodes and score them; None when the plugin skips that."""
        if isinstance(self.plugin, PreScorePlugin):
            status = self._runtime.run_pre_score_plugin(self.plugin, self._state, self._info, nodes)
            if not status.ok:
                return None
        return self.scores_of(nodes)

    def scores_of(self, nodes: Nodes) -> NDArray[np.int64]:
        """Score some nodes, prepared for those of the last :meth:`raw_scores`."""
        return self._runtime.run_score_plugin(self.plugin, self._state, self._info, nodes)

    def normalized(self, raw: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """Raw scores brought to 0 .. 100."""
        if type(self.plugin).normalize is ScorePlugin.normalize:
            return in_range(self.plugin, "Score", raw)
        return self._runtime.run_normalize_score_plugin(self.plugin, self._state, self._info, raw, nodes)

    def _failed(self, point: str, status: Status) -> PluginError:
        return PluginError(self.plugin.name, point, f"answered with {status.code.value}: {status.message}")


def told(profile: Profile, cluster: Cluster, info: PodInfo) -> dict[str, str]:
    """What a profile says of every node for a pod: why it is refused, or its scores. Raises PluginError."""
    evaluation = profile.evaluations.of(cluster, info)
    found = evaluation.feasible(cluster, info)
    if found.error is not None:
        raise PluginError(found.error.plugin, "Filter", found.error.message)
    names = cluster.nodes.names
    said = dict.fromkeys(names, "that it passes")
    if found.count < len(names):
        diagnosis = found.diagnose()
        for row in np.flatnonzero(diagnosis.refused):
            said[names[row]] = _in_words(diagnosis.status(int(row)))
    if found.count:
        nodes = Nodes(cluster.nodes, found.rows)
        for _, scores in evaluation.scores(cluster, info, found.rows):
            said |= {name: f"the score {score}" for name, score in zip(nodes.names, scores.tolist(), strict=True)}
    return said


def _in_words(status: Status) -> str:
    return "that it passes" if status.ok else f"that it is refused ({status.code.value}: {status.message})"
