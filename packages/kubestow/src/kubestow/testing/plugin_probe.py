"""The plugin calls of the contract checker, and a runtime that detects side effects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import NodeRows, Nodes
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
from kubestow.framework.runtime.framework_runtime import FrameworkRuntime
from kubestow.framework.runtime.plugin_caller import ProfilePlugins
from kubestow.framework.runtime.validation import in_range
from kubestow.framework.status import SUCCESS, Code, Status

T = TypeVar("T")

_encode = msgspec.json.Encoder(order="deterministic").encode


class ReadOnlyRuntime(FrameworkRuntime):
    """Calls plugins like the scheduler, and fails if a call changes the cluster or the pod."""

    def __init__(self, plugins: ProfilePlugins, cluster: Cluster) -> None:
        super().__init__(plugins)
        self._cluster = cluster

    def call(
        self,
        plugin: Plugin,
        extension_point: str,
        method: Callable[..., T],
        *arguments: Any,
        began: float | None = None,
    ) -> T:
        """Call a method of a plugin. Raises PluginError if it changes the cluster or the pod."""
        before = self._fingerprint(arguments)
        result = super().call(plugin, extension_point, method, *arguments, began=began)
        self._raise_if_changed(plugin, extension_point, arguments, before)
        return result

    def call_on_rows(
        self,
        plugin: Plugin,
        extension_point: str,
        method: Callable[..., list[int]],
        state: Any,
        pod: PodInfo,
        nodes: NodeRows,
    ) -> list[int]:
        """Call a method of a plugin for rows. Raises PluginError if it changes the cluster or the pod."""
        before = self._fingerprint((pod,))
        result = super().call_on_rows(plugin, extension_point, method, state, pod, nodes)
        self._raise_if_changed(plugin, extension_point, (pod,), before)
        return result

    def _raise_if_changed(
        self, plugin: Plugin, extension_point: str, arguments: tuple[Any, ...], before: Mapping[str, object]
    ) -> None:
        for part, after in self._fingerprint(arguments).items():
            if before[part] != after:
                raise PluginError(plugin.name, extension_point, f"changed {part}, which is read-only")

    def _fingerprint(self, arguments: tuple[Any, ...]) -> dict[str, object]:
        cluster = self._cluster
        nodes = cluster.all_nodes()
        return {
            "the pod": [_encode(info.pod) for info in arguments if isinstance(info, PodInfo)],
            "the pods on nodes": [[_encode(info.pod) for info in nodes.pods(i)] for i in range(len(nodes))],
            "the nodes": [_encode(node) for node in cluster.nodes.objects],
            "the cluster": (cluster.journal.position, cluster.nodes.structure, cluster.pod_count),
        }


class PluginProbe:
    """Calls one plugin for one pod: PreFilter on construction, all else on demand."""

    def __init__(self, plugin: Plugin, runtime: FrameworkRuntime, cluster: Cluster, info: PodInfo) -> None:
        self.plugin: Any = plugin
        self._runtime = runtime
        self._info = info
        self._state = CycleState()
        self.applies: bool = runtime.plugin_applies_to(plugin, info)
        self.label_keys: frozenset[str] | None = runtime.plugin_label_keys(plugin, info)
        self.signature: Hashable | None = runtime.plugin_signature(plugin, info)
        status = self._pre_filter(cluster)
        #: Whether the plugin filters nodes for this pod.
        self.filters = isinstance(plugin, FilterPlugin) and self.applies and status.ok
        #: Whether the plugin scores nodes for this pod.
        self.scores = isinstance(plugin, ScorePlugin) and self.applies

    def _pre_filter(self, cluster: Cluster) -> Status:
        if not (isinstance(self.plugin, PreFilterPlugin) and self.applies):
            return SUCCESS
        result = self._runtime.run_pre_filter_plugin(self.plugin, self._state, self._info, cluster.all_nodes())
        if isinstance(result, PreFilterResult):
            return SUCCESS
        if not (result.ok or result.code is Code.SKIP or result.code.is_rejection):
            raise self._error("PreFilter", result)
        return result

    def statuses(self, nodes: Nodes) -> list[str]:
        """Run Filter for these nodes; a description of each status."""
        verdict = self._runtime.run_filter_plugin(self.plugin, self._state, self._info, nodes)
        statuses = [SUCCESS] * len(nodes) if verdict is None else [verdict.status(i) for i in range(len(nodes))]
        for status in statuses:
            if not (status.ok or status.code.is_rejection):
                raise self._error("Filter", status)
        return [_describe(status) for status in statuses]

    def keys(self, nodes: Nodes) -> list[int]:
        """Run Filter for these nodes; the key of each."""
        verdict = self._runtime.run_filter_plugin(self.plugin, self._state, self._info, nodes)
        return [0] * len(nodes) if verdict is None else verdict.keys.tolist()

    def keys_of_rows(self, nodes: NodeRows) -> list[int]:
        """Run Filter for rows, by its form for these; the key of each."""
        return self._runtime.run_filter_plugin_on_rows(self.plugin, self._state, self._info, nodes)

    def scores_of_rows(self, nodes: NodeRows) -> list[int]:
        """Run Score for rows, by its form for these, after the PreScore of the last :meth:`raw_scores`."""
        return self._runtime.run_score_plugin_on_rows(self.plugin, self._state, self._info, nodes)

    def raw_scores(self, nodes: Nodes) -> NDArray[np.int64] | None:
        """Run PreScore and Score for these nodes, shape (len(nodes),); None if PreScore skips."""
        if isinstance(self.plugin, PreScorePlugin):
            status = self._runtime.run_pre_score_plugin(self.plugin, self._state, self._info, nodes)
            if not status.ok:
                return None
        return self.scores_of(nodes)

    def scores_of(self, nodes: Nodes) -> NDArray[np.int64]:
        """Run Score for these nodes, shape (len(nodes),), after the PreScore of the last :meth:`raw_scores`."""
        return self._runtime.run_score_plugin(self.plugin, self._state, self._info, nodes)

    def normalized(self, raw: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """Normalize raw scores to 0 to 100, shape (len(nodes),)."""
        if type(self.plugin).normalize is ScorePlugin.normalize:
            return in_range(self.plugin, "Score", raw)
        return self._runtime.run_normalize_score_plugin(self.plugin, self._state, self._info, raw, nodes)

    def _error(self, point: str, status: Status) -> PluginError:
        return PluginError(self.plugin.name, point, f"returned {status.code.value}: {status.message}")


def describe_results(profile: Profile, cluster: Cluster, info: PodInfo) -> dict[str, str]:
    """The result of a profile for each node: a rejection, feasible, or a score. Raises PluginError."""
    evaluation = profile.evaluations.of(info)
    feasible = evaluation.find_feasible(info)
    if feasible.error is not None:
        raise PluginError(feasible.error.plugin, "Filter", feasible.error.message)
    names = cluster.nodes.names
    results = dict.fromkeys(names, _describe(SUCCESS))
    if feasible.count < len(names):
        diagnosis = feasible.diagnose()
        for row in np.flatnonzero(diagnosis.rejected):
            results[names[row]] = _describe(diagnosis.status(int(row)))
    if feasible.count:
        nodes = Nodes(cluster.nodes, feasible.rows)
        for result in evaluation.score_by_plugin(info, feasible.rows):
            scores = result.weighted.tolist()
            results |= {name: f"score {score}" for name, score in zip(nodes.names, scores, strict=True)}
    return results


def _describe(status: Status) -> str:
    return "feasible" if status.ok else f"rejected ({status.code.value}: {status.message})"
