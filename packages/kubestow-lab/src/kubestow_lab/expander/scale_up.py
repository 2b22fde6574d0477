"""Would pods fit with some nodes more, and which option for a scale-up is the best.

Nodes are added to the cluster of a watch for the time of a question, and pods are placed on it one after another by the
scheduler's own plugins, volumes included; then everything is undone. Nothing is awaited meanwhile, so the watch never
sees it. Questions are bounded: in pods, nodes, and time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import numpy as np

from kubestow.api.core import Node, Pod
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import KubestowError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.profile import Profile
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Scheduled

MAX_PODS = 10_000
"""The pods of a question at most."""
MAX_NODES = 1_000
"""The added nodes of a question, or of an option, at most."""
MAX_OPTIONS = 500
"""The options of a question at most."""

_HOSTNAME = "kubernetes.io/hostname"
_RESOURCES = ("cpu", "memory")


class QuestionTooLarge(KubestowError):
    """A question has too many pods, nodes or options."""


class OutOfTime(KubestowError):
    """A question could not be answered in its time."""


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """``count`` nodes like ``node``."""

    node: Node
    count: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The node that a pod gets, "" for none, and why it gets none."""

    pod: Pod
    node_name: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ScaleUpOption:
    """A node group that can be scaled up by some nodes for the sake of some pods."""

    node_group: str
    template: NodeTemplate
    pods: Sequence[Pod]


@dataclass(frozen=True, slots=True)
class RankedOption:
    """An option and what it is good for.

    ``placed`` of ``pods`` get a node; ``score`` is how much the plugins prefer its nodes for them, of 100, compared
    only among options with which as many pods fit; ``unused`` is the share of CPU and memory of its nodes that is left.
    """

    option: ScaleUpOption
    placed: int
    pods: int
    score: float
    unused: float

    @property
    def rank(self) -> tuple[int, float, float]:
        """The smaller, the better."""
        return -self.placed, -round(self.score, 6), round(self.unused, 6)

    def __str__(self) -> str:
        nodes = f"{self.option.template.count:,} nodes" if self.option.template.count != 1 else "1 node"
        placed = f"{self.placed:,} of {self.pods:,} pods fit with {nodes} more"
        return f"kubestow: {placed}, score {self.score:.0f} of 100, {self.unused:.0%} unused"


