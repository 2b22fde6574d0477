"""Gymnasium environments in which an agent takes part in scheduling: with real filters, scores and reservations.

Importing this module registers ``kubestow/Placement-v0``. An episode is one workload: pods arrive in the order of their
times, end after their durations, and are decided about one at a time by the filters of a KubeSchedulerConfiguration. A
pod that fits on no node is left pending and never tried again, so every step has a choice. It needs kubestow-lab[gym];
without Gymnasium the import raises InputError.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.admission import Admission
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import Configuration, SchedulerOptions
from kubestow.engine.pipeline.pod_placer import PlacementResult, Placer
from kubestow.errors import InputError
from kubestow.framework.interface import Plugin
from kubestow.framework.status import Status
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.workloads import synthetic

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError:
    raise InputError("kubestow_lab.gym", "needs Gymnasium, install kubestow-lab[gym]") from None

#: What an agent chooses: the node of each pod, the weights of the scores for each pod, or which waiting pod is next.
ACTIONS = ("node", "weights", "order")

Observation = dict[str, Any]
"""Arrays by name; see :class:`PlacementEnv`."""


class PlacementEnv(gymnasium.Env[Observation, Any]):
    """One workload on one cluster, a pod per step.

    ``trace`` is read as ``--trace`` of kubestow simulate; or ``cluster`` and ``arrivals`` are given; without any of
    them, each reset draws a cluster of ``nodes`` nodes and ``pods`` pods like those of openb by its seed. At most
    ``pods`` pods arrive. ``configuration`` and ``plugins`` are the scheduler's.

    The observation, float32 from 0 to 1; the resources are :attr:`resources`, an amount's share is that of the largest
    node's allocatable amount:

    - ``nodes``, shape (nodes, 2 * resources): the allocatable share of each resource, then the free share;
    - ``pods``, shape (choices, resources): the requested shares of the pod, or of the waiting pods with ``order``,
      zeros where there is none; a request beyond the largest node counts as 1;
    - ``mask``, int8: which actions are valid; all ones with ``weights``.

    The action is a node's row with ``node``, a waiting pod's with ``order``, and with ``weights`` one float32 from 0
    to 1 per score plugin of :attr:`score_plugins`: the pod goes to the node with the largest weighted sum of normalized
    scores, the first by name among equals. With ``order``, the configuration's own scores choose the node.

    The reward of a step is the mean over the resources of the share of the whole cluster that was requested by the pod
    that was placed, so an episode without departures sums up to the allocated share of the cluster. A pod that was
    placed nowhere, because it does not fit any more, gives 0. An action that the mask excludes leaves the pod pending
    and gives -1; with ``order`` and without such a pod, it is the last one. ``info`` has ``pod``, ``node``, ``placed``,
    ``pending`` and ``time``, in seconds.
    """

    def __init__(
        self,
        trace: str | Path | None = None,
        *,
        cluster: ClusterObjects | None = None,
        arrivals: Arrivals | None = None,
        configuration: Configuration = None,
        plugins: Sequence[type[Plugin]] = (),
        action: str = "node",
        nodes: int = 16,
        pods: int = 256,
        choices: int = 8,
    ) -> None:
        if action not in ACTIONS:
            raise InputError("action", f"expected one of {', '.join(ACTIONS)}, got {action!r}")
        if (trace is not None and cluster is not None) or (cluster is None) != (arrivals is None):
            raise InputError("PlacementEnv", "expected a trace, or a cluster and arrivals, or none of them")
        if trace is not None:
            from kubestow_lab.traces.loading import load_trace

            cluster, arrivals = load_trace(trace)
        self._options = SchedulerOptions(configuration, plugins).decoded()
        self._action, self._most_pods = action, pods
        self._choices = choices if action == "order" else 1
        self._size = nodes
        self._given = None if cluster is None or arrivals is None else (cluster, arrivals)
        given, workload = self._given or _drawn(nodes, pods, 0)
        names = {name for node in given.nodes for name in node.status.allocatable if name not in _NOT_OBSERVED}
        #: The observed resources, in order: those that the nodes have, but for numbers of pods and disks.
        self.resources: tuple[str, ...] = tuple(sorted(names))
        self._begin(given, workload)
        count = len(self._names)
        if not count:
            raise InputError("PlacementEnv", "the cluster has no nodes")
        choices_of_action = {"node": count, "order": self._choices, "weights": len(self.score_plugins)}[action]
        observed: dict[str, spaces.Space[Any]] = {
            "nodes": spaces.Box(0, 1, (count, 2 * len(self.resources)), np.float32),
            "pods": spaces.Box(0, 1, (self._choices, len(self.resources)), np.float32),
            "mask": spaces.MultiBinary(choices_of_action),
        }
        self.observation_space = spaces.Dict(observed)
        self.action_space: spaces.Space[Any] = (
            spaces.Box(0, 1, (choices_of_action,), np.float32)
            if action == "weights"
            else spaces.Discrete(choices_of_action)
        )

    @property
    def score_plugins(self) -> tuple[str, ...]:
        """The score plugins of the configuration's first profile, in order: what the weights are for."""
        return tuple(plugin.name for plugin, _ in self._placer.profile.runtime.plugins.score)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; without a given cluster, the seed draws another one."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31)) if self._given is None else 0
        self._begin(*(self._given or _drawn(self._size, self._most_pods, drawn)))
        self._advance()
        return self._observation(), self._info(None, "")

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Decide about one pod."""
        if not self._waiting:
            raise InputError("step", "the episode has ended, reset the environment")
        is_valid = self._action == "weights" or bool(self._mask[int(action)])
        index = min(int(action), len(self._waiting) - 1) if self._action == "order" else 0
        reward, pod, node = 0.0 if is_valid else -1.0, self._waiting.pop(index), ""
        placed = self._place(pod, action) if is_valid else None
        if isinstance(placed, PlacementResult):
            node, reward = placed.node_name, self._reward(placed.pod)
            if pod.duration is not None:
                self._count += 1
                heapq.heappush(self._departures, (self._time + pod.duration, self._count, placed))
        else:
            self._pending += 1
        self._advance()
        return self._observation(), reward, not self._waiting, False, self._info(pod.pod, node)

    def _begin(self, cluster: ClusterObjects, arrivals: Arrivals) -> None:
        self._placer = Placer(
            cluster, self._options.read_configuration(), self._options.registry(), self._options.gates
        )
        self._names = sorted(node.metadata.name for node in cluster.nodes)
        table = self._placer.cache.nodes
        self._rows = np.array([table.rows[name] for name in self._names], np.intp)
        nodes = Nodes(table, self._rows)
        # Shape (nodes, resources).
        self._allocatable = np.array([nodes.allocatable(name) for name in self.resources], np.float64).T
        self._largest = np.maximum(self._allocatable.max(axis=0, initial=0), 1)
        self._arriving = list(arrivals.pods[: self._most_pods])[::-1]
        self._waiting: list[Arrival] = []
        self._departures: list[tuple[float, int, PlacementResult]] = []
        self._time, self._pending, self._count = 0.0, 0, 0
        self._mask = np.zeros(0, np.bool_)

    def _advance(self) -> None:
        """Let pods arrive until there is a choice: one that fits somewhere, or as many as may wait."""
        while len(self._waiting) < self._choices and self._arriving:
            arrival = self._arriving.pop()
            self._time = max(self._time, arrival.time)
            while self._departures and self._departures[0][0] <= self._time:
                self._placer.undo(heapq.heappop(self._departures)[2])
            if self._mask_of(arrival).any():
                self._waiting.append(arrival)
            else:
                self._pending += 1
        self._mask = self._valid_actions()

    def _mask_of(self, arrival: Arrival) -> NDArray[np.bool_]:
        """The nodes that a pod fits on, bool, in the order of the names."""
        info = self._placer.info(arrival.pod)
        feasibility = self._placer.profile.evaluations.of(info).find_feasible(info)
        passing: NDArray[np.bool_] = feasibility.passing[self._rows]
        return passing

    def _place(self, arrival: Arrival, action: Any) -> PlacementResult | Status:
        info = self._placer.info(arrival.pod)
        if self._action == "order":
            return self._placer.place(info)
        evaluation = self._placer.profile.evaluations.of(info)
        feasibility = evaluation.find_feasible(info)
        rows = np.flatnonzero(feasibility.passing)
        if self._action == "node":
            row = int(self._rows[int(action)])
        else:
            weights = dict(zip(self.score_plugins, np.asarray(action, np.float64), strict=True))
            totals = np.zeros(len(rows))
            for result in evaluation.score_by_plugin(info, rows):
                totals += weights[result.plugin] * result.normalized
            names = self._placer.cache.nodes.names
            best = rows[totals == totals.max()]
            row = min((int(each) for each in best), key=lambda each: names[each])
        return self._placer.place_on(self._placer.cache.nodes.names[row], info, evaluation.state())

    def _requests(self, info: PodInfo) -> NDArray[np.float64]:
        return np.array([info.requests.get(name, 0) for name in self.resources], np.float64)

    def _reward(self, info: PodInfo) -> float:
        shares = self._requests(info) / np.maximum(self._allocatable.sum(axis=0), 1)
        return float(shares.mean())

    def _observation(self) -> Observation:
        nodes = Nodes(self._placer.cache.nodes, self._rows)
        requested = np.array([nodes.requested(name) for name in self.resources], np.float64).T
        free = np.clip((self._allocatable - requested) / self._largest, 0, 1)
        pods = np.zeros((self._choices, len(self.resources)), np.float32)
        for index, arrival in enumerate(self._waiting):
            pods[index] = np.clip(self._requests(self._placer.info(arrival.pod)) / self._largest, 0, 1)
        return {
            "nodes": np.hstack([self._allocatable / self._largest, free]).astype(np.float32),
            "pods": pods,
            "mask": self._mask.astype(np.int8),
        }

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions are valid, bool; libraries with masked policies look for a method of this name."""
        return self._mask

    def _valid_actions(self) -> NDArray[np.bool_]:
        if self._action == "weights":
            return np.ones(len(self.score_plugins), np.bool_)
        if self._action == "order":
            return np.arange(self._choices) < len(self._waiting)
        return self._mask_of(self._waiting[0]) if self._waiting else np.zeros(len(self._names), np.bool_)

    def _info(self, pod: Pod | None, node: str) -> dict[str, Any]:
        return {
            "pod": "" if pod is None else pod.key,
            "node": node,
            "placed": bool(node),
            "pending": self._pending,
            "time": self._time,
        }


_NOT_OBSERVED = frozenset({"pods", "ephemeral-storage"})


def _drawn(nodes: int, pods: int, seed: int) -> tuple[ClusterObjects, Arrivals]:
    """A cluster and pods like those of openb, all of which arrive at the start and do not end."""
    workload = synthetic.generate(nodes=nodes, pods=pods, seed=seed)
    cluster = ClusterObjects(nodes=[convert(Node, node) for node in workload.nodes])
    for priority_class in workload.priority_classes:
        cluster.admission.add("PriorityClass", dict(priority_class))
    arrivals = Arrivals(attribution=workload.attribution)
    for manifest in workload.pods:
        _admit(cluster.admission, manifest)
        if not manifest["spec"].get("schedulingGates"):
            pod = convert(Pod, manifest | {"metadata": manifest["metadata"] | {"uid": manifest["metadata"]["name"]}})
            arrivals.pods.append(Arrival(pod, 0.0, None, manifest))
    return cluster, arrivals


def _admit(admission: Admission, manifest: dict[str, Any]) -> None:
    metadata: Mapping[str, Any] = manifest["metadata"]
    admission.admit(manifest, metadata.get("namespace") or "default")


gymnasium.register(id="kubestow/Placement-v0", entry_point="kubestow_lab.gym:PlacementEnv")