class ScaleUpSimulator:
    """Answers questions about one cluster. The pods of no profile are decided about by the first.

    ``monotonic`` is a clock in seconds.
    """

    def __init__(self, cluster: Cluster, profiles: Mapping[str, Profile], *, monotonic: Callable[[], float]) -> None:
        self._cluster, self._profiles, self._monotonic = cluster, profiles, monotonic
        self._default = next(iter(profiles))
        self._pipeline = DecisionPipeline(cluster, profiles, FirstByName())

    def simulate(self, pods: Sequence[Pod], templates: Sequence[NodeTemplate], seconds: float) -> list[Placement]:
        """Where pods would go with some nodes more, in the order given. Pods that have a node keep it.

        Raises QuestionTooLarge, OutOfTime after so many ``seconds``, and KubestowError if a plugin fails.
        """
        _check(pods, templates)
        deadline = self._monotonic() + seconds
        with self._with_nodes(templates), self._placing(self._infos(pods), deadline) as placements:
            return placements

    def best_options(self, options: Sequence[ScaleUpOption], seconds: float) -> list[RankedOption]:
        """The best options, several if they are equally good; none if no option helps any pod.

        The best is the one with which most of the pods of all options fit. Of several, the one whose nodes the plugins
        of the pods' profiles score highest; of these, the one that leaves least of its CPU and memory unused. Raises as
        :meth:`simulate`.
        """
        if len(options) > MAX_OPTIONS:
            raise QuestionTooLarge(f"{len(options):,} options, expected at most {MAX_OPTIONS:,}")
        every = {pod.metadata.uid or pod.key: pod for option in options for pod in option.pods}
        pods = sorted(every.values(), key=lambda pod: -(pod.spec.priority or 0))
        deadline = self._monotonic() + seconds
        ranked = []
        for option in options:
            _check(pods, (option.template,))
            infos = self._infos(pods)
            with self._with_nodes((option.template,)) as names, self._placing(infos, deadline) as placements:
                placed = sum(1 for placement in placements if placement.node_name)
                unused = self._unused(names)
            ranked.append(RankedOption(option, placed, len(pods), 0.0, unused))
        most = max((each.placed for each in ranked), default=0)
        leading = [each for each in ranked if most and each.placed == most]
        if len(leading) > 1:
            scores = self._scores([each.option for each in leading], pods)
            leading = [
                RankedOption(each.option, each.placed, each.pods, score, each.unused)
                for each, score in zip(leading, scores, strict=True)
            ]
        best = min((each.rank for each in leading), default=None)
        return [each for each in leading if each.rank == best]

    def _infos(self, pods: Sequence[Pod]) -> list[PodInfo]:
        infos = []
        for number, pod in enumerate(pods):
            if pod.spec.scheduler_name not in self._profiles:
                spec = msgspec.structs.replace(pod.spec, scheduler_name=self._default)
                pod = msgspec.structs.replace(pod, spec=spec)
            if not pod.metadata.uid:
                metadata = msgspec.structs.replace(pod.metadata, uid=f"simulated/{number}")
                pod = msgspec.structs.replace(pod, metadata=metadata)
            infos.append(self._cluster.shapes.info(pod))
        return infos

    @contextmanager
    def _with_nodes(self, templates: Sequence[NodeTemplate]) -> Iterator[list[str]]:
        """The cluster with some nodes more; their names."""
        names: list[str] = []
        try:
            for template in templates:
                for _ in range(template.count):
                    node = self._node_like(template.node, len(names) + 1)
                    self._cluster.add_node(node)
                    names.append(node.metadata.name)
            yield names
        finally:
            for name in reversed(names):
                self._cluster.remove_node(name)

    def _node_like(self, template: Node, number: int) -> Node:
        name = f"{template.metadata.name or 'node'}-simulated-{number}"
        while name in self._cluster.nodes.rows:
            name += "-more"
        labels = {**template.metadata.labels, _HOSTNAME: name}
        metadata = msgspec.structs.replace(template.metadata, name=name, uid=f"simulated/{name}", labels=labels)
        return msgspec.structs.replace(template, metadata=metadata)

    @contextmanager
    def _placing(self, infos: Sequence[PodInfo], deadline: float) -> Iterator[list[Placement]]:
        """The cluster with pods on the nodes that the profiles choose for them, and where they are."""
        cluster = self._cluster
        placements: list[Placement] = []
        reserved: list[tuple[Profile, CycleState, PodInfo, str]] = []
        with cluster.simulate():
            try:
                for info in infos:
                    if self._monotonic() > deadline:
                        raise OutOfTime(f"out of time after {len(placements):,} of {len(infos):,} pods")
                    known = cluster.placed_pod(info.uid)
                    if known is not None:
                        placements.append(Placement(info.pod, known.node_name))
                        continue
                    decision = self._pipeline.decide_by_plugins(info)
                    if not isinstance(decision, Scheduled):
                        placements.append(Placement(info.pod, "", decision.message))
                        continue
                    profile, node_name = self._profiles[info.spec.scheduler_name], decision.node_name
                    cluster.assume(info, node_name)
                    status = profile.binding.run_reserve_plugins(decision.state, info, node_name)
                    if status.ok:
                        reserved.append((profile, decision.state, info, node_name))
                        placements.append(Placement(info.pod, node_name))
                    else:
                        profile.binding.run_unreserve_plugins(decision.state, info, node_name)
                        cluster.forget(info.uid)
                        placements.append(Placement(info.pod, "", status.message))
                yield placements
            finally:
                for profile, state, info, node_name in reversed(reserved):
                    profile.binding.run_unreserve_plugins(state, info, node_name)

    def _unused(self, names: Sequence[str]) -> float:
        """The share of the CPU and memory of nodes that no pod requests."""
        table = self._cluster.nodes
        shares = []
        for name in names:
            row = table.rows[name]
            for resource in _RESOURCES:
                allocatable = int(table.allocatable[resource].values[row])
                if allocatable > 0:
                    shares.append(1 - int(table.requested[resource].values[row]) / allocatable)
        return math.fsum(shares) / len(shares) if shares else 1.0

    def _scores(self, options: Sequence[ScaleUpOption], pods: Sequence[Pod]) -> list[float]:
        """How much the plugins prefer an empty node of each option, of 100: the mean over the pods that fit on it."""
        single = [NodeTemplate(option.template.node, 1) for option in options]
        totals, counts = np.zeros(len(options)), np.zeros(len(options))
        with self._with_nodes(single) as names:
            rows = np.array([self._cluster.nodes.rows[name] for name in names], np.intp)
            for info in self._infos(pods):
                evaluations = self._profiles[info.spec.scheduler_name].evaluations
                evaluation = evaluations.of(info)
                feasible = evaluation.find_feasible(info)
                if feasible.error is not None:
                    raise KubestowError(feasible.error.message)
                passes = np.zeros(len(self._cluster.nodes), np.bool_)
                passes[feasible.rows] = True
                fits = passes[rows]
                if fits.any() and evaluations.max_total:
                    chosen = np.sort(rows[fits])
                    found = evaluation.compute_totals(info, chosen) * 100.0 / evaluations.max_total
                    totals[fits] += found[np.searchsorted(chosen, rows[fits])]
                    counts[fits] += 1
        return [float(total / count) if count else 0.0 for total, count in zip(totals, counts, strict=True)]


def _check(pods: Sequence[Pod], templates: Sequence[NodeTemplate]) -> None:
    if len(pods) > MAX_PODS:
        raise QuestionTooLarge(f"{len(pods):,} pods, expected at most {MAX_PODS:,}")
    nodes = sum(max(0, template.count) for template in templates)
    if nodes > MAX_NODES:
        raise QuestionTooLarge(f"{nodes:,} added nodes, expected at most {MAX_NODES:,}")
